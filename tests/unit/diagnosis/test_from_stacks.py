"""What stacks of two looks prove, and what they do not."""

from __future__ import annotations

import dataclasses

import pytest
from attach_scenes import INIT, LOAD, LOOP, SLEEPS, WAITS, case, rank, sleeper, waiter

from safelaunch.diagnosis import diagnose
from safelaunch.model import Case, Gap, RankFacts


@pytest.mark.parametrize(
    "facts",
    [
        case(waiter(0), sleeper(1)),
        case(waiter(0), sleeper(1), waiter(2), world=6),
        case(waiter(0, since_s=3.0), sleeper(1, since_s=3.0), waiter(2, since_s=3.0)),
    ],
    ids=["two-ranks", "other-nodes", "short-look"],
)
def test_what_could_still_be_otherwise_lowers_the_confidence(facts: Case) -> None:
    verdict = diagnose(facts)

    assert (verdict.culprit_ranks, verdict.confidence) == ((1,), "low")


@pytest.mark.parametrize(
    "late",
    [
        sleeper(1, cpu_s=6.0, syscall=""),
        sleeper(1, io_bytes=1 << 20),
        rank(1, (LOAD, LOOP), SLEEPS, earlier=(LOOP,)),
    ],
    ids=["cpu", "io", "another-line"],
)
def test_who_is_at_work_is_not_named(late: RankFacts) -> None:
    verdict = diagnose(case(waiter(0), late, waiter(2)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert "at work" in verdict.summary


def test_a_wait_without_a_frame_may_be_torchs_own() -> None:
    """`work.wait()` and `loss.item()` leave the user's line as the innermost frame."""
    unclear = rank(1, (LOAD, LOOP), dataclasses.replace(WAITS, switches=4))
    polls = sleeper(2, switches=1200)  # NCCL's blocking wait

    assert diagnose(case(waiter(0), unclear, waiter(2))).culprit_ranks == ()
    assert diagnose(case(waiter(0), waiter(1), polls)).culprit_ranks == ()


def test_nobody_is_named_where_all_are_in_the_same_call() -> None:
    verdict = diagnose(case(waiter(0), waiter(1), waiter(2)))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL310", (), "low")


def test_nobody_is_named_where_waits_differ() -> None:
    verdict = diagnose(case(waiter(0), waiter(1, LOAD), sleeper(2), waiter(3)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())


def test_one_that_waits_alone_may_be_the_one_that_is_wrong() -> None:
    verdict = diagnose(case(waiter(0), sleeper(1), sleeper(2), sleeper(3)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())


def test_a_rank_that_could_not_be_looked_at_keeps_others_from_being_named() -> None:
    unread = RankFacts(2, 2, 102, watched=False, kernel=WAITS, missing=(Gap("stack", "py-spy: Permission denied"),))
    verdict = diagnose(case(waiter(0), sleeper(1), unread, waiter(3)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())


def test_a_stopped_rank_is_named_and_a_traced_one_is_not() -> None:
    stopped = sleeper(1, state="T", syscall="")
    traced = sleeper(1, state="t", tracer=4)

    assert diagnose(case(waiter(0), stopped, waiter(2))).code == "SL304"
    assert diagnose(case(waiter(0), stopped, waiter(2))).culprit_ranks == (1,)
    assert diagnose(case(waiter(0), traced, waiter(2))).culprit_ranks == ()


def test_all_stopped_blames_nobody() -> None:
    ranks = [
        dataclasses.replace(one, state="T", kernel=dataclasses.replace(WAITS, state="T"))
        for one in map(waiter, range(3))
    ]

    assert (diagnose(case(*ranks)).code, diagnose(case(*ranks)).culprit_ranks) == ("SL304", ())


def test_ranks_that_wake_and_move_data_make_progress() -> None:
    verdict = diagnose(case(*(waiter(n, switches=90, io_bytes=4000) for n in (0, 2)), sleeper(1, io_bytes=4000)))

    assert (verdict.code, verdict.kind, verdict.exit_code) == ("SL502", "none", 0)


def test_a_call_that_one_rank_never_left_is_no_progress() -> None:
    moving = rank(1, (LOAD,), dataclasses.replace(SLEEPS, cpu_s=9.0), earlier=(LOOP,))

    assert diagnose(case(waiter(0), moving, waiter(2))).code == "SL399"


def test_a_rank_that_has_ended_while_all_others_wait() -> None:
    gone = RankFacts(1, 1, 0, watched=False, state="X", missing=(Gap("process", "it has ended"),))
    verdict = diagnose(case(waiter(0), gone, waiter(2)))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL408", (1,), "low")


def test_the_rules_are_for_attached_jobs_alone() -> None:
    live = dataclasses.replace(case(waiter(0), sleeper(1), waiter(2)), origin="run")

    assert diagnose(live).culprit_ranks == ()


def test_ranks_that_try_to_connect_again_and_again_make_no_progress() -> None:
    tries = dataclasses.replace(SLEEPS, io_bytes=49, switches=2)
    verdict = diagnose(case(*(rank(number, INIT, tries) for number in range(3))))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())
    assert "ranks 0-2 try again and again to connect to the store, and nobody answers" in verdict.because
    assert "MASTER_ADDR" in verdict.remedy


def test_ranks_that_wait_for_an_answer_of_the_store_are_not_said_to_try() -> None:
    verdict = diagnose(case(*(rank(number, INIT, WAITS) for number in range(3))))

    assert verdict.code == "SL310"
    assert not any("again and again" in line for line in verdict.because)


def test_without_any_stack_it_is_said_why() -> None:
    blind = [
        dataclasses.replace(
            waiter(number), stack=None, stacks=(), earlier=None, missing=(Gap("stack", "py-spy is not installed"),)
        )
        for number in range(2)
    ]
    verdict = diagnose(case(*blind))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert verdict.summary.startswith("no stack of ranks 0 and 1 could be had")
    assert verdict.because == ("stack: py-spy is not installed",)

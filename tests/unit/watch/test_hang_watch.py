"""The decisions of the hang watch: when to look, when to speak, when to end, and what is no hang."""

from __future__ import annotations

import dataclasses

import pytest
from clock import LEFT, ROUND_S, START, Run, names, waiting_run, when

from safelaunch.codes import CATALOGUE
from safelaunch.model import Kernel, Location, Stack
from safelaunch.watch.hang import (
    CONFIRM_S,
    FACTOR,
    LATE_S,
    LIMIT_S,
    LOADING_S,
    LOOP_S,
    NOTICE_S,
    QUIET_S,
    HangWatch,
    Suspicion,
    slow,
)

CONFIRMED = QUIET_S + CONFIRM_S  # the second look, at the earliest
HOUR = 3600.0

# ---------------------------------------------------------------------------------------------- looks and notices


def test_nothing_before_it_is_quiet() -> None:
    run = waiting_run()

    assert run.go(QUIET_S - ROUND_S) == []
    assert run.go(ROUND_S) == [(QUIET_S, "look")]


def test_ranks_that_move_are_never_looked_at() -> None:
    assert waiting_run().go(HOUR, moving=(0, 1, 2)) == []


def test_one_quiet_waiter_is_enough_for_a_look() -> None:
    assert names(waiting_run().go(QUIET_S, moving=(1, 2, 3))) == ["look"]


def test_what_nothing_can_end_is_told_as_soon_as_it_is_confirmed() -> None:
    events = waiting_run(verdict=LEFT, on_hang="report").go(20)

    assert names(events) == ["look", "look", "notice"]
    assert CONFIRMED <= events[-1][0] < CONFIRMED + ROUND_S


def test_what_may_still_end_is_told_later() -> None:
    events = waiting_run().go(60)

    assert names(events)[-2:] == ["look", "notice"]
    assert when(events, "notice") == [NOTICE_S]
    assert len(when(events, "look")) <= 3


@pytest.mark.parametrize("other", [{"code": "SL307"}, {"culprit_ranks": (2,)}])
def test_two_looks_that_disagree_tell_nothing(other: dict[str, object]) -> None:
    run = waiting_run(verdict=LEFT)
    run.go(QUIET_S)
    run.verdict = dataclasses.replace(LEFT, **other)  # type: ignore[arg-type]

    events = run.go(CONFIRM_S + ROUND_S)
    assert names(events) == ["look"]
    assert names(run.go(CONFIRM_S + ROUND_S)) == ["look", "notice"]


def test_the_notice_knows_since_when() -> None:
    run = waiting_run(on_hang="report")
    run.pulses[3].progress = START + 1.0
    run.go(30)

    assert run.watch.notice is not None
    assert run.watch.notice.verdict == run.told()
    assert run.watch.notice.since == START + 1.0
    assert run.watch.notice.t == START + 1.0 + NOTICE_S


# ---------------------------------------------------------------------------------------------- what is no hang

LINKS = Location("<frozen importlib._bootstrap_external>", 1233, "create_module")
BODY = Location("/opt/venv/lib/python3.11/site-packages/heavy/__init__.py", 3, "<module>")
BUSY = Kernel("R", cpu_s=0.6, io_bytes=0, since_s=0.7)
READS = Kernel("D", cpu_s=0.0, io_bytes=20 << 20, since_s=0.7)
HELD = Kernel("D", cpu_s=0.0, io_bytes=0, since_s=0.7)


@pytest.mark.parametrize(
    ("frames", "kernel", "seconds"),
    [
        ((LINKS, BODY), BUSY, LOADING_S),
        ((LINKS, BODY), READS, LOADING_S),
        ((LINKS, BODY), HELD, NOTICE_S),  # a dead file system
        ((BODY, LINKS), BUSY, NOTICE_S),  # the module's own program: perhaps that of the training
    ],
)
def test_a_large_module_may_take_its_time_to_load(frames: tuple[Location, ...], kernel: Kernel, seconds: float) -> None:
    run = waiting_run()
    run.seen[3] = {"stack": Stack(frames, "py-spy"), "kernel": kernel}

    (told,) = when(run.go(2 * LOADING_S), "notice")
    assert seconds <= told <= seconds + QUIET_S + ROUND_S


def test_ten_minutes_of_generation_on_one_rank_are_nobodys_business() -> None:
    run = Run(HangWatch())  # nobody is inside a collective

    assert set(names(run.go(600))) == {"look"}


def test_generation_beside_ranks_that_work_on() -> None:
    run = Run(HangWatch())

    assert run.go(600, moving=(1, 2, 3)) == []


def test_a_pipeline_whose_last_rank_moves_is_well() -> None:
    # Ranks 0 to 2 wait for it, each for the next, much longer than anything is usually waited for.
    run = waiting_run()

    assert when(run.go(600, moving=(3,)), "notice") == []
    stopped = run.now
    told = when(run.go(20), "notice")
    assert told == [stopped - START + NOTICE_S]


def test_progress_before_the_notice_starts_anew() -> None:
    run = waiting_run()
    run.go(NOTICE_S - 1)
    run.moved(0, 1, 2, 3)

    again = run.now - START
    events = run.go(NOTICE_S)
    assert when(events, "look")[0] == again + QUIET_S
    assert when(events, "notice") == [again + NOTICE_S]


def test_a_rank_that_waits_and_goes_on_in_another_group_ends_no_stall() -> None:
    run = waiting_run(on_hang="report")
    run.groups[0] = "1"  # ranks 1 and 2 wait for rank 3 in group 0
    events = run.go(60, moving=(0,))

    assert when(events, "notice") == [NOTICE_S]
    assert when(events, "returned") == []


def test_time_in_which_we_did_not_run_counts_for_nobody() -> None:
    run = waiting_run(verdict=LEFT)
    run.now += HOUR  # a suspended laptop

    assert run.go(QUIET_S) == []
    assert names(run.go(CONFIRM_S + 2 * ROUND_S)) == ["look", "look", "notice"]


def test_a_round_that_came_a_little_late_changes_nothing() -> None:
    run = waiting_run()
    run.now += LATE_S - ROUND_S

    assert names(run.go(ROUND_S)) == ["look"]


def test_a_first_round_knows_nothing_of_what_was_before() -> None:
    run = Run(HangWatch(), now=START + HOUR)
    for rank in (0, 1, 2):
        run.pulses[rank].waiting = True

    assert run.go(QUIET_S - ROUND_S) == []
    assert names(run.go(ROUND_S)) == ["look"]


# ---------------------------------------------------------------------------------------------- learned limits


def silence(run: Run, seconds: float, *ranks: int) -> None:
    """All stand still for so long, and go on."""
    run.go(seconds)
    run.moved(*(ranks or run.pulses))
    run.poll()


def test_a_place_that_is_often_slow_is_given_time() -> None:
    run = waiting_run()
    run.sites = dict.fromkeys(range(4), "all_reduce train.py:61")
    silence(run, 4)
    again = run.now - START

    told = when(run.go(100), "notice")
    assert len(told) == 1
    assert FACTOR * 3.5 <= told[0] - again <= FACTOR * 4 + CONFIRM_S + ROUND_S


def test_the_longest_silence_counts() -> None:
    run = waiting_run()
    run.sites = dict.fromkeys(range(4), "all_reduce train.py:61")
    for seconds in (2.0, 4.0, 1.5):
        silence(run, seconds)
    again = run.now - START

    assert when(run.go(100), "notice")[0] - again >= FACTOR * 3.5


def test_another_place_is_not_given_time() -> None:
    run = waiting_run()
    run.sites = dict.fromkeys(range(4), "loader train.py:58")
    silence(run, 4)
    run.sites = dict.fromkeys(range(4), "all_reduce train.py:61")
    again = run.now - START

    assert when(run.go(100), "notice") == [again + NOTICE_S]


def test_nothing_is_learned_from_the_start() -> None:
    run = waiting_run()  # no site: imports
    silence(run, 5)
    again = run.now - START

    assert when(run.go(100), "notice") == [again + NOTICE_S]
    assert run.watch.learned == {}


def test_nothing_is_learned_from_short_silences() -> None:
    run = waiting_run()
    run.sites = dict.fromkeys(range(4), "all_reduce train.py:61")
    for _ in range(50):
        silence(run, 0.75)

    assert run.watch.learned == {}


def test_there_is_an_end_to_patience() -> None:
    run = waiting_run(on_hang="report")
    run.watch.learned["evaluate"] = 5000.0
    run.sites = dict.fromkeys(range(4), "evaluate")

    told = when(run.go(2 * LIMIT_S), "notice")
    assert len(told) == 1
    assert LIMIT_S <= told[0] <= LIMIT_S + CONFIRM_S + ROUND_S


def test_a_wait_that_was_told_and_ended_is_learned() -> None:
    run = waiting_run()
    run.sites = dict.fromkeys(range(4), "evaluate")
    silence(run, 60)
    again = run.now - START

    assert names(run.events)[-1] == "returned"
    told = when(run.go(400), "notice")
    assert len(told) == 1
    assert FACTOR * 59 <= told[0] - again <= FACTOR * 60 + 1


# ---------------------------------------------------------------------------------------------- progress returns


@pytest.mark.parametrize("rank", [3, 0])
def test_progress_of_the_culprit_or_of_a_waiter_ends_a_notice(rank: int) -> None:
    run = waiting_run()
    run.go(20)
    run.resume = False
    run.moved(rank)

    assert names(run.go(ROUND_S)) == ["returned"]
    notice = run.watch.returned(run.now)
    assert run.watch.notice is None
    verdict = slow(notice, run.now)
    assert (verdict.code, verdict.slug, verdict.kind) == ("SL501", CATALOGUE["SL501"].slug, "slow")
    assert (verdict.exit_code, verdict.conclusive, verdict.culprit_ranks) == (0, False, (3,))
    assert verdict.concluded_after_s == 20.25
    assert "20 s" in verdict.summary


def test_progress_of_a_rank_that_has_nothing_to_do_with_it_ends_nothing() -> None:
    run = Run(HangWatch(on_hang="report"))
    run.wait(0, 1)  # rank 2 computes on its own
    run.go(20)

    assert run.go(20, moving=(2,)) == []


def test_what_has_gone_another_way_may_move_as_it_likes() -> None:
    """Rank 3 has skipped something, and trains on with others: those who wait for it wait for ever."""
    run = Run(HangWatch(on_hang="report"), verdict=dataclasses.replace(LEFT, waiting=(0, 1), conclusive=False))
    run.wait(0, 1)
    events = run.go(20, moving=(2, 3))

    assert when(events, "notice") == [NOTICE_S]
    assert run.go(20, moving=(2, 3)) == []
    run.moved(0)
    assert names(run.go(ROUND_S)) == ["returned"]


def test_ranks_that_have_given_up_their_call_have_made_no_progress() -> None:
    run = waiting_run()
    run.go(20)
    run.resume = False
    run.moved(0, 1)
    run.watch.gave_up(run.watch.moved(run.pulses))  # type: ignore[arg-type]

    assert run.go(5) == []
    run.moved(1)
    assert names(run.go(ROUND_S)) == ["returned"]


def test_after_a_return_the_next_silence_is_judged_anew() -> None:
    run = waiting_run()
    run.go(20)
    run.moved(*run.pulses)
    events = run.go(20)

    assert names(events)[0] == "returned"
    assert names(events)[-1] == "notice"


# ------------------------------------------------------------------------------------------------------ phases


def test_a_suspicion_goes_from_looks_to_a_notice_and_back() -> None:
    run = Run(HangWatch())
    assert run.watch.phase is Suspicion.NONE
    run.wait(0, 1, 2)
    run.go(QUIET_S + 0.25)
    assert run.watch.phase is Suspicion.SUSPECTED
    run.go(2.0)
    assert run.watch.phase is Suspicion.CONFIRMED
    run.go(NOTICE_S)
    assert run.watch.phase is Suspicion.NOTICED
    run.moved(3)
    run.go(0.25)
    assert run.watch.phase is Suspicion.NONE


def test_a_person_pauses_what_has_not_been_told_and_a_notice_stands() -> None:
    run = waiting_run()
    run.paused = True
    run.go(QUIET_S + 1.0)
    assert run.watch.phase is Suspicion.PAUSED
    run.paused = False
    run.go(60.0)
    assert run.watch.phase is Suspicion.NOTICED
    run.watch.pause(run.now)
    assert run.watch.phase is Suspicion.NOTICED


def test_an_end_is_the_last_phase_of_an_attempt() -> None:
    run = waiting_run()
    run.go(60.0)
    run.watch.end()
    assert run.watch.phase is Suspicion.ENDING
    run.watch.restart()
    assert run.watch.phase is Suspicion.NONE


@pytest.mark.parametrize(("in_passes", "told"), [(False, NOTICE_S), (True, LOOP_S)])
def test_a_rank_that_sleeps_in_each_pass_of_a_loop_is_given_time(in_passes: bool, told: float) -> None:
    run = waiting_run()
    run.in_passes = in_passes

    assert when(run.go(100), "notice") == [told]

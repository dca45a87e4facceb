"""Ranks that torch's watchdog ended before anybody had told of the hang: they had waited for somebody."""

from __future__ import annotations

import dataclasses

from test_calls_on_devices import ASLEEP, HANG, LINE, SIZE, call, rank

from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.crash import aborted
from safelaunch.diagnosis.notice import gave_up
from safelaunch.model import Case, Exit, Incident, Location, ProcessGroup, PyError, RankFacts, Stack, Verdict

AT = 100.0
DYING = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n"
WAITS = Stack((Location("train.py", 12, "main"),), "faulthandler")


def waiter(number: int) -> RankFacts:
    """A rank that waited for its second call on its device until it was aborted."""
    facts = rank(number, call(1, "completed"), call(2, "enqueued"))
    return dataclasses.replace(facts, exit=Exit(-6, AT), fault=WAITS, stack=None, stacks=())


def case(*ranks: RankFacts) -> Case:
    return Case(
        Incident("exit", 0, tuple(one.rank for one in ranks if one.exit), AT), "a", SIZE, ranks,
        groups=(ProcessGroup("0", tuple(range(SIZE))),), now=AT,
    )  # fmt: skip


def told(facts: Case, given_up: frozenset[int] = frozenset({0, 1, 3})) -> Verdict:
    """As a run concludes it."""
    verdict = diagnose(facts)
    before = aborted.as_it_was(facts, given_up) if aborted.may_be(facts, verdict) else None
    return aborted.of_waiting(verdict, diagnose(before), facts, given_up) if before is not None else verdict


def late() -> RankFacts:
    return rank(2, call(1, "completed"), stack=ASLEEP, syscall="clock_nanosleep")


def test_the_rank_that_they_waited_for_is_named() -> None:
    verdict = told(case(waiter(0), waiter(1), late(), waiter(3)))

    assert (verdict.code, verdict.culprit_ranks, verdict.location) == ("SL301", (2,), ASLEEP.frames[0])
    assert (
        verdict.because[-1]
        == "the wait ended when torch's watchdog aborted ranks 0, 1 and 3, after the timeout of the call"
    )


def test_a_rank_that_has_not_been_ended_yet_still_waits() -> None:
    alive = rank(3, call(1, "completed"), call(2, "enqueued"))

    assert told(case(waiter(0), waiter(1), late(), alive)).culprit_ranks == (2,)


def test_a_rank_that_is_being_aborted_still_waits_and_fails_with_the_others() -> None:
    dying = dataclasses.replace(waiter(3), exit=None, fault=dataclasses.replace(WAITS, text=DYING))

    verdict = told(case(waiter(0), waiter(1), late(), dying))

    assert verdict.culprit_ranks == (2,)
    assert "watchdog aborted ranks 0, 1 and 3" in verdict.because[-1]


def test_what_a_rank_called_when_its_communicator_was_gone_says_nothing() -> None:
    began = call(2, "enqueued")
    gave_up = dataclasses.replace(began, done=False, timeout_s=1.0)
    went_on = dataclasses.replace(began, op="new_group", group="new_group #1", seq=1, state="", t=began.t + 1.5)
    released = dataclasses.replace(waiter(1), collectives=(call(1, "completed"), gave_up, went_on))
    released = dataclasses.replace(released, recorded=(call(1, "completed"), gave_up))

    before = aborted.as_it_was(case(waiter(0), released, late(), waiter(3)), frozenset({0, 1, 3}))

    assert before is not None
    assert [one.op for one in before.ranks[1].collectives] == ["all_reduce", "all_reduce"]
    assert told(case(waiter(0), released, late(), waiter(3))).culprit_ranks == (2,)


def test_ranks_that_all_waited_in_vain_are_not_to_blame() -> None:
    verdict = told(case(*map(waiter, range(4))), frozenset(range(4)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())
    assert "watchdog aborted ranks 0-3" in verdict.because[-1]


def test_nor_are_they_where_nothing_is_known_of_their_waits() -> None:
    blank = [dataclasses.replace(waiter(n), collectives=(), recorded=None, progress=()) for n in range(4)]
    verdict = told(case(*blank), frozenset(range(4)))

    assert (verdict.code, verdict.culprit_ranks, verdict.waiting) == ("SL414", (), (0, 1, 2, 3))


def test_who_was_told_of_while_it_waited_itself_is_named_when_its_own_watchdog_aborts_it() -> None:
    facts = case(waiter(0), waiter(1), late(), waiter(3))
    notice = dataclasses.replace(told(facts), culprit_ranks=(3,), waiting=(0, 1))
    verdict = diagnose(facts)

    assert verdict.culprit_ranks == (0, 1, 3)
    assert gave_up(verdict, notice, frozenset({0, 1, 3}))
    assert not gave_up(verdict, notice, frozenset({0, 1}))


def test_ranks_that_ended_themselves_give_the_exit_code_of_a_failure() -> None:
    assert told(case(waiter(0), waiter(1), late(), waiter(3))).exit_code == 1


def test_an_abort_before_the_timeout_is_an_abort() -> None:
    verdict = told(case(waiter(0), waiter(1), late(), waiter(3)), frozenset())

    assert (verdict.code, verdict.culprit_ranks) == ("SL406", (0, 1, 3))


def test_an_exception_comes_before_what_followed_from_it() -> None:
    error = PyError("ValueError", "bad batch", "Traceback ...", AT - 20, LINE)
    failed = dataclasses.replace(late(), error=error, exit=Exit(1, AT - 19))

    verdict = told(case(waiter(0), waiter(1), failed, waiter(3)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (2,))


def test_the_case_is_a_hang_of_the_moment_before() -> None:
    before = aborted.as_it_was(case(waiter(0), waiter(1), late(), waiter(3)), frozenset({0}))

    assert before is not None
    assert before.incident.kind == HANG.kind
    assert all(facts.exit is None for facts in before.ranks)


def test_nobody_is_blamed_for_a_call_that_came_after_its_timeout() -> None:
    facts = case(waiter(0), rank(1, call(1, "completed")), waiter(2), rank(3, call(1, "completed")))
    late = {0: aborted.LateCall("all_gather #1", 4.01, 2.0), 2: aborted.LateCall("all_gather #1", 2.8, 2.0)}

    verdict = aborted.of_late_calls(diagnose(facts), facts, late)

    assert verdict is not None
    assert (verdict.code, verdict.culprit_ranks, verdict.waiting) == ("SL414", (), (0, 2))
    assert verdict.summary.startswith(
        "torch's watchdog aborted ranks 0 and 2: all_gather #1 took 4.0 s, its timeout is 2 s"
    )


def test_an_abort_of_which_no_late_call_is_known_stands() -> None:
    facts = case(waiter(0), waiter(1), rank(2, call(1, "completed")), rank(3, call(1, "completed")))

    assert aborted.of_late_calls(diagnose(facts), facts, {0: aborted.LateCall("all_gather #1", 4.0, 2.0)}) is None

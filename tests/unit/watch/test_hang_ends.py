"""The decisions of the hang watch: when ranks that hang are ended, and when not."""

from __future__ import annotations

import pytest
from clock import LATE, LEFT, ROUND_S, START, Beats, Run, names, waiting_run, when

from safelaunch.model import Phase
from safelaunch.watch.hang import CONCLUSIVE_ABORT_S, DEFAULT_ABORT_S, NOTICE_S, PAUSE_LOOK_S, QUIET_S

HOUR = 3600.0

# ---------------------------------------------------------------------------------------------- the end


def ended(run: Run, seconds: float = 2 * HOUR) -> list[float]:
    """When the ranks are to be ended, told at the first time only."""
    return when(run.go(seconds), "abort")[:1]


def test_auto_ends_what_nothing_else_can_end() -> None:
    run = waiting_run(verdict=LEFT)
    told = when(run.go(5), "notice")[0]

    assert ended(run) == [told + CONCLUSIVE_ABORT_S]


def test_auto_ends_nothing_that_may_still_go_on() -> None:
    run = waiting_run()

    assert ended(run) == []
    assert run.watch.ends_in(run.now) is None


@pytest.mark.parametrize("on_hang", ["auto", "abort", "restart"])
def test_a_limit_counts_from_the_last_progress(on_hang: str) -> None:
    assert ended(waiting_run(on_hang=on_hang, abort_after=120.0)) == [120.0]


@pytest.mark.parametrize("on_hang", ["abort", "restart"])
def test_abort_without_a_limit_has_torchs_own(on_hang: str) -> None:
    assert ended(waiting_run(on_hang=on_hang)) == [DEFAULT_ABORT_S]


def test_a_limit_shorter_than_the_notice_ends_at_the_notice() -> None:
    assert ended(waiting_run(on_hang="abort", abort_after=2.0))[0] == pytest.approx(NOTICE_S, abs=2 * ROUND_S)


def test_what_nothing_can_end_does_not_wait_for_the_limit() -> None:
    run = waiting_run(verdict=LEFT, on_hang="abort", abort_after=300.0)

    assert ended(run)[0] < 20


@pytest.mark.parametrize("verdict", [LATE, LEFT])
@pytest.mark.parametrize("abort_after", [None, 5.0])
def test_report_never_ends_anything(verdict: object, abort_after: float | None) -> None:
    run = waiting_run(verdict=verdict, on_hang="report", abort_after=abort_after)

    assert ended(run) == []
    assert run.watch.notice is not None
    assert run.watch.ends_in(run.now) is None


def test_how_long_is_left() -> None:
    run = waiting_run(abort_after=120.0)
    run.go(20)

    assert run.watch.ends_in(run.now) == 100.0


def test_a_culprit_at_work_is_given_more_time() -> None:
    run = waiting_run(abort_after=60.0)
    run.go(60)
    assert names(run.events)[-1] == "abort"
    run.watch.postpone(run.now)

    assert ended(run) == [60 + CONCLUSIVE_ABORT_S]


def test_a_late_round_of_ours_delays_the_end() -> None:
    run = waiting_run(abort_after=60.0)
    run.go(20)
    run.now += HOUR
    again = run.now + ROUND_S - START

    assert ended(run) == [again + 60]


def test_a_late_round_of_ours_delays_the_end_of_what_nothing_can_end() -> None:
    run = waiting_run(verdict=LEFT)
    run.go(5)
    run.now += HOUR

    assert run.go(ROUND_S) == []


# ---------------------------------------------------------------------------------------------- a person at work


def test_nothing_is_told_while_a_person_is_at_work() -> None:
    run = waiting_run(verdict=LEFT, on_hang="abort")
    run.paused = True
    events = run.go(600)

    assert set(names(events)) == {"look"}
    assert len(events) <= 600 / PAUSE_LOOK_S + 2


def test_the_clock_starts_again_when_the_person_has_gone() -> None:
    run = waiting_run()
    run.paused = True
    run.go(60)
    run.paused = False
    last = run.events[-1][0]

    told = when(run.go(60), "notice")
    assert len(told) == 1
    assert told[0] >= last + NOTICE_S


def test_a_short_limit_is_looked_after_more_often() -> None:
    run = waiting_run(on_hang="abort", abort_after=4.0)
    run.paused = True

    assert len(run.go(40)) >= 40 / 4.0


@pytest.mark.parametrize("verdict", [LATE, LEFT])
def test_a_person_who_comes_after_the_notice_stops_the_clock(verdict: object) -> None:
    run = waiting_run(verdict=verdict, on_hang="abort", abort_after=60.0)
    run.go(80 if verdict is LATE else 20)
    assert names(run.events)[-1] == "abort"
    run.watch.pause(run.now)

    # Whoever asks every quarter of a second looks at all ranks each time.
    assert run.go(5) == []


# ---------------------------------------------------------------------------------------------- announced phases


def evaluating(expect: float, **watch: object) -> Run:
    run = waiting_run(**watch)  # type: ignore[arg-type]
    run.phases[3] = Phase("evaluate", START, expect)
    return run


def test_an_announced_phase_may_take_its_time() -> None:
    events = evaluating(60.0).go(200)

    assert when(events, "notice") == [60.0]
    assert len(when(events, "look")) <= 4


def test_an_announced_phase_is_not_ended_before_its_time() -> None:
    assert ended(evaluating(300.0, on_hang="abort", abort_after=60.0))[0] == pytest.approx(300.0, abs=ROUND_S)


def test_a_phase_without_a_limit_announces_nothing() -> None:
    assert when(evaluating(0.0).go(60), "notice") == [NOTICE_S]


def test_only_the_culprits_phase_counts() -> None:
    run = waiting_run()
    run.phases[0] = Phase("evaluate", START, 600.0)

    assert when(run.go(60), "notice") == [NOTICE_S]


# ---------------------------------------------------------------------------------------------- attempts


def test_a_new_attempt_forgets_suspicion_and_keeps_what_was_learned() -> None:
    run = waiting_run(verdict=LEFT)
    run.watch.learned["evaluate"] = 7.0
    run.go(5)
    assert run.watch.notice is not None
    run.watch.restart()
    run.wait(0, 1, 2)
    run.moved(3)

    assert run.watch.notice is None
    assert run.watch.learned == {"evaluate": 7.0}
    again = run.now - START
    assert when(run.go(5), "look")[0] == again + ROUND_S + QUIET_S  # counted from the first round of the attempt


def test_ranks_of_a_new_attempt_are_not_blamed_for_the_old() -> None:
    run = waiting_run(verdict=LEFT)
    run.go(QUIET_S + ROUND_S)  # suspected, not told
    run.watch.restart()
    run.wait(0, 1, 2)
    run.moved(3)

    assert names(run.go(ROUND_S + QUIET_S)) == ["look"]


def test_a_rank_that_ended_takes_no_part() -> None:
    run = waiting_run()
    for rank in (0, 1, 2):
        del run.pulses[rank]

    assert set(names(run.go(600))) == {"look"}


def test_a_rank_that_came_late_is_no_progress_of_the_others() -> None:
    run = waiting_run(on_hang="report")
    run.go(20)
    run.pulses[4] = Beats(run.now, False)

    assert run.go(10) == []

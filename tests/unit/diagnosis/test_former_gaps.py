"""The smallest incidents on which an earlier version of a rule named the wrong rank, or nobody where one is plain."""

from __future__ import annotations

import dataclasses

import pytest
from scenes import (
    STEP,
    STORE_GONE,
    STORE_TIMEOUT,
    TRAIN,
    T,
    aborted_in_collective,
    all_reduce,
    called_exit,
    case,
    crashed,
    destroyed,
    exited,
    lost_peer,
    raised,
    rank,
    shutting_down,
)

from safelaunch.diagnosis import diagnose
from safelaunch.model import Location

# ------------------------------------------------------------------------ what explains a victim has been lost


def test_a_victim_without_record_after_an_early_exit() -> None:
    verdict = diagnose(case(exited(rank(0), 1, T + 0.3), exited(shutting_down(rank(1)), 0, T + 0.05)))

    assert set(verdict.culprit_ranks) <= {1}


def test_an_aborted_victim_without_stack_after_an_early_exit() -> None:
    verdict = diagnose(case(exited(rank(0), -6, T + 0.3), exited(shutting_down(rank(1)), 0, T + 0.05)))

    assert set(verdict.culprit_ranks) <= {1}


def test_a_victim_without_record_after_a_lost_connection() -> None:
    verdict = diagnose(case(lost_peer(rank(0)), exited(rank(1), 1, T + 5), world_size=4))

    assert verdict.culprit_ranks == ()


def test_a_living_victim_without_record_has_not_left_in_good_order() -> None:
    # Its black box knows that an exception was the reason, even where the record could not be written.
    victim = dataclasses.replace(shutting_down(rank(1), T + 0.1), raised=True)

    verdict = diagnose(case(lost_peer(rank(0)), victim, rank(2), world_size=6))

    assert verdict.culprit_ranks == ()


def test_one_missing_record_among_ranks_that_all_raised_the_same() -> None:
    same = [raised(rank(number), "FileNotFoundError", "/data", t=T + number / 100) for number in range(4)]
    verdict = diagnose(case(*same[:3], dataclasses.replace(same[3], error=None)))

    assert verdict.culprit_ranks in ((), (0, 1, 2))


def test_a_victim_without_record_in_a_mismatch() -> None:
    verdict = diagnose(case(exited(rank(0), 1), rank(1, inside=(all_reduce(numel=10),)), rank(2), rank(3)))

    assert set(verdict.culprit_ranks) <= {1}


def test_two_against_two_stays_open_when_one_box_is_lost() -> None:
    small = [rank(number, inside=(all_reduce(numel=10),)) for number in (0, 1)]
    assert diagnose(case(lost_peer(small[0]), small[1], rank(2), rank(3))).culprit_ranks == ()

    verdict = diagnose(case(lost_peer(small[0]), small[1], rank(2), rank(3, inside=())))

    assert verdict.culprit_ranks == ()


def test_unwatched_ranks_that_all_exit_with_1() -> None:
    ranks = [exited(dataclasses.replace(rank(n, inside=()), watched=False), 1, T + n / 100) for n in range(4)]

    assert diagnose(case(*ranks)).code == "SL499"


# ------------------------------------------------------------------------------------- wrong on full evidence


def test_a_store_that_never_answers_is_a_lost_peer() -> None:
    left = exited(called_exit(rank(0, inside=()), "0"), 0)
    verdict = diagnose(case(left, lost_peer(rank(1, inside=()), t=T + 60, message=STORE_TIMEOUT)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL408", (0,))


def test_an_abort_in_user_code_explains_the_aborts_of_its_peers() -> None:
    verdict = diagnose(case(crashed(rank(0), 6, STEP), aborted_in_collective(rank(1))))

    assert (verdict.code, verdict.culprit_ranks) == ("SL406", (0,))


def test_a_rank_that_dies_inside_destroy_process_group_has_not_left() -> None:
    left = exited(shutting_down(rank(1, inside=(all_reduce(11, done=True), destroyed(12)))), 0, T)
    dying = crashed(rank(0, inside=(all_reduce(12, done=True), destroyed(13))), 6, STEP)
    gone = dataclasses.replace(lost_peer(rank(2), t=T + 0.1), fault=dying.fault)
    verdict = diagnose(case(dataclasses.replace(dying, exit=None), left, gone))

    assert (verdict.code, verdict.culprit_ranks) == ("SL408", (1,))
    assert "exited with 0" in verdict.summary


def test_a_rank_that_does_not_come_out_of_destroy_process_group_may_wait_there() -> None:
    left = exited(shutting_down(rank(1, inside=(all_reduce(11, done=True), destroyed(12)))), 0, T)
    inside = rank(0, inside=(all_reduce(12, done=True), dataclasses.replace(destroyed(13), done=False, t=T + 0.05)))
    verdict = diagnose(case(inside, left, lost_peer(rank(2), t=T + 0.1)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL408", (1,))


def test_leaving_early_in_good_manners_is_an_early_exit() -> None:
    left = exited(shutting_down(rank(1, inside=(all_reduce(11, done=True), destroyed(12)))), 0, T + 0.05)
    verdict = diagnose(case(lost_peer(rank(0), t=T + 0.1), left))

    assert (verdict.code, verdict.culprit_ranks) == ("SL408", (1,))


def test_a_rank_that_exited_with_0_has_not_failed() -> None:
    # `except ImportError: sys.exit(1)` below a caller that catches SystemExit: recorded, and survived.
    survivor = exited(raised(rank(0), "ImportError", "no tensorboard", t=T - 60, ended_after=None), 0, T - 1)
    verdict = diagnose(case(survivor, exited(rank(1), -9, T)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL403", (1,))


def test_a_caught_exit_call_is_not_how_a_rank_ended() -> None:
    survivor = dataclasses.replace(called_exit(rank(0), "2", line=Location(TRAIN, 5, "parse")), shut_down=None)
    verdict = diagnose(case(crashed(survivor, 11, STEP), rank(1)))

    assert verdict.code == "SL405"


def test_a_crash_after_exit_0_is_not_a_silent_exit() -> None:
    verdict = diagnose(case(crashed(called_exit(rank(0), "0"), 11), rank(1)))

    assert verdict.code == "SL405"


@pytest.mark.parametrize("signum", [16, 26, 27, 29, 30, 34, 64])
def test_any_signal_from_outside_is_a_kill(signum: int) -> None:
    verdict = diagnose(case(lost_peer(rank(0), message=STORE_GONE), exited(rank(1), -signum, T)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL403", (1,))

from __future__ import annotations

from safelaunch.preflight.active.probe_report import Fault, ProbeReport, RankReport, find_fault


def fault(*ranks: RankReport) -> Fault | None:
    return find_fault(ProbeReport(ranks), 20.0)


def finished(rank: int) -> RankReport:
    return RankReport(rank, entered=3, left=3)


def summary(*ranks: RankReport) -> str:
    found = fault(*ranks)
    assert found is not None
    return found.summary


def test_all_is_well() -> None:
    assert fault(finished(0), finished(1)) is None


def test_the_rank_that_others_wait_for_is_named() -> None:
    waiting = [RankReport(rank, entered=2, left=1) for rank in (0, 1, 3)]
    found = fault(*waiting[:2], RankReport(2, entered=1, left=1), waiting[2])
    assert found == Fault("rank 2 did not reach all_reduce within 20 s", ("ranks 0, 1 and 3 waited in all_reduce",))


def test_when_all_wait_no_rank_is_named() -> None:
    assert summary(*(RankReport(rank, entered=1) for rank in range(4))) == (
        "no rank could finish init_process_group within 20 s"
    )


def test_a_rank_stuck_inside_while_others_have_finished() -> None:
    assert summary(finished(0), RankReport(1, entered=3, left=2)) == "rank 1 did not finish all_gather within 20 s"


def test_a_silent_death_is_the_cause_even_if_noticed_after_its_consequence() -> None:
    victim = RankReport(0, entered=2, left=1, failed_s=1.0, error="RuntimeError: Connection closed by peer")
    dead = RankReport(1, entered=2, left=1, failed_s=1.1, exit_code=-9)
    found = fault(victim, dead)
    assert found == Fault("rank 1 died with signal 9 in all_reduce", ("rank 0 failed only after it",))


def test_among_errors_the_first_is_the_cause() -> None:
    first = RankReport(1, entered=1, failed_s=0.5, error="no such device")
    second = RankReport(0, entered=1, failed_s=0.7, error="closed")
    assert summary(second, first) == "rank 1 failed in init_process_group"


def test_values_wrong_at_everybody_were_sent_wrong() -> None:
    ranks = [RankReport(rank, 3, 3, wrong_sum=True, wrong_from=(1,)) for rank in range(3)]
    assert summary(*ranks) == "rank 1 sent wrong values"


def test_values_wrong_at_one_rank_were_received_wrong() -> None:
    assert summary(finished(0), RankReport(1, 3, 3, wrong_sum=True)) == "rank 1 received wrong values from all_reduce"
    spoiled = RankReport(1, 3, 3, wrong_from=(0,))
    assert summary(finished(0), spoiled) == "rank 1 received wrong values from all_gather"

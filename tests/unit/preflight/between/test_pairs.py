"""Which pairs are tried, and whom the results name."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.model import Finding
from safelaunch.preflight.between.facts import Facts, Limits, Pair, PairReport, Picture, Speed
from safelaunch.preflight.between.pairs import MAX_ROUNDS, Both, bad_link, bad_node, merge, next_round, standing

LIMITS = Limits()
FAST, SLOW = 1e9, 2e8

Network = Callable[[int, int], float]


def explore(ranks: Collection[int], network: Network, barred: Collection[Both] = ()) -> list[Pair]:
    """All rounds over a network that gives each pair a bandwidth, 0 for a failure."""
    tried: list[Pair] = []
    for _ in range(MAX_ROUNDS):
        chosen = next_round(ranks, tried, LIMITS, barred)
        busy = [rank for both in chosen for rank in both]
        assert len(busy) == len(set(busy)), "a node in two pairs at once"
        assert not {pair.both for pair in tried} & set(chosen), "a pair tried twice"
        assert not set(barred) & set(chosen)
        assert all(a < b for a, b in chosen)
        tried += [Pair(a, b, network(a, b), "" if network(a, b) else "timed out") for a, b in chosen]
        if not chosen:
            break
    return tried


def bad(*nodes: int, to: float = 0.0) -> Network:
    return lambda a, b: to if {a, b} & set(nodes) else FAST


def broken(a: int, b: int, to: float = 0.0) -> Network:
    return lambda x, y: to if {x, y} == {a, b} else FAST


def picture(count: int, pairs: Collection[Pair], speeds: Collection[Speed] = (), gpu: bool = False) -> Picture:
    nodes = tuple(Facts(rank, f"n{rank}", uses_gpu=gpu, gpus=("H100",) if gpu else ()) for rank in range(count))
    return Picture(count, nodes, pairs=tuple(pairs), speeds=tuple(speeds), tried_pairs=True)


def judged(count: int, network: Network) -> list[Finding]:
    seen = picture(count, explore(range(count), network))
    return [finding for judge in (bad_node, bad_link) for finding in judge(seen)]


def faults(count: int, network: Network) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity, f.where) for f in judged(count, network) if f.severity not in ("ok", "note")]


def node(rank: int) -> str:
    return f"node n{rank} (rank {rank})"


# ------------------------------------------------------------------------------------------- the schedule


def test_adjacent_nodes_first() -> None:
    assert next_round(range(6), [], LIMITS) == ((0, 1), (2, 3), (4, 5))


def test_the_one_that_is_left_over_comes_next() -> None:
    first = next_round(range(5), [], LIMITS)
    assert first == ((0, 1), (2, 3))
    ((_, last),) = next_round(range(5), [Pair(a, b, FAST) for a, b in first], LIMITS)
    assert last == 4


def test_healthy_nodes_are_done_after_one_round() -> None:
    assert len(explore(range(8), bad())) == 4


def test_of_three_nodes_all_pairs_are_tried() -> None:
    assert {pair.both for pair in explore(range(3), bad())} == {(0, 1), (0, 2), (1, 2)}


def test_both_of_a_failed_pair_get_good_partners() -> None:
    tried = [Pair(0, 1, FAST), Pair(2, 3, error="timed out")]
    assert next_round(range(4), tried, LIMITS) == ((0, 2), (1, 3))


def test_nodes_that_do_not_reach_each_other_are_not_tried() -> None:
    assert explore(range(2), bad(), barred=[(0, 1)]) == []
    assert (0, 1) not in {pair.both for pair in explore(range(4), bad(), barred=[(0, 1)])}


def test_it_ends_when_everything_fails() -> None:
    assert explore(range(4), bad(0, 1, 2, 3))
    assert next_round([], [], LIMITS) == ()
    assert next_round([7], [], LIMITS) == ()


# ------------------------------------------------------------------------------------------- the findings


@settings(deadline=None)
@given(st.integers(3, 24).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))), st.booleans())
def test_one_bad_node_is_named_wherever_it_is(case: tuple[int, int], fails: bool) -> None:
    count, culprit = case
    assert faults(count, bad(culprit, to=0.0 if fails else SLOW)) == [("SL167", "error", node(culprit))]


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 11), st.booleans())
def test_one_bad_link_that_is_tried_is_named_and_no_node(half: int, place: int, fails: bool) -> None:
    a = 2 * (place % half)
    ((code, severity, where),) = faults(2 * half, broken(a, a + 1, to=0.0 if fails else SLOW))
    assert (code, severity) == ("SL168", "error")
    assert where == f"nodes n{a} (rank {a}) and n{a + 1} (rank {a + 1})"


@settings(deadline=None)
@given(st.integers(8, 20), st.data())
def test_no_good_node_is_ever_named_alone(count: int, data: st.DataObject) -> None:
    culprits = data.draw(st.sets(st.integers(0, count - 1), max_size=count // 4))
    named = {where for code, _, where in faults(count, bad(*culprits)) if code == "SL167"}
    assert named <= {node(rank) for rank in culprits}


@settings(deadline=None)
@given(st.permutations(range(6)))
def test_names_follow_the_nodes(order: list[int]) -> None:
    """Nodes in another order: the same machine is named."""
    network = bad(order.index(4))
    assert faults(6, network) == [("SL167", "error", node(order.index(4)))]


def test_two_nodes_that_fail_cannot_be_told_apart() -> None:
    finding = judged(2, bad(0))[-1]
    assert (finding.code, finding.severity) == ("SL168", "error")
    assert finding.where == "nodes n0 (rank 0) and n1 (rank 1)"
    assert "cannot tell which of the two it is: there is no third node to try them with" in finding.because


def test_two_nodes_of_which_one_cannot_compute() -> None:
    seen = picture(2, [Pair(0, 1, error="timed out")], [Speed(0, 1e9), Speed(1, error="CUDA error")])
    assert [finding.where for finding in bad_node(seen)] == [node(1)]
    (finding,) = bad_link(seen)
    assert "by itself, node n1 (rank 1) could not compute: CUDA error" in finding.because


def test_three_nodes_of_which_all_fail() -> None:
    found = faults(3, bad(0, 1, 2))
    assert {code for code, _, _ in found} == {"SL168"}


def test_a_node_a_little_slow_is_a_warning() -> None:
    assert faults(4, bad(2, to=0.7 * FAST)) == [("SL167", "warning", node(2))]
    assert faults(4, bad(2, to=0.85 * FAST)) == []


def test_a_network_that_is_slow_as_a_whole() -> None:
    finding = judged(2, lambda *_: 2e6)[-1]
    assert (finding.code, finding.severity) == ("SL168", "warning")
    assert finding.summary == "all_reduce between the nodes runs at 2 MB/s only"


def test_a_pair_is_as_slow_as_its_slower_side_and_fails_with_either() -> None:
    def report(rank: int, bandwidth: float = FAST, error: str = "") -> PairReport:
        return PairReport(rank, 1 - rank, bandwidth, error)

    assert merge((0, 1), {0: report(0), 1: report(1, SLOW)}, str) == Pair(0, 1, SLOW)
    assert merge((0, 1), {0: report(0), 1: report(1, error="boom")}, str).error == "1: boom"
    assert merge((0, 1), {0: report(0)}, str).error == "1 gave no answer"


# ------------------------------------------------------------------------------------------- computing


@pytest.mark.parametrize(("share", "severity"), [(0.4, "error"), (0.7, "warning"), (0.9, "")])
def test_a_gpu_that_computes_slowly(share: float, severity: str) -> None:
    speeds = [Speed(0, 1e12), Speed(1, share * 1e12), Speed(2, 1e12)]
    found = [f for f in bad_node(picture(3, [Pair(0, 1, FAST)], speeds, gpu=True)) if f.severity != "ok"]
    assert [(f.severity, f.where) for f in found] == ([(severity, node(1))] if severity else [])


def test_on_the_cpu_slow_computing_is_a_warning() -> None:
    (finding,) = bad_node(picture(2, [Pair(0, 1, FAST)], [Speed(0, 1e10), Speed(1, 1e9)]))
    assert (finding.severity, finding.where) == ("warning", node(1))


def test_gpus_of_different_kinds_are_not_compared() -> None:
    nodes = (Facts(0, "n0", uses_gpu=True, gpus=("H100",)), Facts(1, "n1", uses_gpu=True, gpus=("T4",)))
    seen = Picture(2, nodes, pairs=(Pair(0, 1, FAST),), speeds=(Speed(0, 6e14), Speed(1, 5e13)), tried_pairs=True)
    assert [finding.severity for finding in bad_node(seen)] == ["ok"]


def test_what_was_left_undone_is_no_pass() -> None:
    seen = Picture(4, picture(4, []).nodes, tried_pairs=True, unfinished="the time was up after 1 rounds of pairs")
    assert [finding.severity for finding in bad_node(seen)] == ["unchecked"]


def test_the_usual_speed_is_not_that_of_the_slow_half() -> None:
    now = standing([Pair(0, 1, FAST), Pair(2, 3, SLOW)], LIMITS)
    assert now.usual == FAST
    assert now.good == {0, 1}

"""Who is slow of the ranks of all nodes, out of what these tell of their calls; and what nobody may be blamed for."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping

import pytest

from safelaunch.model.slow import DevicePace, Pace
from safelaunch.model.slow_nodes import NodePace
from safelaunch.watch.meetings import Arrival
from safelaunch.watch.slow_nodes import Compared, compare, told_calls

HOSTS = {0: "node-a", 1: "node-b", 2: "node-c"}
STEP_S = 0.1
Need = Callable[[int, int], float]  # rank, step -> seconds
Lag = Callable[[int], float]  # rank -> seconds for which the network keeps it longer than others


def steady(_rank: int, _step: int) -> float:
    return 0.05


def at_once(_rank: int) -> float:
    return 0.0


def train(
    need: Need = steady,
    *,
    nodes: int = 3,
    steps: int = 200,
    lag: Lag = at_once,
    clocks: Mapping[int, float] | None = None,
    recorded: bool = False,
) -> tuple[dict[int, NodePace], list[float]]:
    """What nodes of two ranks tell of a loop that meets once a step, and when its steps were over.

    `clocks` are how far those of nodes are off; `recorded` that no record says when a call has returned.
    """
    ranks = range(2 * nodes)
    free = dict.fromkeys(ranks, 0.0)
    calls: dict[int, list[Arrival]] = {rank: [] for rank in ranks}
    ends = []
    for step in range(1, steps + 1):
        came = {rank: free[rank] + need(rank, step) for rank in ranks}
        end = max(came.values())
        ends.append(end)
        for rank in ranks:
            free[rank] = end + 0.001 + lag(rank)
            off = (clocks or {}).get(rank // 2, 0.0)
            back = 0.0 if recorded else free[rank] + off
            calls[rank].append(
                Arrival(step, came[rank] + off, "all_reduce", "0", step, len(ranks), "train.py:9", returned=back)
            )
    return {node: pace(node, calls, ends[-1] / steps, recorded) for node in range(nodes)}, ends


def pace(node: int, calls: Mapping[int, list[Arrival]], each: float, recorded: bool) -> NodePace:
    own = {rank: calls[rank] for rank in (2 * node, 2 * node + 1)}
    kinds, ranks = told_calls(own, 1024, 1000.0)
    source = "recorder" if recorded else "calls"
    return NodePace("step", each, source, "", 1000.0, 0.0001, tuple(Pace(rank) for rank in own), kinds, ranks)


def judged(told: dict[int, NodePace], ends: list[float]) -> Compared:
    return compare(told, HOSTS, lambda t: sum(end <= t for end in ends))


def test_all_ranks_of_a_node_are_late() -> None:
    found = judged(*train(lambda rank, _: 0.15 if rank in (2, 3) else 0.05)).slow
    assert found is not None
    assert (found.ranks, found.since, found.unit) == ((2, 3), None, "step")
    assert [(node.host, node.late) for node in found.nodes] == [("node-a", ()), ("node-b", (2, 3)), ("node-c", ())]
    late = next(one for one in found.paces if one.rank == 2)
    assert late.own_s == pytest.approx(0.15, rel=0.05)
    assert late.peers_s == pytest.approx(0.05, rel=0.05)


def test_one_rank_is_late_since_some_step() -> None:
    found = judged(*train(lambda rank, step: 0.15 if rank == 5 and step >= 100 else 0.05)).slow
    assert found is not None
    assert found.ranks == (5,)
    assert found.since == pytest.approx(100, abs=1)


def test_of_two_nodes_half_of_all_ranks_may_be_late() -> None:
    found = judged(*train(lambda rank, _: 0.15 if rank in (2, 3) else 0.05, nodes=2)).slow
    assert found is not None
    assert found.ranks == (2, 3)


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_nobody_late(seed: int) -> None:
    chance = random.Random(seed)
    assert judged(*train(lambda *_: 0.02 + chance.expovariate(1 / 0.03))) == Compared()


@pytest.mark.parametrize("every", [5, 10, 50])
def test_who_saves_now_and_then_is_not_late(every: int) -> None:
    assert judged(*train(lambda rank, step: 0.5 if rank == 0 and step % every == 0 else 0.05)).slow is None


def test_a_network_that_lets_a_node_go_later_makes_none_of_its_ranks_late() -> None:
    assert judged(*train(lag=lambda rank: 0.06 if rank in (2, 3) else 0.0)).slow is None


def test_where_most_are_late_nobody_is() -> None:
    assert judged(*train(lambda rank, _: 0.05 if rank in (0, 1) else 0.15)).slow is None


@pytest.mark.parametrize("ahead", [0.04, -0.04])
def test_a_clock_that_may_be_wrong_by_so_much_makes_nobody_late(ahead: float) -> None:
    told, ends = train(clocks={1: ahead}, recorded=True)
    told[1] = dataclasses.replace(told[1], clock_error_s=abs(ahead))
    assert judged(told, ends).slow is None


def test_a_node_that_does_not_know_leaves_it_open() -> None:
    told, ends = train()
    told[2] = NodePace("step", STEP_S, "recorder", "the ranks did not answer")
    assert judged(told, ends) == Compared(unknown="node-c: the ranks did not answer")


def test_few_calls_leave_it_open() -> None:
    assert "too few" in judged(*train(lambda rank, _: 0.15 if rank == 2 else 0.05, steps=15)).unknown


def devices(late: tuple[int, ...], even: float = 0.09) -> dict[int, NodePace]:
    def of(rank: int) -> DevicePace:
        return DevicePace(rank, 0.09 if rank in late else 0.02, 0.0, 0.0, even_s=even if rank in late else 0.02)

    return {
        node: NodePace(
            "step", STEP_S, "device", paces=(Pace(2 * node), Pace(2 * node + 1)),
            devices=(of(2 * node), of(2 * node + 1)),
        )
        for node in range(3)
    }  # fmt: skip


def test_gpus_of_a_node_that_need_longer_are_late() -> None:
    found = compare(devices((2, 3)), HOSTS, lambda _: 100).slow
    assert found is not None
    assert (found.ranks, found.source, found.on_device) == ((2, 3), "device", True)
    assert [one.rank for one in found.devices] == list(range(6))


def test_a_gpu_with_work_of_its_own_now_and_then_is_not_late() -> None:
    assert compare(devices((2,), even=0.021), HOSTS, lambda _: 100).slow is None


def grouped(lasts: Callable[[frozenset[int]], float]) -> dict[int, NodePace]:
    """Three nodes of a rank each, which meet by twos in turn and then all together; all come in time."""
    calls: dict[int, list[Arrival]] = {rank: [] for rank in range(3)}
    t = 0.0
    for step in range(1, 101):
        for group, members in (("ab", (0, 1)), ("bc", (1, 2)), ("ac", (0, 2)), ("all", (0, 1, 2))):
            back = t + 0.02 + lasts(frozenset(members))
            for rank in members:
                order = len(calls[rank]) + 1
                calls[rank].append(
                    Arrival(order, t + 0.02, "all_reduce", group, step, len(members), "train.py:9", returned=back)
                )
            t = back
    each = t / 100
    told = {}
    for node in range(3):
        kinds, ranks = told_calls({node: calls[node]}, 1024, 0.0)
        told[node] = NodePace("step", each, "calls", "", 0.0, 0.0001, (Pace(node),), kinds, ranks)
    return told


def test_the_link_of_a_node_is_slow_where_collectives_without_it_are_not() -> None:
    found = compare(grouped(lambda who: 0.1 if 1 in who else 0.005), HOSTS, lambda t: int(t / 0.2) + 20)
    assert found.slow is None
    assert found.link is not None
    assert (found.link.host, found.link.without_s) == ("node-b", pytest.approx(0.005, abs=0.001))


def test_a_network_that_is_slow_for_all_is_no_link_of_anybody() -> None:
    found = compare(grouped(lambda _: 0.1), HOSTS, lambda t: int(t / 0.4) + 20)
    assert (found.slow, found.link) == (None, None)


def test_without_groups_to_compare_with_no_link_is_named() -> None:
    assert judged(*train(lag=lambda _: 0.2)).link is None


def test_of_a_large_node_some_ranks_stand_for_all() -> None:
    told, ends = train(lambda rank, _: 0.15 if rank in (2, 3) else 0.05)
    told[1] = dataclasses.replace(told[1], paces=tuple(Pace(rank) for rank in (2, 20, 21, 3)))
    found = judged(told, ends).slow
    assert found is not None
    assert found.ranks == (2, 3, 20, 21)


def test_a_time_too_short_leaves_it_open() -> None:
    told, ends = train(lambda rank, _: 0.05 if rank == 2 else 0.01, steps=60)
    assert "too few" in judged(told, ends).unknown

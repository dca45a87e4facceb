"""Who came, who can be reached, and whose clock is off."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.model import Finding
from safelaunch.preflight.between.facts import Clash, Dial, Facts, Limits, Picture, Silent
from safelaunch.preflight.between.reach import (
    ALL_OF_ALL,
    clocks,
    dial_back,
    dial_plan,
    missing,
    unreachable,
    unreachable_pairs,
)


def nodes(ranks: Collection[int]) -> tuple[Facts, ...]:
    return tuple(Facts(rank, f"n{rank}") for rank in ranks)


def dialled(count: int, blocked: Callable[[int, int], bool], ahead: Callable[[int], float] = lambda _: 0.0) -> Picture:
    """All dial as planned; `blocked(src, dst)` times out, and clocks are ahead of the true time."""
    dials = [
        Dial(src, dst, f"10.0.0.{dst}", 40000, "no answer within 3 s", errno.ETIMEDOUT)
        if blocked(src, dst)
        else Dial(src, dst, f"10.0.0.{dst}", 40000, rtt_s=0.001, offset_s=ahead(dst) - ahead(src))
        for src in range(count)
        for dst in dial_plan(range(count), src)
    ]
    return Picture(count, nodes(range(count)), dials=tuple(dials))


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def node(rank: int) -> str:
    return f"node n{rank} (rank {rank})"


@pytest.mark.parametrize("count", [2, 3, 32, 33, 100])
def test_everybody_is_dialled_and_dials_the_first(count: int) -> None:
    plans = {src: dial_plan(range(count), src) for src in range(count)}
    assert all(
        src not in plan and 0 < len(plan) <= max(31, 9, count - 1 if src == 0 else 0) for src, plan in plans.items()
    )
    assert plans[0] == tuple(range(1, count))
    assert all(0 in plans[src] for src in range(1, count))
    assert all(sum(dst in plan for plan in plans.values()) >= min(8, count - 1) for dst in range(count))


def test_all_can_be_reached() -> None:
    assert only(dial_back(dialled(4, lambda *_: False))).severity == "ok"


@given(st.integers(3, 40).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))), st.booleans())
def test_a_node_that_is_closed_is_named(case: tuple[int, int], inbound: bool) -> None:
    count, culprit = case
    picture = dialled(count, lambda src, dst: (dst if inbound else src) == culprit)
    finding = only(dial_back(picture))
    kind = "cannot be reached by any other node" if inbound else "cannot reach any other node"
    assert finding.summary == f"{node(culprit)} {kind}"
    assert (finding.severity, finding.where) == ("error", node(culprit))
    assert unreachable(picture) == {culprit}


def test_two_closed_nodes_are_both_named() -> None:
    found = list(dial_back(dialled(5, lambda _, dst: dst in (1, 3))))
    assert [finding.where for finding in found] == [node(1), node(3)]


def test_two_nodes_of_which_one_is_not_reached() -> None:
    picture = dialled(2, lambda src, _: src == 0)
    finding = only(dial_back(picture))
    assert finding.summary == f"{node(1)} cannot be reached by {node(0)}"
    assert finding.because == (
        f"from {node(0)} to 10.0.0.1:40000: no answer within 3 s (a firewall drops it)",
        "cannot tell which of the two keeps the connection from coming about",
    )
    assert unreachable(picture) == frozenset()
    assert unreachable_pairs(picture) == {(0, 1)}


def test_a_way_between_two_of_four() -> None:
    finding = only(dial_back(dialled(4, lambda src, dst: (src, dst) == (2, 1))))
    assert finding.where == "nodes n1 (rank 1) and n2 (rank 2)"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nobody_reaches_anybody(count: int) -> None:
    picture = dialled(count, lambda *_: True)
    assert only(dial_back(picture)).summary == ALL_OF_ALL
    assert len(unreachable(picture)) == count


# ---------------------------------------------------------------------------------------------- clocks


@given(st.integers(3, 40).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))), st.booleans())
def test_a_clock_that_is_off_is_named(case: tuple[int, int], fast: bool) -> None:
    count, culprit = case
    ahead = 5.0 if fast else -5.0
    picture = dialled(count, lambda *_: False, lambda rank: ahead if rank == culprit else 0.0)
    finding = only(clocks(picture))
    assert (finding.severity, finding.where) == ("warning", node(culprit))
    assert f"5.0 s {'ahead of' if fast else 'behind'}" in finding.summary


def test_of_two_clocks_it_cannot_be_told() -> None:
    finding = only(clocks(dialled(2, lambda *_: False, lambda rank: 3.0 * rank)))
    assert finding.summary == f"the clock of {node(1)} is 3.0 s ahead of that of {node(0)}"
    assert finding.because == ("cannot tell which of them is right",)


def test_a_slow_answer_is_no_wrong_clock() -> None:
    slow = Dial(0, 1, rtt_s=2.4, offset_s=1.1)
    assert only(clocks(Picture(2, nodes(range(2)), dials=(slow,)))).severity == "ok"


def test_clocks_within_the_limit() -> None:
    assert only(clocks(dialled(3, lambda *_: False, lambda rank: 0.3 * rank))).severity == "ok"


def test_a_node_that_was_not_reached_is_compared_by_its_own_call() -> None:
    picture = dialled(3, lambda _, dst: dst == 2, lambda rank: 5.0 if rank == 2 else 0.0)
    assert only(clocks(picture)).where == node(2)


# --------------------------------------------------------------------------------------------- missing


def test_all_came() -> None:
    assert only(missing(Picture(3, nodes(range(3))))).severity == "ok"


def test_one_that_never_came_and_one_that_is_silent_are_told_apart() -> None:
    picture = Picture(4, nodes((0, 3)), silent=(Silent(1, "n1", "what it is", 5.0),), waited_s=60.0)
    silent, absent = missing(picture)
    assert silent.summary == f"{node(1)} came and then did not answer"
    assert absent.summary == "node of rank 2 never came"


def test_in_a_launch_a_late_node_is_a_warning_and_a_silent_one_an_error() -> None:
    limits = Limits(missing="warning")
    picture = Picture(3, nodes((0,)), silent=(Silent(1, "n1", "what it is", 5.0),), limits=limits)
    assert [finding.severity for finding in missing(picture)] == ["error", "warning"]


def test_without_ranks_they_are_counted() -> None:
    assert only(missing(Picture(4, nodes((0, 1)), ranked=False))).summary == "2 of 4 nodes never came"


def test_two_with_one_rank() -> None:
    finding = only(missing(Picture(2, nodes((0,)), clashes=(Clash(0, ("n0", "x0")),))))
    assert finding.summary == "two nodes came as rank 0: n0 and x0"


def test_a_node_that_could_not_meet_the_others() -> None:
    assert only(missing(Picture(3, unmet="nothing listens at a:1"))).because == ("nothing listens at a:1",)
    assert only(missing(Picture(3, unlooked="torch cannot be imported"))).severity == "unchecked"

"""Who gets which rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.preflight.between.facts import Clash
from safelaunch.preflight.between.rank_assignment import Arrival, assign_ranks

HOLDER = Arrival("n0", 0)


def test_ranks_that_were_given() -> None:
    found = assign_ranks({0: HOLDER, 1: Arrival("n2", 2), 2: Arrival("n1", 1)}, 3)
    assert (found.seats, found.clashes, found.replaced) == ({0: 0, 2: 1, 1: 2}, (), 0)


def test_without_ranks_they_sit_in_the_order_in_which_they_came() -> None:
    assert assign_ranks({0: HOLDER, 1: Arrival("a"), 2: Arrival("b")}, 3).seats == {0: 0, 1: 1, 2: 2}


def test_two_with_one_rank() -> None:
    found = assign_ranks({0: HOLDER, 1: Arrival("a", 1), 2: Arrival("b", 1)}, 3)
    assert found.seats == {0: 0, 1: 1}
    assert found.clashes == (Clash(1, ("a", "b")),)


def test_who_comes_again_takes_its_place() -> None:
    arrivals = {0: HOLDER, 1: Arrival("a", 1), 2: Arrival("a", 1, replaces=(1,))}
    found = assign_ranks(arrivals, 3)
    assert (found.seats, found.clashes, found.replaced) == ({0: 0, 1: 2}, (), 1)
    again = assign_ranks({**arrivals, 3: Arrival("a", 1, replaces=(1, 2))}, 3)
    assert (again.seats, again.clashes, again.replaced) == ({0: 0, 1: 3}, (), 2)


def test_without_ranks_nobody_sits_in_the_place_of_one_that_is_gone() -> None:
    arrivals = {0: HOLDER, 1: Arrival("a"), 2: Arrival("b"), 3: Arrival("a", replaces=(1,))}
    assert assign_ranks(arrivals, 3).seats == {0: 0, 1: 2, 2: 3}


@given(st.integers(2, 8), st.integers(0, 12))
def test_no_more_ranks_than_nodes(nodes: int, come: int) -> None:
    found = assign_ranks({0: HOLDER, **{seat: Arrival(f"n{seat}") for seat in range(1, come + 1)}}, nodes)
    assert sorted(found.seats) == list(range(min(nodes, come + 1)))

"""Own time between meetings: who was let go when, and what cannot be compared."""

from __future__ import annotations

import itertools

import pytest

from safelaunch.watch.meetings import Arrival, Interval, Meetings, sums


def calls(*times: float, op: str = "all_reduce", group: str = "0", site: str = "train.py:88") -> list[Arrival]:
    return [Arrival(n, t, op, group, n, 2, site) for n, t in enumerate(times, 1)]


def only(found: list[Interval]) -> Interval:
    (interval,) = found
    return interval


def test_own_time_begins_when_the_last_one_has_come() -> None:
    interval = only(Meetings().add({0: calls(1.0, 3.0), 1: calls(2.0, 5.0)}))

    assert interval.own == {0: 1.0, 1: 3.0}
    assert interval.peers == {0: 3.0, 1: 1.0}
    assert (interval.since, interval.t, interval.seconds) == (2.0, 5.0, {0: 3.0, 1: 3.0})


def test_who_was_not_held_counts_from_its_own_call() -> None:
    # Two buckets of a backward pass: rank 0 makes both before rank 1 has come to the first.
    interval = only(Meetings().add({0: calls(1.0, 1.1), 1: calls(2.0, 2.1)}))

    assert interval.own == pytest.approx({0: 0.1, 1: 0.1})


def test_what_comes_in_pieces_is_the_same() -> None:
    meetings = Meetings()
    zero, one = calls(1.0, 3.0, 6.0), calls(2.0, 5.0, 7.0)
    first = meetings.add({0: zero[:2], 1: one[:1]})
    second = meetings.add({0: zero[:2], 1: one[:2]})
    third = meetings.add({0: zero[2:], 1: one[1:]})

    assert first == []
    assert [only(second).own, only(third).own] == [{0: 1.0, 1: 3.0}, {0: 1.0, 1: 2.0}]
    assert meetings.last(0) == 3


def test_a_gap_in_the_record_is_not_bridged() -> None:
    zero, one = calls(1.0, 3.0, 6.0), calls(2.0, 5.0, 7.0)

    assert Meetings().add({0: [zero[0], zero[2]], 1: one}) == []


def test_whom_a_root_holds_does_nothing_of_its_own() -> None:
    def own(first: float, between: float, last: float) -> list[Arrival]:
        made = calls(first, between, last)
        return [made[0], made[1]._replace(op="broadcast", root=0), made[2]]

    interval = only(Meetings().add({0: own(1.0, 4.0, 4.5), 1: own(2.0, 2.5, 4.25)}))

    assert interval.own == pytest.approx({0: 2.5, 1: 0.75})


def test_a_root_that_waits_for_the_others_does_nothing_of_its_own() -> None:
    def own(first: float, between: float, returned: float, last: float) -> list[Arrival]:
        made = calls(first, between, last)
        return [made[0], made[1]._replace(op="broadcast", returned=returned), made[2]]

    interval = only(Meetings().add({0: own(1.0, 2.5, 6.0, 6.5), 1: own(2.0, 6.0, 6.0, 6.5), 2: own(2, 2.5, 2.5, 3.0)}))

    assert interval.own == pytest.approx({0: 1.0, 1: 4.5, 2: 1.0})


def test_a_call_with_ranks_of_other_nodes_holds_a_rank_until_it_returns() -> None:
    """When all have come is not seen here, and a slow network lets ranks go one after the other."""

    def own(size: int, first: float, returned: float, last: float) -> list[Arrival]:
        made = calls(first, last)
        return [made[0]._replace(size=size, returned=returned), made[1]._replace(size=size)]

    here = only(Meetings().add({0: own(2, 1.0, 3.0, 4.0), 1: own(2, 1.0, 6.0, 7.0)}))
    assert here.own == pytest.approx({0: 3.0, 1: 6.0})
    beyond = only(Meetings().add({0: own(4, 1.0, 3.0, 4.0), 1: own(4, 1.0, 6.0, 7.0)}))
    assert beyond.own == pytest.approx({0: 1.0, 1: 1.0})
    issued = only(Meetings().add({0: own(4, 1.0, 0.0, 4.0), 1: own(4, 1.0, 0.0, 7.0)}))
    assert issued.own == pytest.approx({0: 3.0, 1: 6.0})


def test_a_broadcast_lets_nobody_go() -> None:
    def own(first: float, between: float, last: float) -> list[Arrival]:
        made = calls(first, between, last)
        return [made[0], made[1]._replace(op="broadcast"), made[2]]

    interval = only(Meetings().add({0: own(1.0, 4.0, 6.0), 1: own(2.0, 2.5, 6.5)}))
    assert interval.own == {0: 4.0, 1: 4.5}


def test_members_of_other_groups_are_not_waited_for() -> None:
    found = Meetings().add(
        {0: calls(1.0, 2.0), 1: calls(1.5, 3.0), 2: calls(1.0, 9.0, group="1"), 3: calls(1.0, 9.5, group="1")}
    )

    assert [(interval.group, set(interval.own)) for interval in found] == [("0", {0, 1}), ("1", {2, 3})]


def merged(*parts: list[Arrival]) -> list[Arrival]:
    """The calls of one rank in several groups, in order of time."""
    together = sorted(itertools.chain(*parts), key=lambda call: call.t)
    return [call._replace(order=n) for n, call in enumerate(together, 1)]


def test_ranks_are_not_compared_where_only_some_of_them_meet_in_between() -> None:
    # Each rank works for 0.1 s, ranks 0 and 1 meet, and then all three do: what rank 2 does is not theirs after that.
    met, pair = (0.0, 0.1, 0.2, 0.3), (0.0999, 0.1999, 0.2999)
    ranks = {
        rank: merged(calls(*met, group="all"), calls(*pair, group="pair") if rank < 2 else []) for rank in range(3)
    }
    meetings = Meetings()

    found = [one for n in range(1, 8) for one in meetings.add({rank: own[:n] for rank, own in ranks.items()})]

    assert [(one.group, one.seq) for one in found] == [("pair", 1), ("pair", 2), ("pair", 3)]


def test_waiting_in_a_meeting_of_some_is_nobodys_own_time() -> None:
    # A mesh of 2 x 2: rows, then columns. Rank 0 takes 1 s before each row, the others 0.2 s.
    ranks: dict[int, list[Arrival]] = {}
    for rank in range(4):
        row, column = [], []
        for step in range(4):
            begun = 1.2 * step
            row.append(begun + (1.0 if rank == 0 else 0.2))
            column.append(begun + (1.0 if rank < 2 else 0.2) + 0.2)
        ranks[rank] = merged(calls(*row, group=f"row {rank // 2}"), calls(*column, group=f"column {rank % 2}"))

    found = Meetings().add(ranks)

    for interval in found:
        late = {rank for rank, own in interval.own.items() if own > 2 * interval.peers[rank]}
        assert late == ({0} if 0 in interval.own else set()), interval
    assert {interval.group for interval in found} == {"row 0", "row 1", "column 0", "column 1"}


def test_a_group_of_one_lets_nobody_go() -> None:
    alone = calls(1.5, group="1")[0]._replace(size=1)
    zero = merged(calls(1.0, 3.0), [alone])

    assert only(Meetings().add({0: zero, 1: calls(2.0, 5.0)})).own == {0: 1.0, 1: 3.0}


@pytest.mark.parametrize(
    ("op", "unknown"), [("send", True), ("irecv", True), ("all_reduce", False), ("recv_anything", False)]
)
def test_messages_make_it_unknown(op: str, unknown: bool) -> None:
    meetings = Meetings()
    meetings.add({0: calls(1.0, 2.0), 1: calls(1.0, 2.0, op=op)})

    assert bool(meetings.unknown) == unknown


def test_different_lines_and_experts_are_not_compared() -> None:
    assert Meetings().add({0: calls(1.0, 2.0), 1: calls(1.0, 2.0, site="train.py:90")}) == []
    experts = {rank: calls(1.0, 2.0, op="all_to_all_single") for rank in (0, 1)}
    assert Meetings().add(experts) == []


def test_sums_are_of_the_same_meetings() -> None:
    found = Meetings().add({0: calls(1.0, 3.0, 6.0), 1: calls(2.0, 5.0, 7.0)})

    assert sums(found) == {0: (2.0, 5.0, 5.0), 1: (5.0, 2.0, 5.0)}

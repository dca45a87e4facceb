"""Who lives, who leads and who is lost, by times that are handed in."""

from __future__ import annotations

import pytest

from safelaunch.cluster.peers import CLOSED_S, COME_S, LOST_S, TAKEOVER_S, Peers
from safelaunch.model.nodes import Node, Nodes


def peers(me: int, count: int = 3, silent: tuple[int, ...] = ()) -> Peers:
    """The peers of one node; those that are `silent` run torchrun."""
    found = Peers()
    nodes = tuple(Node(n, f"node-{n}", f"10.0.0.{n}", 0 if n in silent else 4000, 2 * n, 2) for n in range(count))
    found.meet(Nodes(0, me, nodes, "00"), 0.0)
    found.look(0.0)
    return found


def lives(one: Peers, *nodes: int, until: float, since: float = 0.0) -> None:
    """Time passes, and these nodes are heard."""
    now = since
    while now < until:
        now = min(now + 0.5, until)
        for node in nodes:
            one.heard(node, now, 0)
        assert one.look(now) == ()


def nobody_speaks(one: Peers, since: float, until: float) -> None:
    now = since
    while now < until:
        now = min(now + 0.5, until)
        one.look(now)


def test_the_lowest_node_rank_is_the_hub() -> None:
    assert peers(0).is_hub
    assert peers(2).hub == 0
    assert peers(2, silent=(0,)).hub == 1  # torchrun is on node 0


def test_nobody_is_lost_who_has_never_come() -> None:
    hub = peers(0)
    lives(hub, 1, until=10 * LOST_S)
    assert hub.linked == (1,)
    assert hub.lost == {}


def test_a_node_that_falls_silent_is_lost_in_time() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=20.0)
    lives(hub, 2, since=20.0, until=20.0 + LOST_S)
    hub.heard(2, 20.0 + LOST_S + 0.1, 0)
    (lost,) = hub.look(20.0 + LOST_S + 0.1)
    assert (lost.node_rank, lost.closed) == (1, False)
    assert lost.silent_s == pytest.approx(LOST_S, abs=0.2)


def test_a_hub_that_is_cut_off_waits_until_it_has_lost_all_that_are_silent() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=20.0)
    lives(hub, 2, since=20.0, until=21.5)  # the last word of each comes a beat apart
    nobody_speaks(hub, since=21.5, until=20.0 + LOST_S + 0.5)
    assert list(hub.lost) == [1]
    assert not hub.settled
    nobody_speaks(hub, since=20.0 + LOST_S + 0.5, until=21.5 + LOST_S + 0.5)
    assert list(hub.lost) == [1, 2]
    assert hub.settled


def test_a_node_that_hears_neither_the_hub_nor_the_next_one_has_lost_both() -> None:
    one = peers(2)
    lives(one, 0, until=5.0)
    nobody_speaks(one, since=5.0, until=5.0 + LOST_S + 0.5)
    assert not one.settled
    assert [loss.node_rank for loss in one.dropped(5.0 + LOST_S + 0.6, 1.0)] == [0, 1]
    one.heard(1, 5.0 + LOST_S + 1.0, 0)
    assert [loss.node_rank for loss in one.dropped(5.0 + LOST_S + 1.0, 1.0)] == [0]


def test_a_connection_that_closes_without_a_goodbye_is_a_loss_soon_unless_it_comes_back() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=5.0)
    hub.closed(1, 5.0)
    lives(hub, 2, since=5.0, until=5.0 + CLOSED_S / 2)
    assert [one.node_rank for one in hub.dropped(5.0 + CLOSED_S / 2, 1.0)] == [1]
    hub.heard(1, 5.0 + CLOSED_S / 2, 0)
    lives(hub, 1, 2, since=5.0 + CLOSED_S / 2, until=20.0)
    hub.closed(1, 20.0)
    lives(hub, 2, since=20.0, until=20.0 + CLOSED_S)
    (lost,) = hub.look(20.1 + CLOSED_S)
    assert (lost.node_rank, lost.closed) == (1, True)


def test_who_has_said_goodbye_is_not_lost() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=5.0)
    hub.left(1, 5.0)
    hub.closed(1, 5.0)
    lives(hub, 2, since=5.0, until=60.0)
    assert hub.lost == {}
    assert hub.dropped(60.0, 0.0) == ()


def test_time_in_which_we_did_not_run_counts_for_nobody() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=5.0)
    assert hub.look(600.0) == ()  # a laptop that was closed
    lives(hub, 1, 2, since=600.0, until=620.0)


def test_the_next_node_takes_over_and_waits_for_those_that_it_knows() -> None:
    node = peers(1)
    node.members = (1, 2)
    lives(node, 0, until=5.0)
    node.closed(0, 5.0)
    lives(node, since=5.0, until=5.0 + CLOSED_S)
    assert [one.node_rank for one in node.look(5.1 + CLOSED_S)] == [0]
    assert node.is_hub
    assert not node.settled
    node.heard(2, 9.0, 0)
    assert node.settled
    lives(node, 2, since=9.0, until=60.0)
    assert list(node.lost) == [0]


def test_a_node_that_is_cut_off_loses_all_others_before_it_says_so() -> None:
    node = peers(1)
    node.members = (1, 2)
    lives(node, 0, until=5.0)
    now = 5.0
    while not (node.lost and node.settled):
        now += 0.5
        node.look(now)
    assert sorted(node.lost) == [0, 2]
    assert now < 5.0 + LOST_S + TAKEOVER_S + 1.5
    assert not any(one.closed for one in node.lost.values())


def test_a_hub_that_never_answers_is_mute_and_not_lost() -> None:
    node = peers(2)
    lives(node, until=COME_S)
    assert node.look(COME_S + 0.5) == ()
    assert node.hub == 1
    lives(node, 1, since=COME_S + 0.5, until=100.0)
    assert node.lost == {}


def test_a_node_that_was_given_up_and_is_heard_again_is_back() -> None:
    hub = peers(0)
    lives(hub, 1, 2, until=5.0)
    lives(hub, 2, since=5.0, until=5.0 + LOST_S - 0.5)
    hub.heard(2, 6.0 + LOST_S, 0)
    assert [one.node_rank for one in hub.look(6.0 + LOST_S)] == [1]
    hub.heard(1, 30.0, 0)
    assert hub.lost == {}


def test_the_quickest_answer_tells_the_clock() -> None:
    node = peers(1)
    node.clock(10.0, 1045.0, 10.2)  # 40 s ahead of ... a slow way there
    node.clock(12.0, 1052.001, 12.002)
    node.clock(14.0, 1060.0, 14.9)
    assert node.offset_s == pytest.approx(1040.0, abs=0.001)


def test_what_the_hub_says_of_this_node_itself_is_not_believed() -> None:
    node = peers(1)
    from safelaunch.model.nodes import LostNode

    node.told((LostNode(1, 9.0), LostNode(2, 9.0), LostNode(77, 9.0)))
    assert sorted(node.lost) == [2]


def test_nodes_of_which_more_are_known_stay_linked() -> None:
    one = peers(2, silent=(1,))
    lives(one, 0, until=1.0)
    whole = Nodes(0, 2, tuple(peers(2).nodes.values()), "00")
    assert one.join(whole)
    assert (one.hub, one.linked, one.nodes[1].port) == (0, (0,), 4000)


@pytest.mark.parametrize(("me", "silent"), [(2, (0,)), (1, (0, 2))])
def test_a_lower_node_that_comes_late_is_the_hub_and_all_meet_anew(me: int, silent: tuple[int, ...]) -> None:
    one = peers(me, silent=silent)
    assert not one.join(Nodes(0, me, tuple(peers(me).nodes.values()), "00"))
    assert one.hub == 1


def test_another_place_in_the_job_is_another_meeting() -> None:
    assert not peers(2).join(Nodes(0, 1, tuple(peers(1).nodes.values()), "00"))

"""Of the thousands of ranks and nodes of a large job a line names a few."""

from __future__ import annotations

import pytest

from safelaunch.cluster.peers import Peers
from safelaunch.diagnosis.infra import node_lost
from safelaunch.diagnosis.wording import names
from safelaunch.model.nodes import LostNode, Node, Nodes
from safelaunch.run.nodes_asked import unlinked

NODES = tuple(Node(n, f"node-{n:04}", f"10.0.{n // 256}.{n % 256}", 4000, 8 * n, 8) for n in range(1024))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), "no rank"),
        ((3,), "rank 3"),
        ((0, 1, 2, 7), "ranks 0-2 and 7"),
        (range(8192), "ranks 0-8191"),
        (range(0, 16, 2), "ranks 0, 2, 4, 6, 8, 10, 12 and 14"),
        (range(0, 18, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 1 more"),
        (range(0, 8192, 8), "ranks 0, 8, 16, 24, 32, 40, 48, 56 and 1016 more"),
        ((n for n in range(8192) if n % 8), "ranks 1-7, 9-15, 17-23, 25-31, 33-39, 41-47, 49-55, 57-63 and 7112 more"),
    ],
)
def test_ranks_are_ranges_and_a_few_of_them(ranks: range, text: str) -> None:
    assert names(ranks) == text


def test_a_verdict_on_many_lost_nodes_is_short() -> None:
    verdict = node_lost([LostNode(n, 9.0) for n in range(1, 600)], {node.node_rank: node for node in NODES}, 0)
    assert "node-0001, node-0002" in verdict.summary
    assert "and 591 more are not heard any more" in verdict.summary
    assert len(verdict.because) == 8


def test_so_is_the_line_on_nodes_that_are_not_linked() -> None:
    peers = Peers()
    peers.meet(Nodes(0, 0, NODES, "00"), 0.0)
    assert unlinked(peers).startswith("node-0001, node-0002, ")
    assert unlinked(peers).endswith(" and 1015 more")

"""The order of nodes in a round of torch's dynamic rendezvous."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from safelaunch.agent import node_order


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(dynamic_rendezvous), "sorted", sorted)


def ranked(*hosts: str) -> list[str]:
    """The hosts of a round in the order in which torch ranks them."""
    state = dynamic_rendezvous._RendezvousState()
    for pid, host in enumerate(hosts):
        state.participants[dynamic_rendezvous._NodeDesc(host, pid, 0)] = 0
    return [node.addr for node in vars(dynamic_rendezvous)["sorted"](state.participants)]


def test_nodes_are_ranked_as_the_scheduler_lists_them() -> None:
    node_order.rank_by(["gpu9", "gpu10", "gpu8"])

    assert ranked("gpu8.cluster", "gpu10.cluster", "GPU9") == ["GPU9", "gpu10.cluster", "gpu8.cluster"]


def test_addresses_are_names_as_well() -> None:
    node_order.rank_by(["10.0.0.9", "10.0.0.10"])

    assert ranked("10.0.0.10", "10.0.0.9") == ["10.0.0.9", "10.0.0.10"]


def test_a_node_that_is_not_listed_comes_last_and_without_a_list_all_is_as_torch_has_it() -> None:
    node_order.rank_by([])
    assert ranked("gpu9", "gpu10") == ["gpu10", "gpu9"]

    node_order.rank_by(["gpu9"])
    assert ranked("aaa", "gpu9") == ["gpu9", "aaa"]


def test_torch_still_ranks_nodes_by_sorting_them() -> None:
    """What `rank_by` stands on; a torch that ranks otherwise keeps its order, and this says so."""
    names = dynamic_rendezvous._DistributedRendezvousOpExecutor._mark_rendezvous_complete.__code__.co_names
    assert "sorted" in names

"""What is said of an agent that ended without a failed rank."""

from __future__ import annotations

import pytest

from safelaunch.agent.program import in_rendezvous
from safelaunch.diagnosis import infra
from safelaunch.model import AgentEnd

NUMA = "[Errno 2] No such file or directory: '/sys/bus/pci/devices/0000:10:00.0/numa_node'"


def test_what_the_rendezvous_raised_is_its_failure() -> None:
    verdict = infra.judge(AgentEnd("rendezvous", "RendezvousTimeoutError", "nobody came"))

    assert verdict.code == "SL602"
    assert "nobody came" in verdict.summary


def test_a_failure_at_the_start_of_the_ranks_is_not_the_rendezvous() -> None:
    verdict = infra.judge(AgentEnd("launch", "FileNotFoundError", NUMA))

    assert verdict.code == "SL601"
    assert verdict.summary.startswith("torch's agent could not start the ranks: FileNotFoundError")
    assert "--numa-binding" in verdict.remedy


def _rendezvous() -> None:
    raise ConnectionError


def start_processes() -> None:
    raise FileNotFoundError(NUMA)


@pytest.mark.parametrize(("call", "expected"), [(_rendezvous, True), (start_processes, False)])
def test_where_it_was_raised_decides(call, expected: bool) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OSError) as caught:  # noqa: PT011
        call()
    assert in_rendezvous(caught.value) is expected


def test_torchs_own_rendezvous_is_known_by_its_files() -> None:
    rendezvous = pytest.importorskip("torch.distributed.elastic.rendezvous")
    registry = pytest.importorskip("torch.distributed.elastic.rendezvous.registry")
    with pytest.raises(ValueError, match="no-such-backend") as caught:
        registry.get_rendezvous_handler(rendezvous.RendezvousParameters("no-such-backend", "", "1", 1, 1))
    assert in_rendezvous(caught.value)

"""Nodes, and containers, have the same pids and numbers of GPUs: what one node says of them is of its own ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenes import raised, rank

from safelaunch.diagnosis.crash import rank_devices
from safelaunch.diagnosis.crash.known import gpu, host
from safelaunch.diagnosis.logs.classify import classify
from safelaunch.diagnosis.refine.gpu_faults import _broke_work, _faults
from safelaunch.diagnosis.waitgraph.endpoints import waits
from safelaunch.evidence.offline.bundle import Recorded
from safelaunch.evidence.offline.nodes import merged, one_case, shifted
from safelaunch.model import (
    Case,
    Endpoint,
    GpuState,
    Incident,
    Kernel,
    NetworkPort,
    Process,
    RankDevice,
    RankFacts,
    StreamMark,
    StreamProgress,
    Tenant,
)
from safelaunch.model.logs import Ended, LogFacts, LogLine
from safelaunch.model.surroundings import Port

FULL = "CUDA out of memory. Process 58 has 60.00 GiB memory in use. this process has 9.00 GiB memory in use"
LOCKED = Kernel("S", "locks", "flock", "/data/x", peer=Endpoint("file lock", processes=(Process(58, "python"),)))


def of(node: str, *ranks: RankFacts) -> Case:
    return Case(Incident("exit", 0, (ranks[0].rank,), 1.0), node, 4, ranks)


def both(*ranks: RankFacts) -> Case:
    """Ranks 0 and 1 of node-a, 2 and 3 of node-b, with pids 57 and 58 on either."""
    numbered = [replace(facts, pid=57 + facts.rank % 2) for facts in ranks]
    return merged([Recorded("a", of("node-a", *numbered[:2])), Recorded("b", of("node-b", *numbered[2:]))])


@pytest.mark.parametrize(("asks", "has"), [(0, 1), (2, 3)])
def test_who_has_a_lock_is_a_rank_of_that_node(asks: int, has: int) -> None:
    ranks = [replace(rank(number), kernel=LOCKED if number == asks else None) for number in range(4)]

    (found,) = waits(both(*ranks))

    assert (found.rank, found.on) == (asks, has)


def test_a_process_of_no_rank_of_that_node_is_no_rank() -> None:
    ranks = [replace(rank(0), kernel=LOCKED), *map(rank, range(1, 4))]
    case = both(*ranks)
    case = replace(case, ranks=tuple(replace(f, pid=60) if f.rank == 1 else f for f in case.ranks))

    (found,) = waits(case)

    assert found.on is None


@pytest.mark.parametrize(("fails", "has"), [(0, 1), (2, 3)])
def test_who_holds_memory_or_a_port_is_a_rank_of_that_node(fails: int, has: int) -> None:
    failed = raised(rank(fails), "torch.OutOfMemoryError", FULL)
    case = both(*(failed if number == fails else rank(number) for number in range(4)))
    facts = next(one for one in case.ranks if one.rank == fails)

    assert f"rank {has} 60.00 GiB" in gpu.crowd(case, facts, FULL)
    assert host._holder(case, [facts], Port(80, held=True, pid=58))[0] == f"rank {has} of this job holds it"


def test_gpus_of_one_number_on_two_nodes_are_two() -> None:
    device = RankDevice(0, 2, bound=0)
    ranks = [replace(rank(number), device=replace(device, bound=number % 2)) for number in range(4)]

    assert rank_devices.sharing(both(*ranks)) == ((), "")
    assert gpu.crowd(both(*ranks), both(*ranks).ranks[0], "") == ""


@pytest.mark.parametrize(("node", "owner"), [(0, 1), (1, 3)])
def test_a_driver_s_log_is_of_its_node(node: int, owner: int) -> None:
    xid = "[1.0] NVRM: Xid (PCI:0000:3b:00): 94, pid=58, name=python, Contained memory error"
    case = both(*map(rank, range(4)))
    case = replace(case, gpus=(GpuState(0, address="0000:3b:00.0", ranks=(owner,), xids=(xid,), node=node),))

    (fault,) = _faults(case.gpus)

    assert [number for number in range(4) if _broke_work(fault, case, [number])] == [owner]


def test_a_tenant_of_a_gpu_is_no_rank_of_another_node() -> None:
    case = both(*map(rank, range(4)))
    case = replace(case, gpus=(GpuState(0, tenants=(Tenant(57), Tenant(58))),))

    assert gpu._gpu(case, case.ranks[0]) is not None
    assert gpu._gpu(case, case.ranks[2]) is None


def test_the_gpus_of_all_nodes_are_in_their_case() -> None:
    """The driver counts the seconds since its machine was booted, and each machine has booted at a time of its own."""
    cases = [
        replace(part, gpus=(GpuState(0, ranks=(2 * node,)),), ports_down=(NetworkPort("mlx5_0:1", "DOWN"),))
        for node, part in enumerate((of("node-0", rank(0), rank(1)), of("node-1", rank(2), rank(3))))
    ]
    case = one_case([cases[0], shifted(cases[1], 900.0)])

    assert [(one.ranks, one.node, one.host, one.ahead_s) for one in case.gpus] == [
        ((0,), 0, "node-0", 0.0), ((2,), 1, "node-1", 900.0),
    ]  # fmt: skip
    assert [port.host for port in case.ports_down] == ["node-0", "node-1"]


def test_what_a_gpu_has_come_to_is_told_on_the_clock_of_the_case() -> None:
    marks = StreamProgress(StreamMark("all_reduce", 1.0), StreamMark("all_reduce", 2.0))
    case = shifted(of("node-b", replace(rank(0), stream=marks)), 900.0)

    stream = case.ranks[0].stream
    assert stream is not None
    assert stream.reached is not None
    assert stream.outstanding is not None
    assert (stream.reached.t, stream.outstanding.t) == (901.0, 902.0)


def test_a_pid_in_logs_that_ranks_of_two_nodes_have_names_neither() -> None:
    def end(line: int, **more: object) -> Ended:
        return Ended(at=LogLine("job.log", line, "x"), pid=57, **more)  # type: ignore[arg-type]

    of_ranks = (end(1, by="elastic", rank=0, code=0), end(2, by="elastic", rank=2, code=0))
    killed = end(3, by="kernel", code=-11)

    assert [one.rank for one in classify(LogFacts(ended=(*of_ranks, killed))).candidates] == [None]
    assert [one.rank for one in classify(LogFacts(ended=(of_ranks[1], killed))).candidates] == [2]

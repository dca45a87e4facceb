"""What GPUs, links, ports and NCCL's own word add to the verdict on a hang or a crash, and what they never change."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hang_scenes import ASLEEP, STOPPED, call, elsewhere, hang, library, stack, waiting
from scenes import STEP, TORCH, TRAIN, T, case, lost_peer, raised, rank

from safelaunch.codes import EXIT_HANG, EXIT_INFRASTRUCTURE
from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.refine.gpu_faults import strangers
from safelaunch.model import Case, GpuState, Kernel, Location, NetworkPort, SourceLine, Tenant, Verdict
from safelaunch.model.logs import Known

GIB = 1 << 30


def gpu(index: int, **more: object) -> GpuState:
    known: dict[str, object] = {"address": f"0000:{0x10 + index:02x}:00.0", "memory_total": 80 * GIB, "links": 18}
    return GpuState(index, ranks=(index,), **{"busy_percent": 100, "links_down": 0, **known, **more})  # type: ignore[arg-type]


def logged(index: int, message: str, at: float = T + 0.5) -> dict[str, object]:
    return {"xids": (f"[{at:.3f}] NVRM: Xid (PCI:0000:{0x10 + index:02x}:00): {message}",)}


OFF_BUS = "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def with_gpus(facts: Case, *gpus: GpuState, **more: object) -> Case:
    rest = [gpu(facts.rank) for facts in facts.ranks if facts.rank not in {one.index for one in gpus}]
    return dataclasses.replace(facts, gpus=tuple(sorted((*gpus, *rest), key=lambda one: one.index)), **more)  # type: ignore[arg-type]


def late(number: int = 3, kernel: Kernel = ASLEEP) -> Case:
    """Ranks 0-3, of which one does not come."""
    return hang(*(elsewhere(n, kernel) if n == number else waiting(n, call()) for n in range(4)))


def inside(world_size: int | None = None) -> Case:
    return hang(*(waiting(n, call(size=world_size or 4)) for n in range(4)), world_size=world_size)


def told(verdict: Verdict) -> str:
    return " / ".join((verdict.summary, *verdict.because, verdict.remedy))


def test_healthy_gpus_change_nothing() -> None:
    for facts in (late(), inside(), late(kernel=STOPPED)):
        without = diagnose(facts)
        assert diagnose(with_gpus(facts)) == without


# ------------------------------------------------------------------------------------------------ hardware


@pytest.mark.parametrize("message", [OFF_BUS, "48, DBE", "94, pid=4103, Contained memory error", "119, Timeout of GSP"])
def test_a_fault_of_the_culprits_gpu_is_hardware(message: str) -> None:
    verdict = diagnose(with_gpus(late(), gpu(3, **logged(3, message))))

    assert (verdict.code, verdict.slug, verdict.culprit_ranks) == ("SL428", "gpu-fault", (3,))
    assert verdict.exit_code == EXIT_INFRASTRUCTURE
    assert verdict.summary.startswith(f"GPU 3 failed: Xid {message.partition(',')[0]}")
    assert "rank 3 sleeps in train_step (train.py:88), and 3 peers wait for it in all_reduce #12" in verdict.summary
    assert message in verdict.because[0]
    assert verdict.confidence == "high"
    assert "GPU 3" in verdict.remedy


def test_a_gpu_that_the_driver_has_lost() -> None:
    verdict = diagnose(with_gpus(late(), gpu(3, lost=True, busy_percent=None, missing="GPU is lost")))
    assert (verdict.code, verdict.culprit_ranks) == ("SL428", (3,))


def test_hardware_explains_a_collective_that_all_are_inside_of() -> None:
    verdict = diagnose(with_gpus(inside(), gpu(2, **logged(2, "74, NVLink: fatal error"))))
    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL428", (2,), "medium")
    assert verdict.pid == 4102
    both = diagnose(with_gpus(inside(), gpu(2, lost=True, **logged(2, OFF_BUS))))
    assert (both.code, both.culprit_ranks, both.confidence) == ("SL428", (2,), "high")


def test_what_all_gpus_report_blames_no_rank() -> None:
    verdict = diagnose(with_gpus(inside(), *(gpu(n, **logged(n, "119, Timeout of GSP")) for n in range(4))))
    assert (verdict.code, verdict.culprit_ranks) == ("SL428", ())
    assert verdict.summary.startswith("GPUs 0-3 failed")


def test_a_fault_long_before_the_ranks_stopped_is_not_why() -> None:
    earlier = logged(3, "74, NVLink: error", at=T - 600.0)
    for facts in (late(), inside()):
        verdict = diagnose(with_gpus(facts, gpu(3, **earlier)))
        assert (verdict.code, verdict.culprit_ranks) == (diagnose(facts).code, diagnose(facts).culprit_ranks)


@pytest.mark.parametrize("message", ["63, Row Remapper", "45, pid=77, Ch 8", "92, many correctable errors"])
def test_messages_that_end_no_work_change_nothing(message: str) -> None:
    for facts in (late(), inside()):
        assert diagnose(with_gpus(facts, gpu(3, **logged(3, message)))).code == diagnose(facts).code


def test_a_rank_that_is_stopped_is_held_up_there() -> None:
    facts = late(kernel=STOPPED)
    verdict = diagnose(with_gpus(facts, gpu(3, **logged(3, OFF_BUS))))
    assert verdict.code == diagnose(facts).code == "SL304"
    assert "fallen off the bus" in told(verdict)


def test_a_fault_elsewhere_is_told_and_blames_nobody_else() -> None:
    verdict = diagnose(with_gpus(late(), gpu(1, **logged(1, OFF_BUS))))
    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (3,))
    assert "GPU 1 of rank 1" in told(verdict)


def test_permuted_gpus_permute_the_culprit() -> None:
    for number in range(4):
        verdict = diagnose(with_gpus(inside(), gpu(number, **logged(number, OFF_BUS))))
        assert verdict.culprit_ranks == (number,)


# ------------------------------------------------------------------------------------------------- programs


def test_a_kernel_of_a_program_that_failed() -> None:
    verdict = diagnose(with_gpus(inside(), gpu(1, **logged(1, "31, pid=4101, name=python, MMU Fault"))))
    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL427", (1,), "medium")
    assert verdict.exit_code == EXIT_HANG


def test_whose_kernel_failed_on_a_shared_gpu_is_known_by_its_pid() -> None:
    shared = gpu(0, **logged(0, "13, pid=4101, Graphics Exception"))
    tenants = (Tenant(4100, 0, GIB), Tenant(4101, 1, GIB))
    facts = inside()
    known = dataclasses.replace(facts, gpus=(dataclasses.replace(shared, ranks=(0, 1), tenants=tenants), gpu(2)))
    assert diagnose(known).culprit_ranks == (1,)
    unknown = dataclasses.replace(facts, gpus=(dataclasses.replace(shared, ranks=(0, 1)), gpu(2)))
    assert (diagnose(unknown).code, diagnose(unknown).culprit_ranks) == ("SL310", ())


# ------------------------------------------------------------------------------------------ links and ports


def test_links_ports_and_idle_gpus_are_told_without_blame() -> None:
    port = NetworkPort("mlx5_2:1", "DOWN", "Polling", "InfiniBand")
    verdict = diagnose(with_gpus(inside(8), gpu(1, links_down=2), gpu(3, busy_percent=0), ports_down=(port,)))
    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())
    assert "2 of 18 NVLinks of GPU 1 of rank 1 are down" in verdict.because
    assert "mlx5_2:1 (DOWN, Polling) is down" in told(verdict)
    assert "GPU 3 (rank 3) runs no kernel" in told(verdict)


def test_a_port_does_not_matter_on_one_node() -> None:
    port = NetworkPort("mlx5_2:1", "DOWN", "Polling", "InfiniBand")
    assert "mlx5" not in told(diagnose(with_gpus(inside(), ports_down=(port,))))


def test_cards_without_bridges_have_no_link_that_is_down() -> None:
    bare = [gpu(n, links=4, links_down=4) for n in range(4)]
    assert "NVLink" not in told(diagnose(with_gpus(inside(), *bare)))


def test_what_could_not_be_read_is_no_pass() -> None:
    gpus = [gpu(n, log_unread="/dev/kmsg: Permission denied") for n in range(3)]
    verdict = diagnose(
        with_gpus(inside(), *gpus, gpu(3, missing="NVML did not answer within 0.9 s: nvmlDeviceGetName"))
    )
    assert "GPU 3 of rank 3 could not be looked at: NVML did not answer" in told(verdict)
    assert "Xid messages are not known" in told(verdict)


# ------------------------------------------------------------------------------------------ stuck in CUDA


def in_cuda(*frames: Location) -> Case:
    facts = late()
    own = stack(4103, *frames)
    ranks = tuple(dataclasses.replace(r, stack=own, stacks=(own,)) if r.rank == 3 else r for r in facts.ranks)
    return dataclasses.replace(facts, ranks=ranks)


SYNCHRONIZE = Location(f"{TORCH}/cuda/__init__.py", 985, "synchronize")


@pytest.mark.parametrize(("busy", "says"), [(100, "busy (100 %): a kernel does not end"), (0, "runs nothing (0 %)")])
def test_a_rank_that_waits_for_its_gpu(busy: int, says: str) -> None:
    verdict = diagnose(with_gpus(in_cuda(SYNCHRONIZE, STEP), gpu(3, busy_percent=busy)))
    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (3,))
    assert any("waits for GPU 3, which" in line and says in line for line in verdict.because[:2])


def test_a_gpu_that_a_collective_keeps_busy_has_no_kernel_without_an_end() -> None:
    facts = in_cuda(SYNCHRONIZE, STEP)
    call = dataclasses.replace(facts.ranks[0].collectives[-1], state="enqueued", seq=99)
    ranks = tuple(dataclasses.replace(r, recorded=(call,)) if r.rank == 3 else r for r in facts.ranks)
    assert "a kernel does not end" in told(diagnose(with_gpus(facts)))
    assert "a kernel does not end" not in told(diagnose(with_gpus(dataclasses.replace(facts, ranks=ranks))))


def test_an_item_counts_only_where_the_gpu_is_busy() -> None:
    line = SourceLine(TRAIN, STEP.line, "total += loss.item()")
    here = Location(TRAIN, STEP.line, STEP.function)
    facts = dataclasses.replace(in_cuda(here), source=(line,))
    assert "waits for GPU 3" in told(diagnose(with_gpus(facts)))
    assert "waits for GPU" not in told(diagnose(with_gpus(facts, gpu(3, busy_percent=0))))
    assert "waits for GPU" not in told(diagnose(with_gpus(in_cuda(here))))


def test_a_rank_that_sleeps_does_not_wait_for_its_gpu() -> None:
    asleep = in_cuda(library("threading.py", 1116, "join"), STEP)
    assert "waits for GPU" not in told(diagnose(with_gpus(asleep)))


# ------------------------------------------------------------------------------------------------- crashes


def on_gpus(facts: Case, gpus: Sequence[GpuState]) -> Case:
    return dataclasses.replace(facts, gpus=tuple(gpus))


def test_lost_connections_are_explained_by_a_gpu_that_failed() -> None:
    facts = case(*(lost_peer(rank(n)) for n in range(2)), world_size=2)
    assert diagnose(facts).code == "SL412"
    verdict = diagnose(on_gpus(facts, [gpu(0), gpu(1, **logged(1, OFF_BUS, at=T - 900))]))
    assert (verdict.code, verdict.culprit_ranks, verdict.exit_code) == ("SL428", (1,), EXIT_INFRASTRUCTURE)


def test_a_crash_that_has_nothing_to_do_with_gpus_stays_what_it_is() -> None:
    facts = case(rank(0), raised(rank(1), "ValueError", "bad label", at=STEP), world_size=2)
    verdict = diagnose(on_gpus(facts, [gpu(0), gpu(1, **logged(1, OFF_BUS))]))
    assert verdict.code == "SL401"
    assert verdict == diagnose(facts)


def test_an_exception_of_cuda_with_a_fault_of_its_gpu_is_hardware() -> None:
    message = "CUDA error: uncorrectable ECC error encountered"
    facts = case(rank(0), raised(rank(1), "torch.AcceleratorError", message, at=STEP), world_size=2)
    verdict = diagnose(on_gpus(facts, [gpu(0), gpu(1, **logged(1, "48, DBE"))]))
    assert (verdict.code, verdict.culprit_ranks, verdict.exit_code) == ("SL428", (1,), EXIT_INFRASTRUCTURE)
    other = diagnose(on_gpus(facts, [gpu(0, **logged(0, "48, DBE")), gpu(1)]))
    assert other.culprit_ranks == (1,)
    assert other.code != "SL428"


@pytest.mark.parametrize("message", ["CUDA_HOME is not set", "no cuDNN here", "built without NCCL"])
def test_words_that_are_no_error_of_cuda_are_no_hardware(message: str) -> None:
    facts = case(rank(0), raised(rank(1), "RuntimeError", message, at=STEP), world_size=2)
    assert diagnose(on_gpus(facts, [gpu(0), gpu(1, **logged(1, OFF_BUS))])) == diagnose(facts)


@pytest.mark.parametrize(("pid", "code"), [(4101, "SL428"), (4100, "SL401"), (77, "SL401")])
def test_a_contained_error_is_of_the_process_that_it_names(pid: int, code: str) -> None:
    facts = case(rank(0), raised(rank(1), "RuntimeError", "CUDA error: unknown error", at=STEP), world_size=2)
    line = logged(1, f"94, pid={pid}, Contained memory error")
    assert diagnose(on_gpus(facts, [gpu(0), gpu(1, **line)])).code == code


def test_clocks_drift_by_a_minute_at_most_and_what_hangs_on_it_is_no_surer() -> None:
    def at(seconds: float) -> Verdict:
        return diagnose(with_gpus(long, gpu(3, **logged(3, OFF_BUS, at=seconds))))

    days = 200 * 86400.0
    facts = less_sure(late())
    stopped = facts.now or 0.0
    quiet = max(one.quiet_s or 0.0 for one in facts.ranks)
    long = dataclasses.replace(facts, now=days)
    first = days - quiet - 60.0

    assert stopped < days
    assert [at(first + 1.0).code, at(first - 30.0).code, at(first - 600.0).code] == ["SL428", "SL428", "SL301"]
    assert (at(first + 1.0).confidence, at(first - 30.0).confidence) == ("high", "medium")


# -------------------------------------------------------------------------------------------------- memory


def test_memory_that_belongs_to_a_stranger() -> None:
    mine, other = Tenant(4101, 1, 8 * GIB), Tenant(777, None, 70 * GIB, "python serve.py")
    full = gpu(1, memory_used=78 * GIB, tenants=(mine, other))
    (line,) = strangers(with_gpus(inside(), full), [1])
    assert "70.0 GiB of it belong to pid 777" in line
    hidden = dataclasses.replace(full, tenants=(mine, dataclasses.replace(other, command="")))
    assert strangers(with_gpus(inside(), hidden), [1]) == ()  # in a container it may be a rank itself
    own = gpu(1, memory_used=78 * GIB, tenants=(Tenant(4101, 1, 78 * GIB),))
    assert strangers(with_gpus(inside(), own), [1]) == ()


def test_a_gpu_that_a_stranger_has_filled() -> None:
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    known = Known("cuda-oom", "cause", "SL420", "the memory of a GPU is full", "use less")
    broken = raised(rank(1), "torch.OutOfMemoryError", message, at=STEP)
    assert broken.error is not None
    broken = dataclasses.replace(broken, error=dataclasses.replace(broken.error, known=known))
    tenants = (Tenant(4101, 1, 8 * GIB), Tenant(777, None, 70 * GIB, "python serve.py"))
    facts = on_gpus(case(rank(0), broken, world_size=2), [gpu(0), gpu(1, memory_used=78 * GIB, tenants=tenants)])
    verdict = diagnose(facts)
    assert (verdict.code, verdict.culprit_ranks) == ("SL420", (1,))
    assert "belong to pid 777" in verdict.because[0]
    assert "end that process" in verdict.remedy


# ----------------------------------------------------------------------------------------------- NCCL's RAS

TABLE = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  {errors}

Errors
======

{wrong}
Warnings
========

{warned}"""

INCOMPLETE = TABLE.format(
    errors="INCOMPLETE",
    wrong="INCOMPLETE\n  Missing communicator data from 1 job process\n"
    "  Process 4103 on node 10.0.0.1 managing GPU 3\n\n"
    "#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from 1 rank\n  The missing rank: 3\n",
    warned="",
)
BEHIND = TABLE.format(
    errors="MISMATCH",
    wrong="",
    warned="#0-0 (78db921d1c117b4a) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    "  3 ranks have launched up to operation 64\n"
    "  Rank 3 has launched up to operation 60 -- GPU 3 managed by process 4103 on node 10.0.0.1\n",
)
HEALTHY = TABLE.format(errors="OK", wrong="", warned="")


def less_sure(facts: Case) -> Case:
    """The same case without what torch has recorded."""
    ranks = tuple(dataclasses.replace(r, recorded=None, stack=None, stacks=()) for r in facts.ranks)
    return dataclasses.replace(facts, ranks=ranks)


@pytest.mark.parametrize("report", [INCOMPLETE, BEHIND])
def test_nccl_names_the_same_rank(report: str) -> None:
    facts = less_sure(late())
    before, after = diagnose(facts), diagnose(dataclasses.replace(facts, ras=report))
    assert (before.confidence, after.confidence) == ("medium", "high")
    assert (after.code, after.culprit_ranks) == (before.code, before.culprit_ranks)
    assert any(line.startswith("NCCL's RAS reports: ") and "3" in line for line in after.because)


def test_nccl_names_another_rank_and_changes_nothing_but_is_quoted() -> None:
    facts = less_sure(late(2))
    before, after = diagnose(facts), diagnose(dataclasses.replace(facts, ras=BEHIND))
    assert (after.culprit_ranks, after.confidence) == (before.culprit_ranks, before.confidence) == ((2,), "medium")
    assert "Rank 3 has launched up to operation 60" in told(after)


def test_a_report_of_a_smaller_communicator_names_no_rank_of_the_job() -> None:
    facts = dataclasses.replace(less_sure(late()), world_size=8, ras=BEHIND)
    assert diagnose(facts).confidence == diagnose(dataclasses.replace(facts, ras="")).confidence


@pytest.mark.parametrize("report", [HEALTHY, "", "nonsense\n#0-0 (zz) MISMATCH\n Rank x", INCOMPLETE[:300]])
def test_a_report_that_names_nobody_changes_nothing(report: str) -> None:
    facts = late()
    assert diagnose(dataclasses.replace(facts, ras=report)) == diagnose(facts)

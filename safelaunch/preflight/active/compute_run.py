"""Puts the devices of the job to work, once for all checks that judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_report import ComputeReport, Device
from safelaunch.preflight.active.probe_run import run_program
from safelaunch.preflight.active.progress import IMPORTING
from safelaunch.preflight.check import unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.preflight.machine.visible import VARIABLE, visible_gpus

# Measured: 4 ranks take 0.4 s on 2 cores. A GPU takes 4 s, of which 2 are the GEMM, and some seconds more without
# persistence mode.
CPU_DEADLINE_S = 20.0
GPU_DEADLINE_S = 30.0

NO_GPU = "the job does not use GPUs"


@dataclass(frozen=True)
class Computed:
    """What the devices did; without them `unknown` says why. `import_s` is None where torch was not imported: it
    raised `import_error`, or took too long (`import_unfinished`), or was not tried."""

    devices: tuple[Device, ...] = ()
    unknown: str = ""
    import_s: float | None = None
    import_error: str = ""
    import_unfinished: str = ""
    torch_path: str = ""

    @property
    def broken(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if not device.did.done)


def deadline_s(host: Host) -> float:
    return GPU_DEADLINE_S if host.job.uses_gpu else CPU_DEADLINE_S


def computed(host: Host) -> Computed:
    """What the devices did. The first check that asks has them do it; it takes seconds."""
    return host.once("compute", lambda: _compute(host))


def computed_before(host: Host) -> Computed | None:
    """The same, if any check has asked."""
    known = host.known("compute")
    return known if isinstance(known, Computed) else None


def judge(
    host: Host, code: str, otherwise: str, judgement: Callable[[Sequence[Device]], Iterable[Finding]]
) -> Iterator[Finding]:
    """The judgement on the devices, or `otherwise` and why there is nothing to judge."""
    found = computed(host)
    if found.unknown:
        yield unchecked(code, otherwise, found.unknown)
    else:
        yield from judgement(found.devices)


def _compute(host: Host) -> Computed:
    if not host.job.uses_gpu:
        ranks = [str(rank) for rank in range(host.job.nproc)]
        return _run(host, "cpu", ranks, [(f"rank {rank}", f"rank {rank} on the CPU", "") for rank in ranks])
    gpus, unknown = _healthy_gpus(host)
    if unknown:
        return Computed(unknown=unknown)
    # Named by their UUIDs, they come in this order, and without those that are lost.
    uuids = [gpu.uuid for gpu in gpus]
    named = [(f"GPU {gpu.index}", str(gpu), gpu.name or "GPU") for gpu in gpus]
    return _run(host, "cuda", uuids, named, **{VARIABLE: ",".join(uuids)})


def _healthy_gpus(host: Host) -> tuple[list[Gpu], str]:
    """The GPUs that ranks will take and that answer, or why there are none."""
    snapshot = host.nvml()
    if not snapshot.answers:
        return [], "the driver does not answer (see SL108)"
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        return [], "MIG instances are in use, which this probe cannot name"
    gpus = [snapshot.gpus[index] for index in visible[: host.job.nproc]]
    healthy = [gpu for gpu in gpus if gpu.uuid and not gpu.failure]
    return healthy, "" if healthy else "no GPU is left to check (see SL107 and SL108)"


def _run(
    host: Host, kind: str, arguments: Sequence[str], named: Sequence[tuple[str, str, str]], **env: str
) -> Computed:
    limit = deadline_s(host)
    outcome = run_program(host, ComputeReport, "compute_probe", kind, str(limit), *arguments, deadline_s=limit, **env)
    report = outcome.report
    if report is None:
        importing = outcome.stuck_in == IMPORTING
        return Computed(
            unknown="`import torch` did not finish (see SL157)" if importing else outcome.unknown,
            import_unfinished=outcome.unknown if importing else "",
        )
    if report.error:
        return Computed(unknown="torch cannot be imported (see SL157)", import_error=report.error)
    devices = [Device(*names, did) for names, did in zip(named, report.devices, strict=True)]
    return Computed(tuple(devices), import_s=report.import_s, torch_path=report.torch_path)

"""Runs real collectives between as many processes as the job will have ranks on this node, once for all checks that
judge them."""

from __future__ import annotations

import sys
from pathlib import Path

from safelaunch.preflight.active.bandwidth_faults import Expected, expected
from safelaunch.preflight.active.compute_run import computed_before
from safelaunch.preflight.active.probe_report import ProbeReport
from safelaunch.preflight.active.probe_run import Outcome, run_program
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.visible import visible_gpus
from safelaunch.sizes import MIB

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Measured: 8 gloo ranks take 1 s on 2 cores. With NCCL, CUDA contexts and the first collective take 5 to 15 s.
GLOO_DEADLINE_S = 20.0
NCCL_DEADLINE_S = 60.0

SIZES = {"gloo": (1 * MIB, 8 * MIB), "nccl": (256 * MIB, 1024 * MIB)}


def backend(host: Host) -> str:
    return "nccl" if host.job.uses_gpu else "gloo"


def deadline_s(host: Host) -> float:
    return NCCL_DEADLINE_S if host.job.uses_gpu else GLOO_DEADLINE_S


def collectives(host: Host) -> Outcome[ProbeReport]:
    """What the ranks did; the first check that asks has them do it. A device that is known not to work would make
    them fail as well: then they are not tried, and the one fault is told once."""
    before = computed_before(host)
    if before and before.broken:
        names = ", ".join(device.name for device in before.broken)
        return Outcome(unknown=f"{names} did not even compute (see SL150)")
    if before and before.unknown:
        return Outcome(unknown=before.unknown)
    if before and len(before.devices) < host.job.nproc:
        return Outcome(unknown="not every rank has a GPU that answers (see SL107 and SL108)")
    return host.once("collectives", lambda: run_collectives(host, deadline_s(host)))


def run_collectives(host: Host, limit_s: float) -> Outcome[ProbeReport]:
    """Run them, with so many seconds for the ranks once torch is imported."""
    sizes = {*SIZES[backend(host)], *(entry.size for entry in known_bandwidths(host))} if host.job.nproc > 1 else ()
    arguments = (str(host.job.nproc), backend(host), str(limit_s), *map(str, sorted(sizes)))
    return run_program(host, ProbeReport, "collective_probe", *arguments, deadline_s=limit_s)


def known_bandwidths(host: Host) -> tuple[Expected, ...]:
    """What is known of the GPUs that the ranks will take."""
    if not host.job.uses_gpu:
        return ()
    snapshot = host.nvml()
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus]) or ()
    table = tomllib.loads(Path(__file__).with_name("bandwidth.toml").read_text(encoding="utf-8"))
    return expected(table, [snapshot.gpus[index].name for index in visible[: host.job.nproc]])

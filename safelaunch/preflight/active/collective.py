"""Check that runs real collectives between as many processes as the job will have ranks on this node."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.active.collective_run import backend, collectives, deadline_s
from safelaunch.preflight.active.probe_report import ProbeReport, find_fault
from safelaunch.preflight.active.probe_run import Outcome
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.sizes import plural


def collective(host: Host) -> Iterator[Finding]:
    """Processes on this node could not do an all_reduce and an all_gather with each other, or got wrong values.

    What every training step does failed without any of the program's code, so the reason lies in the node: its
    network interface or firewall, its GPUs or their links, the installation of torch or NCCL, or the environment
    (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, NCCL_*).

    How it is concluded: one process for each rank, NCCL with a GPU each where the job uses GPUs, else gloo. They join
    a process group, add up and gather whole numbers, and compare every value. The ranks have 20 s (gloo) or 60 s
    (NCCL) after torch was imported, and are killed then. The rank that is named is the first that died or failed; or
    the one that was behind when all others waited; or the one whose values were wrong at everybody. Where a device is
    known not to compute at all (SL150), it is not tried.

    What to do: run it again with NCCL_DEBUG=INFO or TORCH_CPP_LOG_LEVEL=INFO and the number of ranks that failed. If it
    is always the same rank of a GPU job, its GPU is suspect: leave it out with CUDA_VISIBLE_DEVICES to confirm that.
    """
    yield conclude(host, collectives(host), deadline_s(host))


def conclude(host: Host, outcome: Outcome[ProbeReport], limit_s: float) -> Finding:
    """What follows from what the ranks did in so many seconds."""
    report, job, over = outcome.report, host.job, backend(host)
    if report is None:
        return unchecked("SL111", "no collectives between the ranks were tried", outcome.unknown)
    if report.error:
        return Finding(
            code="SL111",
            severity="error",
            summary="torch cannot be imported",
            because=(report.error,),
            remedy='see what `python -c "import torch"` says in this environment',
        )
    fault = find_fault(report, limit_s)
    if fault is None:
        times = f"import torch {report.import_s:.1f} s, collectives {report.ranks_s:.1f} s"
        return ok("SL111", f"{plural(job.nproc, 'rank')} exchanged the right values over {over} ({times})")
    return Finding(
        code="SL111",
        severity="error",
        summary=fault.summary,
        because=(
            *fault.because,
            f"this was a test with {plural(job.nproc, 'rank')} over {over}, without your program",
        ),
        remedy=_remedy(over),
    )


def _remedy(over: str) -> str:
    if over == "nccl":
        return "run it again with NCCL_DEBUG=INFO; leave the rank's GPU out with CUDA_VISIBLE_DEVICES to confirm it"
    return "see which network interface gloo takes (GLOO_SOCKET_IFNAME), and the firewall for local connections"

"""Check that runs real collectives between as many processes as the job will have ranks on this node."""

from __future__ import annotations

import json
from collections.abc import Iterator

from safelaunch.codec import from_json
from safelaunch.model import Finding, Job
from safelaunch.preflight.active.probe_report import ProbeReport, find_fault
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.sizes import plural

# `import torch` takes 1 s from a local disk, and tens of seconds from a shared file system that is cold.
IMPORT_DEADLINE_S = 60.0
# Measured: 8 gloo ranks take 1 s on 2 cores. With NCCL, CUDA contexts and the first collective take 5 to 15 s.
GLOO_DEADLINE_S = 20.0
NCCL_DEADLINE_S = 60.0
# How long the probe may take beyond its own deadline to end its ranks and report.
MARGIN_S = 5.0


def collective(host: Host) -> Iterator[Finding]:
    """Processes on this node could not do an all_reduce and an all_gather with each other, or got wrong values.

    What every training step does failed without any of the program's code, so the reason lies in the node: its
    network interface or firewall, its GPUs or their links, the installation of torch or NCCL, or the environment
    (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, NCCL_*).

    How it is concluded: one process for each rank, NCCL with a GPU each where the job uses GPUs, else gloo. They join
    a process group, add up and gather whole numbers, and compare every value. The ranks have 20 s (gloo) or 60 s
    (NCCL) after torch was imported, and are killed then. The rank that is named is the first that died or failed; or
    the one that was behind when all others waited; or the one whose values were wrong at everybody.

    What to do: run it again with NCCL_DEBUG=INFO or TORCH_CPP_LOG_LEVEL=INFO and the number of ranks that failed. If it
    is always the same rank of a GPU job, its GPU is suspect: leave it out with CUDA_VISIBLE_DEVICES to confirm that.
    """
    yield probe(host, NCCL_DEADLINE_S if host.job.uses_gpu else GLOO_DEADLINE_S)


def probe(host: Host, deadline_s: float) -> Finding:
    """Run the probe, with so many seconds for its ranks once torch is imported."""
    job = host.job
    backend = "nccl" if job.uses_gpu else "gloo"
    ended = host.run_probe(
        "active/collective_probe",
        *(str(job.nproc), backend, str(deadline_s)),
        deadline_s=IMPORT_DEADLINE_S + deadline_s + MARGIN_S,
        OMP_NUM_THREADS="1",
    )
    if ended.timed_out:
        where = ended.last_line or "the start of Python"
        return unchecked(
            "SL111", "the collective probe did not finish", f"after {ended.elapsed_s:.0f} s it is in {where}"
        )
    try:
        report = from_json(ProbeReport, json.loads(ended.stdout))
    except (ValueError, TypeError, KeyError):
        return unchecked("SL111", "the collective probe failed", f"it ended with {ended.returncode}: {ended.last_line}")
    return _conclude(report, job, backend, deadline_s)


def _conclude(report: ProbeReport, job: Job, backend: str, deadline_s: float) -> Finding:
    if report.error:
        return Finding(
            code="SL111",
            severity="error",
            summary="torch cannot be imported",
            because=(report.error,),
            remedy='see what `python -c "import torch"` says in this environment',
        )
    fault = find_fault(report, deadline_s)
    if fault is None:
        times = f"import torch {report.import_s:.1f} s, collectives {report.ranks_s:.1f} s"
        return ok("SL111", f"{plural(job.nproc, 'rank')} exchanged the right values over {backend} ({times})")
    return Finding(
        code="SL111",
        severity="error",
        summary=fault.summary,
        because=(
            *fault.because,
            f"this was a test with {plural(job.nproc, 'rank')} over {backend}, without your program",
        ),
        remedy=_remedy(backend),
    )


def _remedy(backend: str) -> str:
    if backend == "nccl":
        return "run it again with NCCL_DEBUG=INFO; leave the rank's GPU out with CUDA_VISIBLE_DEVICES to confirm it"
    return "see which network interface gloo takes (GLOO_SOCKET_IFNAME), and the firewall for local connections"

"""Check that there are CPUs for the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine import cgroup
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.node.openmp import OMP, threads_by_variable
from safelaunch.sizes import plural


def cpus(host: Host) -> Iterator[Finding]:
    """The ranks have fewer CPUs than they keep busy.

    Threads that wait for one another in turn make each step many times slower, and nothing says so. With Slurm it is
    most often a missing --cpus-per-task: all ranks of the node then share one CPU.

    How it is concluded: the CPUs that this process may run on (its affinity, which the ranks inherit), and the share of
    their time that its control groups allow (cpu.max). More threads by OMP_NUM_THREADS than CPUs is a warning; where it
    is not set torchrun, and safelaunch with it, sets 1 for several ranks. Fewer CPUs than ranks that use GPUs is a
    warning: each needs one to keep its GPU fed. Ranks without GPU that outnumber CPUs are normal where things are tried
    out; above 2 a CPU there is a note, and also where one rank would start more threads than its container allows.

    What to do: ask for more CPUs (Slurm --cpus-per-task, docker --cpus, resources.limits.cpu), start fewer ranks, or
    set OMP_NUM_THREADS to CPUs / ranks.
    """
    affinity = host.cpu_count()
    try:
        quota = cgroup.cpus(host.root)
    except (OSError, ValueError) as error:
        yield unchecked("SL136", "the CPU limit of the control group could not be read", str(error))
        return
    allowed = min(float(affinity), quota[0]) if quota else float(affinity)
    because = (f"{quota[1]} allows {quota[0]:g}, and {affinity} are there",) if quota and quota[0] < affinity else ()
    has = f"{allowed:.3g} {'CPU' if allowed == 1 else 'CPUs'}"
    ranks, threads = host.job.nproc, threads_by_variable(host)
    each = max(1, int(allowed // ranks))
    if threads and threads > 1 and threads * ranks > allowed * host.threshold("cpu_oversubscription"):
        yield Finding(
            code="SL136",
            severity="warning",
            summary=f"{plural(ranks, 'rank')} of {threads} threads on {has}",
            because=(f"{OMP}={threads} is set", *because),
            remedy=f"set {OMP}={each}" + _more(host),
        )
    elif host.job.uses_gpu and allowed < ranks:
        yield Finding(
            code="SL136",
            severity="warning",
            summary=f"{plural(ranks, 'rank')} with a GPU each on {has}",
            because=(*because, "a rank that has to wait for a CPU leaves its GPU idle"),
            remedy="give the job more CPUs" + _more(host),
        )
    elif ranks > allowed * host.threshold("ranks_per_cpu"):
        yield Finding(
            code="SL136", severity="note", summary=f"{plural(ranks, 'rank')} on {has}: they take turns", because=because
        )
    elif threads is None and ranks == 1 and allowed < affinity:
        yield Finding(
            code="SL136",
            severity="note",
            summary=f"torch will start up to {affinity} threads, and the container allows {has}",
            because=because,
            remedy=f"set {OMP}={each}",
        )
    else:
        yield ok("SL136", f"{has} for {plural(ranks, 'rank')}")


def _more(host: Host) -> str:
    return ", or ask Slurm for more (--cpus-per-task)" if "SLURM_JOB_ID" in host.environ else ""

"""Check that ranks may lock memory for their network devices."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped
from safelaunch.preflight.machine import infiniband
from safelaunch.preflight.machine.host import Host
from safelaunch.sizes import size

IPC_LOCK = 14  # CAP_IPC_LOCK, capabilities(7)


def memlock(host: Host) -> Iterator[Finding]:
    """The limit of locked memory (RLIMIT_MEMLOCK) is too low for InfiniBand or RoCE.

    A network device reads and writes memory that is locked in place. Where no more may be locked NCCL fails at its
    first connection: "Call to ibv_create_cq failed", "ibv_reg_mr ... Cannot allocate memory".

    How it is concluded: the soft limit of this process, which the ranks inherit. It counts where the job uses GPUs on
    several nodes, and an InfiniBand or RoCE port is up that NCCL may use. With CAP_IPC_LOCK there is no limit. Below 16
    MiB is an error: the usual defaults are 64 KiB and 8 MiB, and the buffers of NCCL's first connections do not fit.
    Below 1 GiB is a warning. NCCL's troubleshooting guide asks for no limit; sites that set a finite limit in earnest
    set a share of the memory.

    What to do: `ulimit -l unlimited`, where the hard limit lets you; else an administrator raises it in
    /etc/security/limits.conf, by LimitMEMLOCK=infinity for a systemd service (slurmd included), or by `docker run
    --ulimit memlock=-1`. Slurm copies the limits of the shell that submits unless PropagateResourceLimitsExcept=MEMLOCK
    is set.
    """
    soft, hard = host.memlock_limit()
    least = host.threshold("memlock_wanted")
    if not host.job.uses_gpu:
        yield skipped("SL134", "the job does not use GPUs")
    elif host.job.max_nodes == 1:
        yield skipped("SL134", "the job runs on one node")
    elif not any(port.up for port in infiniband.selected(infiniband.read(host.root), host.environ)):
        yield skipped("SL134", "no InfiniBand or RoCE port is in use")
    elif soft >= least or host.capable(IPC_LOCK):
        unlimited = soft == 2**63 - 1
        yield ok("SL134", "no limit" if unlimited else f"{size(soft)}" if soft >= least else "CAP_IPC_LOCK: no limit")
    else:
        yield Finding(
            code="SL134",
            severity="error" if soft < host.threshold("memlock_least") else "warning",
            summary=f"only {size(soft)} of memory may be locked, and InfiniBand may need more",
            because=(f"RLIMIT_MEMLOCK is {size(soft)}, its hard limit {_limit(hard)}",),
            remedy="ulimit -l unlimited"
            if hard >= least
            else "have an administrator raise the hard limit: limits.conf, LimitMEMLOCK=infinity of the systemd "
            "service (slurmd too), or docker run --ulimit memlock=-1",
        )


def _limit(value: int) -> str:
    return "unlimited" if value == 2**63 - 1 else size(value)

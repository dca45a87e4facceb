"""Check that the ranks may start all their threads and processes."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch import procfs
from safelaunch.model import Finding
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine import cgroup
from safelaunch.preflight.machine.cgroup import Processes
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.node.openmp import threads_of_a_rank
from safelaunch.sizes import plural

# Measured with torch 2.13 and gloo on CPU, OMP_NUM_THREADS=1: a rank with one process group has 4 threads, one with
# three and a backward pass behind it 10.
LEAST = 4
# CUDA and NCCL start some more for each device, communicator and peer (an estimate).
BASE = 40
# Measured: a DataLoader worker is a process of 3 threads and costs its rank one more. Two loaders with 8 workers are
# assumed, as SL101 does.
LOADERS = 2 * 8 * 4

# RLIMIT_NPROC does not hold for root, nor with one of these (kernel/fork.c); numbers of capabilities(7).
SYS_ADMIN, SYS_RESOURCE = 21, 24
UNLIMITED = 2**63 - 1


def pids(host: Host) -> Iterator[Finding]:
    """A limit of processes and threads leaves no room for the ranks, their threads and their data loaders.

    At the limit a thread cannot start: "Resource temporarily unavailable", "can't start new thread", or a crash of
    OpenMP; a DataLoader dies of it hours after the start, at the first evaluation.

    How it is concluded: pids.max of our control groups, RLIMIT_NPROC of this user (all threads of the user count; root
    is exempt), kernel.threads-max and kernel.pid_max, each with what is in use. Measured on torch 2.13 with gloo, a
    rank needs 4 threads to meet its peers, 10 with three process groups and a backward pass, and 4 for each DataLoader
    worker. What cannot hold one process a rank is an error. Less than 104 and OMP_NUM_THREADS a rank (40 for CUDA and
    NCCL, an estimate, and two loaders of 8 workers) is a warning. So are more than 80 % of any limit in use
    (leptonai/gpud).

    What to do: end what uses them (`ps -eLf | wc -l`); raise the limit: docker --pids-limit, podPidsLimit of the
    kubelet, TasksMax= of a systemd unit, `ulimit -u`, sysctl kernel.pid_max and kernel.threads-max.
    """
    try:
        limits = [*_machine(host), *_user(host), *cgroup.processes(host.root)]
    except (OSError, ValueError, IndexError) as error:
        yield unchecked("SL135", "the limits of processes could not be read", str(error))
        return
    ranks = host.job.nproc
    need = (BASE + LOADERS + threads_of_a_rank(host)) * ranks
    tightest = min(limits, key=lambda limit: limit.limit - limit.used)
    left = max(0, tightest.limit - tightest.used)
    fullest = max(limits, key=lambda limit: limit.used / max(1, limit.limit))
    full = fullest.used > host.threshold("processes_used") * fullest.limit
    if left >= need and not full:
        yield ok("SL135", f"room for {left} more processes and threads, about {need} needed")
        return
    limit = tightest if left < need else fullest
    yield Finding(
        code="SL135",
        severity="error" if left < ranks else "warning",
        summary=(
            f"{left} more processes and threads are allowed, {plural(ranks, 'rank')} may need about {need}"
            if left < need
            else f"{limit.used} of {limit.limit} processes and threads are in use"
        ),
        because=(
            f"{limit.where} is {limit.limit}, and {limit.used} are in use",
            f"each rank: {LEAST} to meet its peers, more for CUDA, NCCL, OMP_NUM_THREADS and data loader workers",
        ),
        remedy=_remedy(limit),
    )


def _machine(host: Host) -> Iterator[Processes]:
    # /proc/loadavg: 0.20 0.18 0.12 RUNNING/ALL LAST_PID
    used = int(host.root.read("/proc/loadavg").split()[3].partition("/")[2])
    for name in ("threads-max", "pid_max"):
        yield Processes(int(host.root.read(f"/proc/sys/kernel/{name}")), used, f"kernel.{name}")


def _user(host: Host) -> Iterator[Processes]:
    limit = host.process_limit()
    if limit < UNLIMITED and host.uid != 0 and not host.capable(SYS_ADMIN) and not host.capable(SYS_RESOURCE):
        yield Processes(limit, sum(_threads(host)), "RLIMIT_NPROC (ulimit -u)")


def _threads(host: Host) -> Iterator[int]:
    """The threads of each process of this user."""
    for pid in host.pids():
        try:
            status = host.root.read(f"/proc/{pid}/status")
        except OSError:
            continue
        values = {line.partition(":")[0]: line.split()[1:] for line in procfs.lines(status)}
        if values.get("Uid", [""])[0] == str(host.uid):
            yield int(values["Threads"][0])


def _remedy(limit: Processes) -> str:
    if limit.where.startswith("RLIMIT"):
        return "end processes of yours (ps -u $USER -L), or raise it: ulimit -u, limits.conf"
    if limit.where.startswith("kernel."):
        return f"have an administrator look at what runs here, or raise it: sysctl {limit.where}"
    return "raise it where the container or job is made: docker --pids-limit, podPidsLimit of the kubelet, TasksMax="

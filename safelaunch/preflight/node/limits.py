"""Checks of what the machine has in store for the ranks: open files, shared memory, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch.model import Finding, Job
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine import cgroup
from safelaunch.preflight.machine.host import Host
from safelaunch.sizes import GIB, MIB, plural, size

# ------------------------------------------------------------------------------------------- open files

# Descriptors of a rank without loader and peers. Measured: 6 after `import torch` on CPU. CUDA and NCCL keep some
# ten device and event descriptors a GPU, and the program opens files too; 100 leaves room for these (an estimate).
BASE_FILES = 100
# Measured with gloo on torch 2.13: each process group costs a rank 4 descriptors and one for every peer. World
# group and two more (tensor and data parallel, or asynchronous checkpoint) are assumed.
GROUP_FILES = 4
GROUPS = 3


@dataclass(frozen=True)
class Loader:
    """A DataLoader as the estimate assumes it: PyTorch passes each tensor of a batch between processes as an open
    descriptor (the default sharing strategy, `file_descriptor`)."""

    workers: int = 8
    prefetch: int = 2  # PyTorch's default prefetch_factor
    tensors: int = 16  # in one batch
    held: int = 4  # batches that the program still holds

    @property
    def files(self) -> int:
        """Most descriptors it can cost its rank. Measured: 5 + 4 a worker + one for each tensor under way or held."""
        return 5 + 4 * self.workers + self.workers * self.prefetch * self.tensors + self.held * self.tensors


LOADERS = (Loader(), Loader())  # training and evaluation


def needed_files(job: Job) -> int:
    """The open files that one rank may need: base, process groups over all nodes, data loaders."""
    return BASE_FILES + _group_files(job, GROUPS) + sum(loader.files for loader in LOADERS)


def least_files(job: Job) -> int:
    """The open files that one rank may need to join its peers: base and one process group, no loader."""
    return BASE_FILES + _group_files(job, 1)


def _group_files(job: Job, groups: int) -> int:
    world = job.nproc * job.max_nodes
    # Rank 0 also hosts the store, with one connection from each rank.
    return groups * (world + GROUP_FILES) + world


def raise_open_files(host: Host, need: int) -> Finding | None:
    """Raise the soft limit of this process to `need`, as far as the hard limit lets it, for what it starts from now
    on. Returns a note when the limit was raised, None when it was high enough or could not be moved."""
    soft, hard = host.file_limit()
    target = min(need, hard)
    if soft >= target:
        return None
    try:
        host.set_file_limit(target)
    except (OSError, ValueError):
        return None
    return Finding(
        code="SL101",
        severity="note",
        summary=f"the soft limit of open files is raised from {soft} to {target} for this run",
    )


def open_files(host: Host) -> Iterator[Finding]:
    """The limit of open files (RLIMIT_NOFILE) is lower than what a rank may need.

    A rank that runs out of descriptors fails late and with a misleading error: "Too many open files", "received 0
    items of ancdata", or a loader worker that dies.

    How it is concluded: the need is estimated, or given as `nofile` in [limits] of a profile. The estimate is 100
    for Python, torch and CUDA; three process groups of 4 and one descriptor a peer; rank 0's store; and two
    DataLoaders with 8 workers, prefetch factor 2 and 16 tensors a batch, which cost 357 each. The formula was
    measured on torch 2.13 (pytorch issues 165532, 11201 and 973 show the failure). A soft limit below the need is
    raised for the run, which needs no privilege. A hard limit below the need is a warning, since the job may well
    need less: two ranks on CPUs train with 64.

    What to do: raise the hard limit: `ulimit -Hn` as root, `--ulimit nofile=65536` for docker, LimitNOFILE= for a
    systemd service (slurmd included). If only the loaders need many,
    `torch.multiprocessing.set_sharing_strategy("file_system")` does without descriptors.
    """
    need = host.wanted.nofile or needed_files(host.job)
    least = least_files(host.job)
    raised = raise_open_files(host, need)
    if raised:
        yield raised
    soft, hard = host.file_limit()
    if soft >= need:
        if not raised:
            yield ok("SL101", f"{soft} open files allowed, about {need} needed")
        return
    yield Finding(
        code="SL101",
        severity="warning",
        summary=f"a rank may open {soft} files and may need about {need}",
        because=(
            f"the hard limit is {hard}, and only an administrator can raise it",
            f"{plural(host.job.nproc * host.job.max_nodes, 'rank')}: up to {least} files for one process group, more "
            "for further groups and data loaders",
        ),
        remedy="raise the hard limit (docker: --ulimit nofile=65536; systemd: LimitNOFILE=)",
    )


# ---------------------------------------------------------------------------------------- shared memory


COST = "locks of multiprocessing, DataLoader workers and NCCL fail"


def shared_memory(host: Host) -> Iterator[Finding]:
    """/dev/shm, the memory that processes share, is missing or too small.

    DataLoader workers hand batches to their rank through it, and so does NCCL between GPUs that cannot reach each
    other directly. When it is full the process that touches the next page dies of SIGBUS ("Bus error"; "DataLoader
    worker is killed by signal: Bus error"), which says nothing about the cause.

    How it is concluded: free space by statvfs. Below 128 MiB a rank is a warning: NVIDIA's NCCL guide asks for
    `--shm-size=1g` on eight GPUs, and the container default is 64 MiB in all. `min_shm` in [preflight] of a profile
    sets another threshold. So is one that is read-only, or no /dev/shm at all: then not even a lock of Python's
    multiprocessing can be made, but ranks on CPUs that load their data themselves need none.

    What to do: docker run --shm-size=8g (or --ipc=host); in Kubernetes mount an emptyDir with medium: Memory at
    /dev/shm. On a full one, look for files of dead programs: ls -l /dev/shm.
    """
    try:
        found = host.root.statvfs("/dev/shm")
    except FileNotFoundError:
        yield Finding(
            code="SL104",
            severity="warning",
            summary=f"there is no /dev/shm: {COST}",
            remedy="mount a tmpfs at /dev/shm",
        )
        return
    except OSError as error:
        yield unchecked("SL104", "/dev/shm could not be looked at", str(error))
        return
    if found.f_flag & os.ST_RDONLY:
        yield Finding(
            code="SL104",
            severity="warning",
            summary=f"/dev/shm is mounted read-only: {COST}",
            remedy="mount it writable: mount -o remount,rw /dev/shm, or another tmpfs",
        )
        return
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    need = host.wanted.shm or int(host.threshold("shm_per_rank")) * host.job.nproc
    if free >= need:
        yield ok("SL104", f"{size(free)} free in /dev/shm")
        return
    yield Finding(
        code="SL104",
        severity="error" if free < host.threshold("shm_least") else "warning",
        summary=f"{size(free)} free in /dev/shm, {size(need)} wanted for {plural(host.job.nproc, 'rank')}",
        because=(f"its size is {size(total)}" + (", the default of a container" if total == 64 * MIB else ""),),
        remedy=(
            "look for files of dead programs in /dev/shm"
            if total >= need
            else f"make it larger, for example docker run --shm-size={max(1, -(-need // GIB))}g"
        ),
    )


# ----------------------------------------------------------------------------------------------- memory


def memory(host: Host) -> Iterator[Finding]:
    """The memory limit of this container or job is too low for the ranks.

    At the limit the kernel kills a process, most often a rank, without a word to it: a rank that dies of SIGKILL.

    How it is concluded: the limits of this process's control group and of those above it (version 1 or 2), and the
    machine's own memory. Less than 1 GiB a rank still available is a warning; page cache counts as available. `import
    torch` alone takes 220 MiB (measured with torch 2.13 on CPU), much of it shared where ranks are forked from one
    process, and memory may be swapped: what cannot hold a job is known by a profile only (`memory_least`).

    What to do: ask for more memory (docker --memory, Slurm --mem, Kubernetes resources.limits.memory), start fewer
    ranks, or end what uses the memory.
    """
    try:
        sources = cgroup.memory(host.root)
    except (OSError, ValueError, KeyError) as error:
        yield unchecked("SL106", "the memory limit could not be read", str(error))
        return
    ranks, per_rank = host.job.nproc, int(host.threshold("memory_per_rank"))
    lowest = min(sources, key=lambda source: source.limit)
    tightest = min(sources, key=lambda source: source.available)
    if lowest.limit < host.threshold("memory_least") * ranks:
        yield Finding(
            code="SL106",
            severity="error",
            summary=f"{size(lowest.limit)} of memory for {plural(ranks, 'rank')}, less than the profile demands",
            because=(
                f"{lowest.where} is {size(lowest.limit)}",
                f"importing torch takes about 220 MiB in each of {plural(ranks, 'rank')}",
            ),
            remedy="raise the limit, or start fewer ranks",
        )
    elif tightest.available < per_rank * ranks:
        yield Finding(
            code="SL106",
            severity="warning",
            summary=f"{size(tightest.available)} of memory available for {plural(ranks, 'rank')}",
            because=(
                f"{tightest.where} is {size(tightest.limit)}",
                f"less than {size(per_rank)} a rank: the kernel kills ranks when it runs out",
            ),
            remedy="raise the limit, start fewer ranks, or end what uses the memory",
        )
    else:
        yield ok("SL106", f"{size(tightest.available)} of memory available for {plural(ranks, 'rank')}")

"""Which processes of this node are ranks of a job, whoever started it: by their environment and the process tree.

A loader worker and every other child inherits a rank's environment, so of a line of descent only the topmost Python
process is the rank. A launcher may have such variables too (`srun torchrun`, a Kubernetes job), for itself: those of
its children say more, and count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.evidence import proc_tasks, syscalls
from safelaunch.model import WorkerProcess
from safelaunch.model.ranks import MOST_RANKS

# Rank, size, rank on this node: as each launcher gives them. What stands first says most.
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
OTHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
# What tells the worker group of one job from that of another.
OF_TORCH = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
OF_OTHERS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_FD", "PMI_PORT")
SLURM_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
PYTHON = re.compile(r"python|pypy|pt_main_thread")  # torch 2.6 on names the main thread of its compiler's users
SPAWNED = re.compile(r"multiprocessing\.(?:spawn import spawn_main|forkserver import main)")
WANTED = re.compile(
    rb"(?<![^\0])((?:[A-Z_]{0,32}(?:RANK|WORLD_SIZE)|MASTER_(?:ADDR|PORT)|(?:TORCHELASTIC|SLURM|OMPI|PMIX?)_|MPI_LOCAL"
    rb"|TORCH_(?:NCCL|FR)_)[^\0=]*|SAFELAUNCH_(?:BLACK_BOX|SLOT|RANK_DIR)|HOME|XDG_CACHE_HOME)=([^\0]*)"
)
# Of one process: it may have any environment that it likes, and there may be many. In bytes, and characters.
KEPT, COMMAND = 64 << 10, 4096
MOST_LOCAL = 4096  # ranks on a node: more than it has cores
DIGITS = 18  # of a number, with zeros ahead of it perhaps


@dataclass(frozen=True)
class Identity:
    """What a process's environment says that it is. `strength` orders who may say so: torch elastic 3, a launcher that
    gives torch's variables and a rank on the node 2, torch's variables alone 1, Slurm or MPI 0."""

    strength: int
    rank: int
    world_size: int
    local_rank: int
    job: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """One process of this node. `owner` is the user whose words its environment is, -1 where that cannot be told.
    `environ` holds the variables of interest, None where it may not be read, and then `unread` says why."""

    process: procfs.Process
    command: str = ""
    python: bool = False
    environ: Mapping[str, str] | None = None
    network: str = ""
    unread: str = ""
    owner: int = -1

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True)
class RankProcess:
    """One rank of a job, on this node."""

    identity: Identity
    seen: Seen

    @property
    def rank(self) -> int:
        return self.identity.rank

    def number(self, name: str) -> int | None:
        """A number in its environment."""
        return _number(self.seen.environ or {}, name)

    def text(self, name: str) -> str:
        """A variable of its environment."""
        return (self.seen.environ or {}).get(name, "")

    def owner(self) -> int:
        """The user whose files are the rank's: what it names, it may have led elsewhere."""
        return self.seen.owner

    def worker(self) -> WorkerProcess:
        """The rank as collectors want it. It has no folder of its own here, so nothing asks it to write there."""
        slot = self.number("SAFELAUNCH_SLOT")
        box = self.text("SAFELAUNCH_BLACK_BOX") if slot is not None else ""
        process = self.seen.process
        local = slot if slot is not None and box else self.identity.local_rank
        return WorkerProcess(self.rank, local, process.pid, process.start, "", box, owner=self.owner())


@dataclass(frozen=True)
class Group:
    """The ranks of one job on this node, by rank. `ended` are (rank, local rank) whose process is not there any more;
    `unread` are processes that may belong to it and could not be looked at."""

    ranks: tuple[RankProcess, ...]
    world_size: int
    ended: tuple[tuple[int, int], ...] = ()
    unread: tuple[Seen, ...] = ()


def look() -> list[Seen]:
    """All processes of this node that could be ranks or launchers. Those of the kernel, this process, those above and
    below it are left out: started inside a job, they carry its variables as well."""
    processes = list(procfs.scan())
    own = {os.getpid(), *_above(os.getpid(), processes)}
    own |= {child.pid for child in procfs.descendants(os.getpid(), processes)}
    return [see(one) for one in processes if one.pid not in own and 2 not in (one.pid, one.ppid)]


def identity(environ: Mapping[str, str], network: str = "") -> Identity | None:
    """What a process is by its environment, None where it is no rank. `network` is its network namespace, in which
    alone a port means the same, and perhaps whose it is: somebody else's process is no rank of a user's job."""
    rank, size = _number(environ, TORCH[0]), _number(environ, TORCH[1])
    if rank is not None and size is not None and rank < size:
        local = _number(environ, TORCH[2])
        strength = 3 if "TORCHELASTIC_RUN_ID" in environ else 1 if local is None else 2
        names: Sequence[str] = OF_TORCH if environ.get("MASTER_PORT") else (*OF_TORCH, *OF_OTHERS)
        return Identity(strength, rank, size, -1 if local is None else local, _job(environ, names, network))
    for rank_name, size_name, local_name in OTHERS:
        rank, size, local = (_number(environ, name) for name in (rank_name, size_name, local_name))
        if rank is not None and size is not None and rank < size:
            return Identity(0, rank, size, -1 if local is None else local, _job(environ, OF_OTHERS, network))
    return None


def groups(seen: Iterable[Seen]) -> list[Group]:
    """The ranks among these processes, by job: those with most ranks first."""
    seen = list(seen)
    by_pid = {one.pid: one for one in seen}
    known = {
        one.pid: found for one in seen if one.environ and (found := identity(one.environ, f"{one.owner}:{one.network}"))
    }
    above = {pid: [up for up in _line(pid, by_pid) if up in known] for pid in known}
    launchers = {up for pid, ups in above.items() for up in ups if known[up].strength < known[pid].strength}
    chosen: dict[tuple[str, ...], list[RankProcess]] = {}
    for pid, found in known.items():
        if pid in launchers or not by_pid[pid].python or by_pid[pid].process.state in "ZX":
            continue
        if any(up not in launchers and by_pid[up].python and known[up].job == found.job for up in above[pid]):
            continue
        chosen.setdefault(found.job, []).append(RankProcess(found, by_pid[pid]))
    unread = tuple(one for one in seen if one.environ is None and one.process.state not in "ZX")
    made = [_group(ranks, unread) for ranks in chosen.values()]
    return sorted(made, key=lambda group: -len(group.ranks))


def of_process(pid: int, seen: Sequence[Seen]) -> list[Group]:
    """The jobs that a process belongs to: the one that it is a rank of (or is below a rank of), else those whose ranks
    are below it. All ranks of the job on this node are in it, also where another launcher started them."""
    by_pid = {one.pid: one for one in seen}
    everything = groups(seen)
    line = {pid, *_line(pid, by_pid)}
    inside = [group for group in everything if any(one.seen.pid in line for one in group.ranks)]
    if inside:
        return inside
    return [group for group in everything if any(pid in _line(one.seen.pid, by_pid) for one in group.ranks)]


def spawned(pid: int, seen: Sequence[Seen]) -> list[Seen]:
    """The processes at or below `pid` that Python's multiprocessing started (`torch.multiprocessing.spawn`)."""
    by_pid = {one.pid: one for one in seen}
    return [one for one in seen if SPAWNED.search(one.command) and (one.pid == pid or pid in _line(one.pid, by_pid))]


def of_job(job: str, seen: Sequence[Seen]) -> list[Group]:
    """The jobs of torch or MPI that run on this node in a Slurm job: `4711`, or `4711_3` of an array."""
    return groups(one for one in seen if one.environ is not None and in_job(job, one.environ))


def in_job(job: str, environ: Mapping[str, str]) -> bool:
    """Whether a process runs in a Slurm job."""
    array = f"{environ.get('SLURM_ARRAY_JOB_ID', '')}_{environ.get('SLURM_ARRAY_TASK_ID', '')}"
    return job == array or any(environ.get(name) == job for name in SLURM_JOB)


def _group(ranks: list[RankProcess], unread: tuple[Seen, ...]) -> Group:
    ranks = sorted(ranks, key=lambda one: (one.rank, one.seen.pid))
    size = max(one.identity.world_size for one in ranks)
    launchers = {one.seen.process.ppid for one in ranks}
    local = {(one.number("GROUP_RANK"), one.identity.local_rank) for one in ranks}
    ended: dict[int, int] = {}
    for one in ranks:
        # Only torch elastic promises that ranks of a node are numbered without a gap, all below one agent.
        group, count = one.number("GROUP_RANK"), one.number("LOCAL_WORLD_SIZE")
        if count is None or count > MOST_LOCAL or group is None:
            continue
        if one.identity.strength == 3 and len(launchers) == 1:
            first = one.rank - one.identity.local_rank
            ended.update({first + index: index for index in range(count) if (group, index) not in local})
    below = tuple(one for one in unread if one.process.ppid in launchers)
    return Group(tuple(ranks), size, () if below else tuple(sorted(ended.items())), below)


def _job(environ: Mapping[str, str], names: Iterable[str], network: str) -> tuple[str, ...]:
    return (network, *(f"{name}={environ[name]}" for name in names if name in environ))


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    number = int(value) if value.isascii() and value.isdecimal() and len(value) <= DIGITS else MOST_RANKS + 1
    return number if number <= MOST_RANKS else None


def _line(pid: int, by_pid: Mapping[int, Seen]) -> list[int]:
    """The pids above a process, its parent first."""
    found: list[int] = []
    while pid in by_pid and (pid := by_pid[pid].process.ppid) not in found and pid:
        found.append(pid)
    return found


def _above(pid: int, processes: Iterable[procfs.Process]) -> list[int]:
    return _line(pid, {one.pid: Seen(one) for one in processes})


def see(process: procfs.Process) -> Seen:
    """What can be told of a process."""
    pid = process.pid
    name = proc_tasks.text(pid, "comm")
    if process.state in "ZX":
        return Seen(process, name, unread="it has ended")
    if not _memory_is_free(pid):
        # Its environment is its own memory, and the kernel holds the lock of that.
        return Seen(process, name, unread="the kernel holds its memory")
    owner = procfs.owner(pid)
    try:
        environ = _wanted(procfs.environ(pid))
    except PermissionError:
        return Seen(process, name, unread="it belongs to another user")
    except OSError:
        return Seen(process, name, unread="it has ended")
    if not environ:
        return Seen(process, name, environ=environ)
    if owner != procfs.owner(pid):
        owner = -1  # it has become another program since, whose words the environment is not
    command = proc_tasks.text(pid, "cmdline")[:COMMAND].replace("\0", " ").strip()
    python = bool(PYTHON.search(name) or PYTHON.search(os.path.basename(_link(pid, "exe"))))
    return Seen(process, command or name, python, environ, _link(pid, "ns/net"), owner=owner)


def _wanted(environ: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    room = KEPT
    for entry in WANTED.finditer(environ):
        room -= len(entry[0])
        if room < 0:
            break
        name, value = (word.decode("utf-8", "replace") for word in entry.groups())
        found.setdefault(name, value)  # as getenv takes the first of two
    return found


def _memory_is_free(pid: int) -> bool:
    """Whether no thread can hold the lock of the address space while it sleeps in the kernel."""
    held = [tid for tid in proc_tasks.threads(pid) if proc_tasks.state(pid, tid) == "D"]
    calls = [proc_tasks.text(pid, f"task/{tid}/syscall").split(" ", 1)[0] for tid in held]
    return all(call.isdecimal() and syscalls.name(int(call)) in syscalls.LEAVE_MEMORY for call in calls)


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""

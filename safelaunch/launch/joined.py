"""Ranks that nobody has announced: what they say of themselves in a folder, and the jobs that they make up.

A rank takes a slot with a file `slot.N` (`worker.joining`), a JSON document a line: who it is, and later that it has
come into its group, or has left it. Ranks are of one job where they meet at the same place, and are as many. One place
may serve several jobs, one after the other: a rank that is there already begins the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safelaunch import black_box, procfs, regular
from safelaunch.codec import ShapeError, checked
from safelaunch.launch.exits import Watched
from safelaunch.model import Exit, WorkerGroup, WorkerProcess

MOST = 1 << 16  # bytes of one file
MOST_PID = 1 << 22  # proc(5), pid_max
OVER_S = 30.0  # a job of which ranks may be elsewhere, and whose own have ended, takes no more after so long


@dataclass(frozen=True)
class Said:
    """What a rank has said of itself: `in_group` where by `init_process_group`, and not by its environment alone;
    `again` where it comes from another job; `loopback` where they meet at an address that leads to this host alone."""

    pid: int
    ppid: int
    start: int
    t: float
    rank: int
    world_size: int
    meeting: tuple[str, ...]
    in_group: bool
    again: bool = False
    loopback: bool = False


@dataclass
class Member:
    """One rank of a job.

    `left` is CLOCK_MONOTONIC at which it has destroyed its group (0: it has not), `inferred` says that nobody could say
    how it ended, `moved_on` that its process has joined another job since, and `supposed` that it has not joined, and
    is taken for this rank (see `Joined.suppose`).
    """

    slot: int
    said: Said
    process: Watched
    rank_dir: str
    exit: Exit | None = None
    left: float = 0.0
    inferred: bool = False
    moved_on: bool = False
    supposed: bool = False
    read: int = 0

    def worker(self, path: str) -> WorkerProcess:
        """As collectors want it; its slot stands for the local rank."""
        said = self.said
        since = said.t if said.again else 0.0
        return WorkerProcess(said.rank, self.slot, said.pid, said.start, self.rank_dir, path, self.exit, since=since)


@dataclass
class Job:
    """The ranks of one job on this node, by rank. It is `watched` once one of them has come into its group."""

    number: int
    meeting: tuple[str, ...]
    world_size: int
    members: dict[int, Member] = field(default_factory=dict)

    @property
    def watched(self) -> bool:
        return any(member.said.in_group for member in self.members.values())

    @property
    def is_local(self) -> bool:
        """Whether all of its ranks must be on this host."""
        return any(member.said.loopback for member in self.members.values())

    @property
    def over(self) -> bool:
        """Whether no rank of it is there any more, as far as this node has any."""
        return all(member.exit is not None or member.moved_on for member in self.members.values())

    @property
    def left(self) -> bool:
        """Whether all have destroyed their group, or ended."""
        return all(bool(member.left) or member.exit is not None for member in self.members.values())

    @property
    def where(self) -> str:
        """Its name for people."""
        kind, *rest = self.meeting
        place = f"port {rest[1]}" if kind == "tcp" and len(rest) > 1 else " ".join(rest[:1]) or kind
        return f"{self.world_size} ranks at {place}"

    def group(self, path: str) -> WorkerGroup:
        """Its ranks as a worker group; path is that of the black box."""
        workers = tuple(self.members[rank].worker(path) for rank in sorted(self.members))
        return WorkerGroup(0, self.world_size, len(workers), workers, joined=True)


class Joined:
    """The ranks that have joined by one folder.

    Args:
        folder: in which they say who they are; `black_box` lies there.
        how: tells how a rank has ended whose parent alone was told; None where that leaves no trace.
    """

    def __init__(self, folder: str, how: Callable[[WorkerProcess], int | None]) -> None:
        self.jobs: list[Job] = []
        self.black_box = os.path.join(folder, "black_box")
        self._folder = folder
        self._how = how
        self._known: dict[int, tuple[Member, Job]] = {}  # by slot
        self._others: set[str] = set()  # claims that mean nothing here

    @property
    def alive(self) -> list[Member]:
        """Those that have not ended."""
        return [member for member, _ in self._known.values() if member.exit is None]

    def poll(self) -> None:
        """Read what is new, and see who has ended."""
        for member, _ in list(self._known.values()):
            self._follow(member)
        fresh: list[Member] = []
        for name in os.listdir(self._folder):
            slot = name.partition("slot.")[2]
            if name in self._others or not slot.isdecimal() or int(slot) >= black_box.MEMBERS:
                continue
            if int(slot) not in self._known:
                fresh += filter(None, [self._new(int(slot))])
        for member in sorted(fresh, key=lambda member: member.said.t):
            self._take_in(member)

    def suppose(self) -> None:
        """Take processes for the ranks of which nothing is known, and which must be here: where as many of those that
        import torch were started beside the ranks, by the same process, and have not joined. They are numbered as they
        were started. What they have not called, they have not called as any rank."""
        for job in self.jobs:
            # What a rank says of itself may be anything, and of more than these none can be watched.
            if job.is_local and job.watched and not job.left and job.world_size <= black_box.MEMBERS:
                self._suppose_ranks(job)

    def _suppose_ranks(self, job: Job) -> None:
        wanted = [rank for rank in range(job.world_size) if rank not in job.members or job.members[rank].supposed]
        supposed = {rank: job.members[rank].said.pid for rank in wanted if rank in job.members}
        beside = self._beside(job) if wanted else []
        if [one.pid for one in beside] == list(supposed.values()):
            return
        for rank in supposed:
            self._drop(job.members.pop(rank))
        if len(beside) == len(wanted):
            for rank, process in zip(wanted, beside, strict=True):
                self._suppose(job, rank, process)

    def _beside(self, job: Job) -> list[procfs.Process]:
        parents = {member.said.ppid for member in job.members.values() if not member.supposed}
        ranks = {member.said.pid for member, _ in self._known.values() if not member.supposed}
        found = []
        for name in os.listdir(self._folder):
            pid = name.partition("torch.")[2]
            process = procfs.read(int(pid)) if pid.isdecimal() else None
            if pid.isdecimal() and process is None:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))
            if process is not None and process.state not in "ZX" and process.ppid in parents - ranks:
                found += [process] if process.pid not in ranks else []
        return sorted(found, key=lambda process: (process.start, process.pid))

    def _suppose(self, job: Job, rank: int, process: procfs.Process) -> None:
        said = Said(
            process.pid, process.ppid, process.start, time.monotonic(), rank, job.world_size, job.meeting, False
        )
        for slot in reversed(range(black_box.MEMBERS)):  # ranks take the first ones
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self._claim(slot), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.close(descriptor)
                break
        else:
            return
        black_box.stand_for(self.black_box, slot, process.pid)
        member = Member(slot, said, Watched(process.pid), "", supposed=True)
        job.members[rank] = member
        self._known[slot] = member, job

    def _drop(self, member: Member) -> None:
        self._known.pop(member.slot, None)
        member.process.close()
        with contextlib.suppress(OSError):
            os.unlink(self._claim(member.slot))

    @property
    def room(self) -> int:
        """How many slots nobody has."""
        return black_box.MEMBERS - len(self._known)

    def forget(self, job: Job) -> None:
        """Give its slots to others, once it is over and has been told of."""
        for member in [member for member, own in self._known.values() if own is job]:
            if member.rank_dir and member.exit is not None:
                shutil.rmtree(member.rank_dir, ignore_errors=True)
            self._drop(member)

    def _claim(self, slot: int) -> str:
        return os.path.join(self._folder, f"slot.{slot}")

    def _new(self, slot: int) -> Member | None:
        try:
            said = _said(self._lines(slot, 0)[0][0])
        except (ShapeError, IndexError, OSError):
            self._others.add(f"slot.{slot}")
            return None
        watched = Watched(said.pid)
        process = procfs.read(said.pid)
        member = Member(slot, said, watched, os.path.join(self._folder, f"rank.{said.pid}.{said.start}"))
        if process is None or process.start != said.start:
            # It has ended already, or its pids are not ours: what it has left tells which.
            watched.close()
            if not os.path.isdir(member.rank_dir):
                self._others.add(f"slot.{slot}")
                return None
        self._follow(member)
        return member

    def _lines(self, slot: int, after: int) -> tuple[list[Any], int]:
        """The documents behind an offset, and where they end; a last line that is half written is left for later."""
        text = (regular.text(self._claim(slot), MOST) or "")[after:]
        whole = text[: text.rfind("\n") + 1]
        found = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return found, after + len(whole)

    def _follow(self, member: Member) -> None:
        """What a rank has said since, and whether it has ended."""
        with contextlib.suppress(OSError):
            found, member.read = self._lines(member.slot, member.read)
            for document in found:
                if isinstance(document, dict) and "left" in document:
                    member.left = time.monotonic()
                    continue
                with contextlib.suppress(ShapeError):
                    said = _said(document)
                    if (said.pid, said.start) == (member.said.pid, member.said.start):
                        member.said = said
        if member.exit is None and member.process.ended():
            code = member.process.status()
            if code is None:
                code = self._how(member.worker(self.black_box))
            member.inferred = code is None
            # Whatever leaves a trace of itself has left none: of signals, those that nobody can catch.
            member.exit = Exit(-9 if code is None else code, time.monotonic())

    def _take_in(self, member: Member) -> None:
        for other, job in list(self._known.values()):
            if other.said.pid == member.said.pid and other.said.start == member.said.start:
                other.left, other.moved_on = other.left or time.monotonic(), True
                if not other.said.in_group:
                    job.members.pop(other.said.rank, None)
                if other.supposed:
                    self._drop(other)
        job = self._job_of(member)
        known = job.members.get(member.said.rank)
        if known is not None and known.supposed:
            self._drop(known)
        elif known is not None:
            self._known.pop(known.slot)  # it only had the variables of a rank, and has started this one
            self._others.add(f"slot.{known.slot}")
        job.members[member.said.rank] = member
        self._known[member.slot] = member, job

    def _job_of(self, member: Member) -> Job:
        said = member.said
        for job in reversed(self.jobs):
            if (job.meeting, job.world_size) != (said.meeting, said.world_size):
                continue
            known = job.members.get(said.rank)
            free = known is None or (known.exit is None and not known.said.in_group and said.in_group)
            if free and not self._is_full(job):
                return job
            break
        self.jobs.append(Job(len(self.jobs), said.meeting, said.world_size))
        return self.jobs[-1]

    @staticmethod
    def _is_full(job: Job) -> bool:
        """Whether a job that is over takes no more ranks."""
        if not job.members:
            return False
        last = max(member.exit.t if member.exit is not None else member.left for member in job.members.values())
        complete = len(job.members) == job.world_size or time.monotonic() - last > OVER_S
        return (job.over or job.left) and complete


def _said(document: Any) -> Said:
    """What a rank has written of itself.

    Raises:
        ShapeError: no rank can be so.
    """
    said = checked(Said, document)
    if not (0 < said.pid <= MOST_PID and said.rank >= 0 and said.world_size > 0 and said.meeting):
        raise ShapeError("no rank is so")
    return said


def prepare(folder: str) -> None:
    """Make a folder ready for ranks: its black box, and who watches.

    Raises:
        OSError: there is no room.
    """
    black_box.create(os.path.join(folder, "black_box"), black_box.MEMBERS)
    sign(folder)


def sign(folder: str) -> None:
    """Say that this process watches."""
    partial = os.path.join(folder, "watcher.part")
    with open(partial, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.replace(partial, os.path.join(folder, "watcher"))

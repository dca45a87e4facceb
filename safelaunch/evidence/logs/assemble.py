"""From the contents of single files to the facts of a job: who is which rank, and what was said twice."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from safelaunch.evidence.logs import contents, own_words, survival
from safelaunch.evidence.logs.contents import SPAWNED, Contents, Origin
from safelaunch.evidence.logs.messages import NCCL_PROCESS
from safelaunch.evidence.logs.prefixes import seconds
from safelaunch.model import Location
from safelaunch.model.logs import (
    DIGITS,
    Brought,
    Complaint,
    Desync,
    Ended,
    Event,
    LogFacts,
    LogLine,
    Noted,
    Paced,
    Parted,
    Progress,
    Raised,
    Sighting,
    TimedOut,
)

OF_A_NODE = 8  # processes that torch elastic starts, where no line tells how many; an estimate
DEFAULT_GROUPS = {"", "0"}
UNKNOWN_GROUP = "?"
OF_DEFAULT_GROUP = re.compile(r"\(default_pg\) Rank (\d{1,7})\]")

E = TypeVar("E", bound=Event)


def facts(files: Sequence[Contents]) -> LogFacts:
    """The facts of all files of one job, with ranks where the files say, together, which they are."""
    ranks = Ranks(files)
    whole = contents.world_of(files)
    lasts = [line for file in files for line, _ in file.tails.values()]
    dated = _years([*(event.at for file in files for _, event in file.events), *lasts])
    processes = whole or (OF_A_NODE if any(file.elastic for file in files) else 1)
    events: list[Event] = []
    attempt = 0
    for file in files:
        earlier = _ends_of_jobs(file, dated)
        attempt = max(attempt, file.attempt + len(earlier))
        failures: dict[Origin, list[Event]] = {}
        for origin, event in file.events:
            failures.setdefault(origin, []).append(event)
        for origin, event in file.events:
            rank = event.rank if event.rank is not None else ranks.of(origin)
            rank = _of_nccl(event, file, whole) if rank is None else rank
            rank = own_words.rank_of(event, whole) if rank is None else rank
            rank = None if isinstance(event, TimedOut) and event.torn else rank
            host = event.host or ranks.host(origin)
            before = sum(line < event.at.line for line in earlier)
            settled = replace(
                event,
                rank=rank,
                host=host,
                at=dated(event.at),
                local=origin.local,
                process="" if origin.process == SPAWNED else origin.process,
                attempt=event.attempt + before,
            )
            if isinstance(settled, Raised) and settled.relayed:
                settled = replace(settled, rank=None, local=None, host="", process=settled.relayed)
            if isinstance(settled, Raised):
                stepped = survival.stepped(settled, origin, file.steps.get(origin), failures[origin], processes)
                survived = stepped or survival.ordinary_after(settled, file.tails.get(origin))
                settled = replace(settled, survived=survived, stepped=stepped)
            events.append(settled)
    events = own_words.shared(events)
    tails: dict[int, LogLine] = {}
    for file in files:
        for origin, (line, _) in file.tails.items():
            rank = ranks.of(origin)
            if rank is not None and (rank not in tails or _later(dated(line), tails[rank])):
                tails[rank] = dated(line)
    waiting: dict[int, Location] = {}
    for file in files:
        for origin, frames in file.waiting:
            rank = ranks.of(origin)
            user = next((frame for frame in frames if "-packages/" not in frame.file), None)
            if rank is not None and user is not None:
                waiting.setdefault(rank, user)
    timed_out, progress = _groups(_pick(events, TimedOut), _pick(events, Progress))
    world = max((file.world for file in files), default=0) or None
    everybody = {event.rank for event in (*events, *timed_out) if event.rank is not None} | set(tails)
    if world is not None and everybody and max(everybody) >= world:
        world = None  # it was the size of something else
    return LogFacts(
        files=tuple(
            replace(file.file, ranks=ranks.in_file(number, files), marked=_marked(file))
            for number, file in enumerate(files)
        ),
        raised=_together(_pick(events, Raised)),
        timed_out=timed_out,
        progress=progress,
        desyncs=tuple(_pick(events, Desync)),
        brought=tuple(_pick(events, Brought)),
        ended=_ends(_pick(events, Ended)),
        sightings=tuple(_pick(events, Sighting)),
        tails=tuple(sorted(tails.items())),
        waiting_at=tuple(sorted(waiting.items(), key=lambda item: item[0])),
        world_size=world,
        ranks=tuple(sorted(everybody)),
        finished=tuple(end for file in files for end in file.finished),
        parting=tuple(dated(file.parting) for file in files if file.parting is not None),
        attempt=attempt,
        odd=tuple(replace(one, at=dated(one.at)) for file in files for one in file.odd),
        last=tuple(dated(line) for file in files for line in file.last),
        parted=_parted(files, ranks, dated),
        complaints=_complaints(files, ranks, dated),
        noted=tuple(_noted(origin, one, ranks, dated) for file in files for origin, one in file.noted),
        paced=_paced(files, ranks, dated),
    )


def _parted(files: Sequence[Contents], ranks: Ranks, dated: _Dates) -> tuple[Parted, ...]:
    """The last lines of processes that a mark names by their pids."""
    return tuple(
        Parted(dated(line), int(pid), origin.host, ranks.of(origin))
        for file in files
        for origin, (line, _) in file.tails.items()
        if (pid := origin.process.rpartition("pid=")[2]).isdecimal() and len(pid) < DIGITS
    )


def _paced(files: Sequence[Contents], ranks: Ranks, dated: _Dates) -> tuple[Paced, ...]:
    """The ranks that wrote lines of steps, each once: one that writes to several files, as it wrote last."""
    found: dict[int, Paced] = {}
    for file in files:
        for origin, steps in file.steps.items():
            rank = ranks.of(origin)
            if rank is None or steps.last is None or not steps:
                continue
            one = Paced(rank, dated(steps.last), steps.pause_s)
            if rank not in found or _later(one.last, found[rank].last):
                found[rank] = one
    return tuple(found[rank] for rank in sorted(found))


def _noted(origin: Origin, one: Noted, ranks: Ranks, dated: _Dates) -> Noted:
    rank = int(one.said) if one.kind == "rank" else ranks.of(origin)
    return replace(one, at=dated(one.at), rank=rank, process=_process(origin))


def _complaints(files: Sequence[Contents], ranks: Ranks, dated: _Dates) -> tuple[Complaint, ...]:
    """What speaks of a failure in all files, with whose lines they are."""
    found: list[Complaint] = []
    for file in files:
        for writers, one in file.complaints.found():
            numbers = {ranks.of(origin) for origin in writers} | {own_words.spoken(one.at.text)}
            known = tuple(sorted(rank for rank in numbers if rank is not None))
            processes = tuple(_process(origin) for origin in writers if ranks.of(origin) is None)
            named = tuple(dict.fromkeys(filter(None, processes)))
            found.append(replace(one, at=dated(one.at), ranks=known, processes=named))
    return tuple(found)


def _process(origin: Origin) -> str:
    if origin.process and origin.process != SPAWNED:
        return origin.process
    return f"local rank {origin.local}" if origin.local is not None else ""


def _ends_of_jobs(file: Contents, dated: _Dates) -> list[int]:
    """The lines at which earlier jobs of a file ended, where a later one was appended: torch elastic of one host tells
    of its failure at the end, and only once."""
    lines: dict[str, dict[tuple[object, int], int]] = {}
    for _, event in file.events:
        if isinstance(event, Ended) and event.by == "elastic" and event.rank is not None and event.first:
            lines.setdefault(event.host, {}).setdefault((event.at.t, event.pid), event.at.line)
    hosts = [sorted(ends.values()) for ends in lines.values()]
    told = max(hosts, key=len)[:-1] if hosts else []
    return sorted({*told, *survival.started_again([event for _, event in file.events], file.steps.values(), dated)})


class Ranks:
    """Which rank stands behind a stream. Local ranks and Slurm's tasks are ranks only where nothing speaks against
    it: several nodes have the same local ranks, and a task may be a node's torchrun."""

    def __init__(self, files: Sequence[Contents]):
        self._files = files
        origins = {origin for file in files for origin, _ in file.events}
        origins |= {origin for file in files for origin in file.tails}
        ends = [event for file in files for _, event in file.events if isinstance(event, Ended)]
        self._nodes = {self._node(origin) for origin in origins if origin.local is not None}
        self._moved = any(e.rank is not None and e.local_rank is not None and e.rank != e.local_rank for e in ends)
        explicit = {origin.rank for origin in origins if origin.rank is not None}
        explicit |= {event.rank for event in ends if event.rank is not None}
        local = {origin.local for origin in origins if origin.local is not None}
        self._more_ranks = bool(explicit and local) and max(r for r in explicit if r is not None) > max(
            number for number in local if number is not None
        )
        pairs = {(e.rank, e.local_rank) for e in ends if e.rank is not None and e.local_rank is not None}
        self._told: dict[tuple[int, int], set[int]] = {}  # ranks by file and local rank
        for number, file in enumerate(files):
            for _, e in file.events:
                if isinstance(e, Ended) and e.rank is not None and e.local_rank is not None:
                    self._told.setdefault((number, e.local_rank), set()).add(e.rank)
        # Nothing says how many nodes there are, or that this is the first of them.
        self._nodes_unknown = not pairs and not contents.world_of(files) and not explicit
        world = max((file.world for file in files), default=0)
        if not pairs and local and world > max(number for number in local if number is not None) + 1:
            self._more_ranks = True  # there are, or may be, other nodes
        self._tasks_are_nodes = any(file.elastic & {None} and file.hint.task is not None for file in files) or any(
            file.elastic - {None} for file in files
        )
        series: dict[str, set[int]] = {}
        for file in files:
            if file.hint.series and file.hint.task is not None:
                series.setdefault(file.hint.series, set()).add(file.hint.task)
        # All tasks of one job, or a single job of an array.
        self._doubtful = {name for name, tasks in series.items() if len(tasks) < 2 or tasks != set(range(len(tasks)))}
        for origin in origins:
            if origin.task is not None and origin.rank not in (None, origin.task):
                self._tasks_are_nodes = True
            if origin.task is not None and origin.local is not None:
                self._tasks_are_nodes = True

    def _node(self, origin: Origin) -> str:
        hint = self._files[origin.file].hint
        task = f"task {origin.task}" if origin.task is not None else ""
        return task or origin.host or hint.host or hint.node

    def of(self, origin: Origin) -> int | None:
        """The global rank, or None where it cannot be told."""
        if origin.rank is not None:
            return origin.rank
        if origin.local is not None:
            told = self._told.get((origin.file, origin.local), set())
            if len(told) == 1:
                return min(told)
            if self._nodes_unknown and self._files[origin.file].hint.local is None and origin.process != SPAWNED:
                return None
            alone = len(self._nodes) < 2 and not self._moved and not self._more_ranks
            return origin.local if alone else None
        if origin.process and (listed := self._files[origin.file].rank_of_process(origin.process)) is not None:
            return listed
        hint = self._files[origin.file].hint
        doubtful = hint.series in self._doubtful and not self._files[origin.file].labelled
        if origin.task is not None and not self._tasks_are_nodes and not doubtful:
            return origin.task
        return None

    def host(self, origin: Origin) -> str:
        """The node or pod that a stream comes from, or nothing."""
        if origin.host:
            return origin.host
        return f"task {origin.task}" if origin.task is not None and self._tasks_are_nodes else ""

    def in_file(self, number: int, files: Sequence[Contents]) -> tuple[int, ...]:
        """The ranks that wrote to a file; of one that could not be read, the rank that its name tells."""
        file = files[number]
        found = {self.of(origin) for origin, _ in file.events} | {self.of(origin) for origin in file.tails}
        if file.file.unreadable and not found:
            said = file.hint
            found = {self.of(Origin(host=said.host, rank=said.rank, local=said.local, task=said.task, file=number))}
        return tuple(sorted(rank for rank in found if rank is not None))


def _pick(events: Iterable[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _marked(file: Contents) -> bool:
    """Whether marks tell which processes wrote lines of a file."""
    return any(origin.marked for origin, _ in file.events) or any(origin.marked for origin in file.tails)


def _of_nccl(event: Event, file: Contents, world: int) -> int | None:
    """The rank of a line that NCCL or its process group wrote: a group has numbers of its own, and only those of the
    whole job are ranks. What stands in brackets behind a pid is a GPU: the same process has said its rank elsewhere."""
    if match := OF_DEFAULT_GROUP.search(event.at.text):
        return int(match[1])
    match = NCCL_PROCESS.search(event.at.text)
    rank, size = file.of_nccl.get((match["host"], match["pid"]), (None, 0)) if match else (None, 0)
    return rank if size == world else None


def _later(one: LogLine, other: LogLine) -> bool:
    if one.t is not None and other.t is not None and one.clock == other.clock:
        return one.t >= other.t
    return one.file == other.file and one.line >= other.line


def _years(lines: Sequence[LogLine]) -> _Dates:
    local = [line.t for line in lines if line.clock == "local" and line.t is not None]
    return _Dates(time.gmtime(max(local)).tm_year if local else None)


class _Dates:
    """Gives dates without a year the year of the others."""

    def __init__(self, year: int | None):
        self._year = year

    def __call__(self, line: LogLine) -> LogLine:
        if self._year is None or line.clock != "year" or line.t is None:
            return line
        date = time.gmtime(line.t)
        t = seconds(self._year, date.tm_mon, date.tm_mday, date.tm_hour, date.tm_min, min(date.tm_sec, 59))
        return line if t is None else replace(line, t=t + line.t % 1, clock="local")


def _together(raised: list[Raised]) -> tuple[Raised, ...]:
    """Each exception once: a rank's error file says again what its log said."""
    found: dict[tuple[object, ...], Raised] = {}
    for one in raised:
        said = (one.type, one.message[:120], one.frames[-1:], one.launcher)
        place = (one.rank, one.host if one.rank is None else "", one.attempt, *said)
        known = found.get(place)
        if known is None:
            found[place] = one
        elif one.rank is None and known.at.file == one.at.file:
            found[place] = replace(known, times=known.times + one.times)
    return tuple(found.values())


def _ends(ends: list[Ended]) -> tuple[Ended, ...]:
    """Each end once. torch elastic tells of the first failure twice: first without its rank."""
    listed = {(end.host, end.pid) for end in ends if end.by == "elastic" and end.rank is not None}
    pids = {pid for _, pid in listed}
    kept = [
        end for end in ends if not (end.by == "elastic" and end.rank is None and not end.ordered and end.pid in pids)
    ]
    return tuple(dict.fromkeys(kept))


def _open_at(progress: list[Progress], t: TimedOut) -> set[str]:
    """The groups in which a rank says that what timed out had begun and not ended."""
    return {
        p.group
        for p in progress
        if (p.rank, p.member) == (t.rank, t.member) and p.enqueued is not None and p.completed is not None
        if p.completed < t.seq <= p.enqueued
    }


def _groups(timed_out: list[TimedOut], progress: list[Progress]) -> tuple[tuple[TimedOut, ...], tuple[Progress, ...]]:
    """Timeouts with their groups, each once: the same timeout is told by the watchdog, by its exception and by the
    process that aborts, and not always with rank and group."""
    works: dict[tuple[int | None, int], set[str]] = {}
    for p in progress:
        if p.work is not None:
            works.setdefault((p.rank, p.work), set()).add(p.group)
    ranked = {(t.member, t.seq, t.op) for t in timed_out if t.rank is not None}
    group_of: dict[tuple[int | None, int, int], str] = {}
    for p in progress:
        if p.work is not None:
            group_of.setdefault((p.rank, p.member, p.work), p.group)
    for t in timed_out:
        if t.group:
            group_of.setdefault((t.rank, t.member, t.seq), t.group)
    found: dict[tuple[object, ...], TimedOut] = {}
    for t in timed_out:
        if t.rank is None and (t.member, t.seq, t.op) in ranked:
            continue  # the same again, without its prefix
        only = works.get((t.rank, t.seq), set()) or _open_at(progress, t)
        group = t.group or group_of.get((t.rank, t.member, t.seq), "") or (min(only) if len(only) == 1 else "")
        if not group and t.rank not in (None, t.member) and not t.torn:
            group = UNKNOWN_GROUP  # the rank's number within it is another: it cannot be the default one
        t = replace(t, group=group)
        if t.rank is None and t.group in DEFAULT_GROUPS and not t.torn:
            t = replace(t, rank=t.member)  # before torch 2.2 this is all that a log says
        found.setdefault((t.rank, t.member, t.group, t.seq, t.op, t.attempt), t)
    settled = []
    for p in progress:
        settled.append(replace(p, rank=p.member) if p.rank is None and p.group in DEFAULT_GROUPS else p)
    return tuple(found.values()), tuple(settled)

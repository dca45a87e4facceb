"""The ranks of one node as they are now: their pulses, what the watch makes of them, and /proc. Reads only."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from safelaunch import procfs, pulse
from safelaunch.black_box_reader import Entry, Reader
from safelaunch.evidence import usage
from safelaunch.evidence.ranks import MOST_LOCAL
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.model.hosts import host_name
from safelaunch.pulse import Pulse
from safelaunch.run.arrivals import arrivals
from safelaunch.top.attempts import ended
from safelaunch.top.folder import Folder, gpu_of
from safelaunch.top.gpus import Gpus
from safelaunch.top.picture import Mood, Row
from safelaunch.top.words import span
from safelaunch.watch.lateness import LEAST_S, SHARE
from safelaunch.watch.meetings import Arrival, Interval, Meetings, sums
from safelaunch.watch.pace import Pace, count_of

LOAD_S = 2.0  # how often /proc is read
WINDOW_S = 10.0  # of meetings that say who is late now
OPEN_S = 1.0  # a step that takes longer than this ...
LONGER = 3.0  # ... and than so many usual ones is told as one that has not ended
AWAITED_S = 2.0  # for so long others have been waiting, before it is told for whom
BAD_S = 10.0  # ... and as bad
SPARK = 64  # step times that are kept
ELSEWHERE = "its ranks are not among the processes of this machine, or container: run it where they are"
PAGE = os.sysconf("SC_PAGE_SIZE")
ENDED = (signal.SIGTERM, signal.SIGKILL)  # by which a launcher ends ranks
STATES = {"T": "is stopped", "t": "is held by a debugger", "Z": "has ended"}


class Ranks:
    """The ranks of a folder's latest attempt.

    Args:
        folder: of the run on this node, or on another one.
    """

    def __init__(self, folder: Folder) -> None:
        self.missing = ""  # why there are no pulses
        self._folder = folder
        self._were_here = False
        self._reader: Reader | None = None
        self._pids: tuple[int, ...] = ()
        self._gpus = Gpus()
        self._restart()

    def _restart(self) -> None:
        """Of another attempt nothing counts."""
        self._paces: dict[int, Pace] = {}
        self._pulses: dict[int, Pulse] = {}
        self._entries: dict[int, Entry | None] = {}
        self._meetings = Meetings()
        self._intervals: deque[Interval] = deque()
        self._loads: list[usage.Load] = []
        self._next_load = 0.0

    def poll(self, now: float) -> None:
        """One look. `now` is CLOCK_MONOTONIC."""
        group = self._folder.group
        if group is None:
            return
        pids = tuple(one.pid for one in group.workers)
        if pids != self._pids:
            if set(self._pids) - set(pids):
                self._restart()
            self._pids = pids
        alive = [one for one in group.alive if is_there(one)]
        if self._folder.result is not None or not alive:
            self.close()
            elsewhere = self._folder.result is None and group.alive and not self._folder.is_gone()
            self.missing = ELSEWHERE if elsewhere and not self._were_here else ""
        else:
            self._were_here = True
            self._read(alive, now)
            self._gpus.poll(alive, self._folder.places(group.attempt), now)
        if now >= self._next_load:
            self._next_load = now + LOAD_S
            self._loads = [*self._loads[-1:], usage.look(replace(one, exit=None) for one in alive)]

    def close(self) -> None:
        """Let go of the pulses: the memory of a run that has ended is not ours to keep."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _read(self, alive: list[WorkerProcess], now: float) -> None:
        reader = self._reader = self._reader or self._opened(alive[0].black_box)
        if reader is None:
            return
        calls = {}
        for one in alive:
            if not 0 <= one.local_rank < MOST_LOCAL:
                continue
            with contextlib.suppress(struct.error):  # there is no such slot: a run can have anything written down
                calls[one.rank] = self._read_rank(one, reader, now)
        self._intervals.extend(self._meetings.add(calls))
        while self._intervals and self._intervals[0].t < now - WINDOW_S:
            self._intervals.popleft()

    def _read_rank(self, worker: WorkerProcess, reader: Reader, now: float) -> list[Arrival]:
        """Take in the pulse of a rank; returns what is new in its record of calls."""
        rank, slot = worker.rank, (worker.local_rank, worker.pid)
        found = reader.pulse(*slot)
        if found is None:
            return []
        self._pulses[rank] = found
        self._entries[rank] = reader.latest(*slot) if found.begun > found.ended else None
        self._paces.setdefault(rank, Pace()).poll({rank: found}, now)
        return arrivals(worker, reader.arrivals(*slot, self._meetings.last(rank)))

    def _opened(self, path: str) -> Reader | None:
        if not path:
            self.missing = "this run has no heartbeats"
            return None
        try:
            reader = Reader(path, self._folder.owner, reads_only=True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.missing = f"no pulses: {path}: {why}; they are in the memory of the node, or container, of the ranks"
            return None
        self.missing = ""
        return reader

    # --------------------------------------------------------------------------------------------- rows

    def rows(self, host: str, culprits: Mapping[int, Mood], now: float) -> list[Row]:
        """A row a rank.

        Args:
            host: the name of this node, where run.json does not say it.
            culprits: the ranks that the latest verdict names, and how bad it is.
            now: CLOCK_MONOTONIC.
        """
        group = self._folder.group
        if group is None:
            return []
        places = self._folder.places(group.attempt)
        loads = self._loads
        used = {one.rank: one for one in usage.used(*loads)[0]} if len(loads) == 2 else {}
        late, awaited = self._late(group), self._awaited(group, now)
        found = []
        for one in group.workers:
            place = places.get(one.rank, {})
            gpu = self._gpus.names.get(one.rank, "") or gpu_of(place)
            row = Row(one.rank, host_name(str(place.get("host") or host)), gpu, one.pid, late_s=late.get(one.rank))
            cores = used[one.rank].cpu if one.rank in used and one.exit is None else None
            row = replace(row, cores=cores, awaited_s=awaited.get(one.rank), gpu_busy=self._gpus.busy.get(one.rank))
            row = self._paced(self._now(row, one, now), now)
            found.append(replace(row, mood=_mood(row, one, culprits)))
        return found

    def _now(self, row: Row, worker: WorkerProcess, now: float) -> Row:
        """What a rank does at this moment."""
        if worker.exit is not None:
            return replace(row, doing=ended(worker.exit.code))
        process = procfs.read(worker.pid)
        if process is None or process.start != worker.start:
            return replace(row, doing="is not seen from here" if self.missing == ELSEWHERE else "has ended")
        doing = STATES.get(process.state, "")
        if not doing and worker.rank in self._pulses:
            doing = words(self._pulses[worker.rank], self._entries.get(worker.rank), now)
        return replace(row, doing=doing or "starting", memory=resident(worker.pid))

    def _paced(self, row: Row, now: float) -> Row:
        found, pace = self._pulses.get(row.rank), self._paces.get(row.rank)
        if found is None or pace is None or not pace.unit:
            return row
        step, at = count_of(found, pace.unit)
        if found.mark_total > 0 and found.mark_step >= 0:
            row = replace(row, total=found.mark_total)
            step = found.mark_step
        latest, each = pace.bins[-20:], pace.each()
        inside = at and row.memory is not None and not found.state & pulse.PROGRAM_ENDED
        open_s = now - at if inside else 0.0
        return replace(
            row,
            step=step,
            unit=pace.unit,
            each=each,
            each_of=tuple(one.each for one in pace.bins[-SPARK:]),
            open_s=open_s if open_s > max(OPEN_S, LONGER * (each or 0.0)) else None,
            loading=median([one.loading[row.rank] for one in latest if row.rank in one.loading]),
            waiting=median([one.waiting[row.rank] for one in latest if row.rank in one.waiting]),
        )

    def _late(self, group: WorkerGroup) -> dict[int, float]:
        """How much more of its own time than its peers each rank needs for a step, where that can be told."""
        intervals = self._intervals
        if not intervals or self._meetings.unknown or any(one.device_calls for one in self._pulses.values()):
            return {}
        seconds = intervals[-1].t - intervals[0].since
        first = self._paces.get(min(one.rank for one in group.workers))
        each = first.each() if first is not None and first.unit != "collective" else None
        steps = max(seconds / each if each else len(intervals) / len({one.site for one in intervals}), 1.0)
        more = {rank: (own - peers, all_) for rank, (own, peers, all_) in sums(list(intervals)).items()}
        return {rank: one / steps for rank, (one, all_) in more.items() if one > max(SHARE * all_, LEAST_S * steps)}

    def _awaited(self, group: WorkerGroup, now: float) -> dict[int, float]:
        """For how long the others have been waiting for a rank: those that wait are the most of them, and have made no
        progress since."""
        alive = {one.rank for one in group.alive if is_there(one)}
        pulses = {rank: one for rank, one in self._pulses.items() if rank in alive}
        over = {rank for rank, one in pulses.items() if one.state & pulse.PROGRAM_ENDED}
        wait = {rank for rank, one in pulses.items() if one.waiting and now - one.progress > AWAITED_S} - over
        do_not = [rank for rank, one in pulses.items() if not one.waiting]
        if not wait or len(wait) < len(do_not) or len(wait) + len(do_not) < len(pulses):
            return {}
        since = max(pulses[rank].progress for rank in wait)
        return dict.fromkeys(do_not, now - since)


def words(seen: Pulse, call: Entry | None, now: float) -> str:
    """What a rank does, by its pulse and the call that it is in."""
    if seen.state & pulse.PROGRAM_RAISED:
        return "has raised an exception"
    if seen.state & pulse.PROGRAM_ENDED:
        return "its program has ended"
    if seen.phases:
        name, since, *_ = seen.phases[-1]
        return _for(name, now - since)
    if call is not None:
        place = f" {os.path.basename(call.file)}:{call.line}" if call.file else ""
        return _for(f"in {call.op}", now - call.t) + place
    if seen.begun > seen.ended or seen.enqueued > seen.completed or seen.on_device:
        return _for("in a collective", now - seen.progress)
    if not (seen.steps or seen.batches or seen.marks or seen.begun):
        return "imports" if not seen.beat and not seen.state & pulse.HAS_TORCH else "runs"
    quiet = now - seen.progress
    return "works" if quiet < OPEN_S else _for("no progress", quiet)


def _for(what: str, seconds: float) -> str:
    return f"{what} {span(seconds)}" if OPEN_S <= seconds < pulse.FAR_S else what


def _mood(row: Row, worker: WorkerProcess, culprits: Mapping[int, Mood]) -> Mood:
    if worker.exit is not None and (not worker.exit.code or culprits or -worker.exit.code in ENDED):
        return culprits.get(row.rank, "over")  # others have ended because of it
    if worker.exit is not None:
        return "bad"
    if (row.awaited_s or 0.0) > BAD_S:
        return "bad"
    return culprits.get(row.rank) or ("slow" if row.late_s or row.awaited_s else "good")


def is_there(worker: WorkerProcess) -> bool:
    """Whether the process of a rank is one of this machine."""
    process = procfs.read(worker.pid)
    return process is not None and process.start == worker.start


def resident(pid: int) -> int | None:
    """Bytes of memory of a process; None where it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return None


def median(values: list[float]) -> float | None:
    """The middle of some values; None of none."""
    return sorted(values)[len(values) // 2] if values else None

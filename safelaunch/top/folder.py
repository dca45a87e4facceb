"""The folder of a run on one node, as it grows: how it was started, its events, incidents and result. Reads only.

Whoever started the run may have written anything there: each value is looked at before it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch import procfs, regular
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence.ranks import MOST_LOCAL
from safelaunch.model import Exit, Verdict, WorkerGroup, WorkerProcess
from safelaunch.report.verdict import headline
from safelaunch.top.picture import Level, Notice

CHUNK = 4 << 20  # bytes of agent.jsonl that are read at once: of a large job's beginning
MOST = 16 << 20  # of a document
KEPT = 4096  # events, and what is said of them
GONE_S = 10.0  # between the last event of a run and its result: far more than it takes
INCIDENTS = 64  # the latest, of a run of many
LEVELS: Mapping[str, Level] = {"slow": "warning", "none": "note"}  # by the kind of a verdict; others are errors


@dataclass(frozen=True)
class Event:
    """One line of agent.jsonl. `time` is in seconds since the epoch."""

    name: str
    time: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """A verdict, or a notice of what may still end well, and the folder of its incident."""

    time: float
    verdict: Verdict
    final: bool
    folder: str

    @property
    def notice(self) -> Notice:
        level = LEVELS.get(self.verdict.kind, "error" if self.final else "warning")
        return Notice(self.time, level, headline(self.verdict))


@dataclass
class Attempts:
    """What the events so far come to: the worker group of each attempt, and what is to be said of them."""

    groups: list[WorkerGroup] = field(default_factory=list)
    owner: int | None = None  # whose files the ranks' are; None where they are ours
    begun: float = 0.0  # when the latest of them began
    notices: list[Notice] = field(default_factory=list)
    progress: tuple[int, float] | None = None  # step of the slowest rank, and seconds of each, when they were told last

    def take(self, event: Event) -> None:
        """One event more. One that is none of ours, or not as it should be, changes nothing."""
        with contextlib.suppress(ShapeError, KeyError, TypeError, ValueError):
            handle = getattr(self, f"_on_{event.name}", None)
            if handle is not None:
                handle(event)

    def _say(self, event: Event, level: Level, text: str) -> None:
        self.notices.append(Notice(event.time, level, text))
        del self.notices[:-KEPT]

    def _on_group(self, event: Event) -> None:
        group = checked(WorkerGroup, {**event.fields, "workers": []})
        if self.groups:
            self._say(event, "note", f"attempt {group.attempt} begins")
        self.groups.append(group)
        self.progress = None
        del self.groups[:-KEPT]
        self.begun = event.time

    def _on_worker(self, event: Event) -> None:
        worker = checked(WorkerProcess, {**event.fields, "exit": None, "owner": self.owner})
        before = self.groups[-1].workers
        if len(before) < MOST_LOCAL:
            self.groups[-1] = replace(self.groups[-1], workers=(*before, worker))

    def _on_exit(self, event: Event) -> None:
        end, pid = checked(Exit, event.fields), event.fields["pid"]
        workers = tuple(replace(one, exit=end) if one.pid == pid else one for one in self.groups[-1].workers)
        self.groups[-1] = replace(self.groups[-1], workers=workers)
        rank = next((one.rank for one in workers if one.pid == pid), None)
        if end.code and rank is not None:
            self._say(event, "warning", f"rank {rank} {how(end.code)}")

    def _on_preflight(self, event: Event) -> None:
        if event.fields.get("refused"):
            self._say(event, "error", "the preflight has refused this node")

    def _on_verdict(self, event: Event) -> None:
        self._say(event, "error", f"{event.fields['code']}: {event.fields['summary']}")

    def _on_notice(self, event: Event) -> None:
        self._say(event, "warning", f"{event.fields['code']}: {event.fields['summary']}")

    def _on_progress(self, event: Event) -> None:
        step, each = number(event.fields["step"]), number(event.fields["step_s"])
        if step is not None and each is not None:
            self.progress = int(step), each

    def _on_signal(self, event: Event) -> None:
        self._say(event, "warning", f"{event.fields['signal']} has come to safelaunch")

    def _on_degraded(self, event: Event) -> None:
        self._say(event, "warning", f"SL902: {event.fields['missing']}")

    def _on_cold(self, event: Event) -> None:
        if event.fields.get("reason"):
            self._say(event, "note", f"cold start: {event.fields['reason']}")


USED = {name.removeprefix("_on_") for name in vars(Attempts) if name.startswith("_on_")}


class Tail:
    """A file of events, as it grows.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._part = b""

    def new(self, owner: int) -> Iterator[Event]:
        """The events that have come since the last look; none where there is no such file of that user."""
        with contextlib.suppress(OSError), open(regular.descriptor(self._path, owner), "rb") as file:
            file.seek(self._offset)
            while data := file.read(CHUNK):
                self._offset += len(data)
                *lines, self._part = (self._part + data).split(b"\n")
                if len(self._part) > MOST:
                    self._part = b""  # no line of ours
                yield from events(lines)


class Folder:
    """One folder, as far as it has been read.

    Args:
        path: of the folder.

    Raises:
        OSError: run.json cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.owner = os.stat(path).st_uid
        self.start: dict[str, Any] = {}
        self.events: list[Event] = []
        self.attempts = self.no_attempts()
        self.told: dict[str, Told] = {}
        self.result: dict[str, Any] | None = None
        self._seen_until, self._is_seen = 0.0, False  # whether a process of the run is among those of this machine
        self._tails = [Tail(os.path.join(path, name)) for name in ("agent.jsonl", "events.jsonl")]
        self._stamps: dict[str, tuple[int, int]] = {}
        self._read_start()

    # ----------------------------------------------------------------------------------- what was started

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return str(self.start.get("run_id") or os.path.basename(self.path))

    @property
    def started(self) -> float:
        """Seconds since the epoch; 0 where that is not known."""
        return number(self.start.get("started")) or 0.0

    @property
    def plan(self) -> Mapping[str, Any]:
        """The launch plan, as a document."""
        plan = self.start.get("plan")
        return plan if isinstance(plan, dict) else {}

    @property
    def script(self) -> str:
        """The script and its arguments."""
        words = [self.plan.get("script"), *listed(self.plan.get("script_args"))]
        return " ".join(str(word) for word in words if word is not None)

    @property
    def group(self) -> WorkerGroup | None:
        """The worker group of the latest attempt."""
        return self.attempts.groups[-1] if self.attempts.groups else None

    def places(self, attempt: int) -> dict[int, Mapping[str, Any]]:
        """Host and GPU of each rank of an attempt, as documents."""
        for one in reversed(listed(self.start.get("mapping"))):
            if isinstance(one, dict) and one.get("attempt") == attempt:
                return {place["rank"]: place for place in listed(one.get("ranks"))
                        if isinstance(place, dict) and isinstance(place.get("rank"), int)}  # fmt: skip
        return {}

    def no_attempts(self) -> Attempts:
        """What is known before any event."""
        return Attempts(owner=None if self.owner == os.geteuid() else self.owner)

    @property
    def is_here(self) -> bool:
        """Whether the ranks run on this node, as far as run.json says where."""
        places = self.places(self.group.attempt) if self.group is not None else {}
        return all(place.get("host") == os.uname().nodename for place in places.values())

    def is_gone(self) -> bool:
        """Whether the run was killed, with its launcher: it has left no result, nothing in memory, and no process that
        can be seen from here. In another container it may all be there."""
        scratch = str(self.plan.get("scratch_dir") or "")
        if self.result is not None or not scratch or not self.is_here or os.path.exists(scratch):
            return False
        try:
            latest = os.stat(os.path.join(self.path, "agent.jsonl")).st_mtime
        except OSError:
            latest = self.started
        if time.time() - latest < GONE_S:
            return False
        now = time.monotonic()
        if now > self._seen_until:
            self._seen_until, entry = now + GONE_S, f"SAFELAUNCH_RUN_TOKEN={self.plan.get('token')}".encode()
            self._is_seen = any(procfs.in_environ(process.pid, entry) for process in procfs.scan())
        return not self._is_seen

    # ------------------------------------------------------------------------------------------ what is new

    def poll(self) -> None:
        """Read what is new. Never raises: what cannot be read now may be next time."""
        with contextlib.suppress(OSError):
            if self._changed("run.json"):
                self._read_start()
        self._read_events()
        with contextlib.suppress(OSError):
            self._read_incidents()
        if self.result is None and self._changed("result.json"):
            self.result = self._document("result.json")

    def _read_start(self) -> None:
        self._changed("run.json")
        data = regular.read(os.path.join(self.path, "run.json"), MOST, self.owner)
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(data)
            self.start = said if isinstance(said, dict) else self.start

    def _read_events(self) -> None:
        for tail in self._tails:
            for event in tail.new(self.owner):
                if event.name in USED:
                    self.events.append(event)
                    self.attempts.take(event)
        del self.events[:-KEPT]

    def _read_incidents(self) -> None:
        names = [name for name in os.listdir(self.path) if name.startswith("incident-") and name[9:].isdecimal()]
        for name in sorted(names, key=lambda one: int(one[9:]))[-INCIDENTS:]:
            for file in ("notice.json", "verdict.json"):
                self._read_verdict(name, file)

    def _read_verdict(self, incident: str, file: str) -> None:
        path = os.path.join(incident, file)
        if not self._changed(path):
            return
        said = self._document(path)
        with contextlib.suppress(ShapeError):
            verdict = checked(Verdict, said)
            at = self._stamps[path][0] / 1e9
            before = self.told.get(incident)
            if before is not None and before.verdict.code == verdict.code:  # it counts from the first word
                at = min(at, before.time)
            self.told[incident] = Told(at, verdict, file == "verdict.json", os.path.join(self.path, incident))

    def _changed(self, name: str) -> bool:
        """Whether a file is there, and has changed since it was last asked."""
        try:
            found = os.stat(os.path.join(self.path, name), follow_symlinks=False)
        except OSError:
            return False
        stamp = found.st_mtime_ns, found.st_size
        changed = self._stamps.get(name) != stamp
        self._stamps[name] = stamp
        return changed

    def _document(self, name: str) -> dict[str, Any] | None:
        try:
            said = json.loads(regular.read(os.path.join(self.path, name), MOST, self.owner))
        except (OSError, ValueError, RecursionError):
            self._stamps.pop(name, None)  # it may be in the middle of being written
            return None
        return said if isinstance(said, dict) else None


def events(lines: list[bytes]) -> Iterator[Event]:
    """The events of whole lines."""
    for one in lines:
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(one)
            if isinstance(said, dict) and (at := number(said.get("time"))) is not None:
                yield Event(str(said.get("event")), at, said)


def how(code: int) -> str:
    """How a process has ended: `ended with exit code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def ended(code: int) -> str:
    """The same in two words: `exit 1`, `by SIGKILL`."""
    return f"exit {code}" if code >= 0 else f"by {how(code).rpartition(' ')[2]}"


def gpu_of(place: Mapping[str, Any]) -> str:
    """The number of a rank's GPU as the launch has mapped it; empty where it has none."""
    index = place.get("gpu_index")
    return str(index) if isinstance(index, int) else ""


def number(value: object) -> float | None:
    """A number of a document; None where it is none."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else None


def listed(value: object) -> list[Any]:
    """A list of a document; empty where it is none."""
    return value if isinstance(value, list) else []

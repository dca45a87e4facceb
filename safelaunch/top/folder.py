"""The folder of a run on one node, as it grows: how it was started, its events, incidents and result. Reads only.

Whoever started the run may have written anything there: each value is looked at before it is used.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safelaunch import procfs, regular
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence.ranks import MOST_LOCAL
from safelaunch.model import Verdict, WorkerGroup
from safelaunch.report.verdict import headline
from safelaunch.top import written
from safelaunch.top.attempts import Attempts
from safelaunch.top.picture import Level, Notice
from safelaunch.top.tail import Event, Tail, number
from safelaunch.top.written import MOST, Result

GONE_S = 10.0  # between the last event of a run and its result: far more than it takes
LASTING = ("group", "worker", "exit")  # events without which a replay has no ranks
# How many are kept of those, and of others: after three days there are as many lines of progress, one a minute.
KEPT = {True: 4 * MOST_LOCAL, False: 4096}
INCIDENTS = 64  # the latest, of a run of many
LEVELS: Mapping[str, Level] = {"slow": "warning", "none": "note"}  # by the kind of a verdict; others are errors


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
        self._count: collections.Counter[bool] = collections.Counter()
        self.attempts = self.no_attempts()
        self.told: dict[str, Told] = {}
        self.result: Result | None = None
        self._unread = ""  # why result.json does not say how the run has ended
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
        return self.attempts.group

    @property
    def faults(self) -> tuple[str, ...]:
        """What of the folder could not be read, and why."""
        return tuple(filter(None, [self._unread, *(tail.fault for tail in self._tails)]))

    def places(self, attempt: int) -> dict[int, Mapping[str, Any]]:
        """Host and GPU of each rank of an attempt, as documents."""
        for one in reversed(listed(self.start.get("mapping"))):
            if isinstance(one, dict) and one.get("attempt") == attempt:
                return {place["rank"]: place for place in listed(one.get("ranks"))
                        if isinstance(place, dict) and isinstance(place.get("rank"), int)}  # fmt: skip
        return {}

    def no_attempts(self) -> Attempts:
        """What is known before any event."""
        return Attempts(None if self.owner == os.geteuid() else self.owner)

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
        if (self.result is None or self.result.exit_code is None) and self._changed("result.json"):
            self._read_result()

    def _read_start(self) -> None:
        self._changed("run.json")
        data = regular.read(os.path.join(self.path, "run.json"), MOST, self.owner)
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(data)
            self.start = said if isinstance(said, dict) else self.start

    def _read_result(self) -> None:
        """A run with a result has ended, also where nobody can read how."""
        said, why = written.document(os.path.join(self.path, "result.json"), self.owner)
        if said is None and not why:
            return
        result, faults = written.fitting(Result, said or {})
        why = why or faults.get("exit_code", "has no exit code")
        self._unread = f"result.json: {why}" if result.exit_code is None else ""
        self.result = result

    def _read_events(self) -> None:
        for tail in self._tails:
            for event in tail.new(self.owner):
                if self.attempts.take(event):
                    self.events.append(event)
                    self._count[event.name in LASTING] += 1
        if any(self._count[kind] > most for kind, most in KEPT.items()):
            self.events = latest(self.events)
            self._count = collections.Counter(event.name in LASTING for event in self.events)

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


def latest(events: list[Event]) -> list[Event]:
    """The latest events, as many of each kind as are kept."""
    left = dict(KEPT)
    kept = []
    for event in reversed(events):
        kind = event.name in LASTING
        if left[kind] > 0:
            kept.append(event)
        left[kind] -= 1
    return kept[::-1]


def gpu_of(place: Mapping[str, Any]) -> str:
    """The number of a rank's GPU as the launch has mapped it; empty where it has none."""
    index = place.get("gpu_index")
    return str(index) if isinstance(index, int) else ""


def listed(value: object) -> list[Any]:
    """A list of a document; empty where it is none."""
    return value if isinstance(value, list) else []

"""A run that is over, moment by moment, from what its folders keep."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from safelaunch import regular
from safelaunch.model.hosts import host_name
from safelaunch.top.attempts import Attempts, ended
from safelaunch.top.folder import Folder, Told, gpu_of, listed
from safelaunch.top.job import elapsed, notices, result, unread
from safelaunch.top.picture import Picture, Row, one_each
from safelaunch.top.tail import Event, number

NOT_KEPT = (
    "a replay: steps are those of the latest incident, or what the slowest rank had made by a minute; "
    "CPU, memory and GPU use are not kept"
)
MOMENTS = ("exit", "verdict", "notice", "progress", "signal", "preflight")  # events at which something changes
MOST = 64 << 20  # bytes of a case


class Replay:
    """The moments of a run, each a picture.

    Args:
        folders: of its nodes, as far as they have been read.
    """

    def __init__(self, folders: Sequence[Folder]) -> None:
        self._folders = folders
        self._events = [sorted(one.events, key=lambda event: event.time) for one in folders]
        times = {time for events in self._events for time in moments(events)}
        times |= {told.time for one in folders for told in one.told.values()}
        self._times = [*sorted(times), float("inf")]  # the last one is the end
        self._cases: dict[str, dict[int, dict[str, Any]]] = {}
        self.place = len(self._times) - 1

    def move(self, by: int) -> None:
        """Go on, or back, so many moments."""
        self.place = min(max(self.place + by, 0), len(self._times) - 1)

    def picture(self) -> Picture:
        """The run at the present moment."""
        until = self._times[self.place]
        last = self.place == len(self._times) - 1
        rows: list[Row] = []
        for folder, events in zip(self._folders, self._events, strict=True):
            attempts = folder.no_attempts()
            for event in events:
                if event.time <= until:
                    attempts.take(event)
            rows += self._rows(folder, attempts, until)
        first = self._folders[0]
        whole = notices(self._folders)
        shown = tuple(one for one in whole if one.time <= until)
        started = first.started or until
        return Picture(
            first.run_id,
            first.script,
            result(self._folders) if last else "is replayed",
            elapsed(self._folders) if last else max(until - started, 0.0),
            one_each(rows),
            shown,
            (NOT_KEPT, *unread(self._folders)),
            True,
            f"{self.place + 1} of {len(self._times)}",
        )

    def incident(self) -> Told | None:
        """The latest incident at the present moment."""
        until = self._times[self.place]
        told = [one for folder in self._folders for one in folder.told.values() if one.time <= until]
        return max(told, key=lambda one: one.time, default=None)

    def _rows(self, folder: Folder, attempts: Attempts, until: float) -> list[Row]:
        group = attempts.group
        if group is None:
            return []
        places = folder.places(group.attempt)
        since = [one for one in folder.told.values() if attempts.begun <= one.time <= until]
        latest = max(since, key=lambda one: one.time, default=None)
        seen = self._case(latest.folder, folder.owner) if latest is not None else {}
        culprits = latest.verdict.culprit_ranks if latest is not None else ()
        found = []
        for one in group.workers:
            place = places.get(one.rank, {})
            host = str(place.get("host") or (os.path.basename(folder.path) if len(self._folders) > 1 else ""))
            doing = "end not known" if until == float("inf") else "runs"
            row = Row(one.rank, host_name(host), gpu_of(place), one.pid, doing)
            row = _as_far(_as_seen(row, seen.get(one.rank, {})), attempts.progress)
            if one.exit is not None:
                row = replace(row, doing=ended(one.exit.code), mood="over")
            if one.rank in culprits or (one.exit is not None and one.exit.code > 0 and not culprits):
                row = replace(row, mood="bad")
            found.append(row)
        return found

    def _case(self, incident: str, owner: int) -> dict[int, dict[str, Any]]:
        """What was known of each rank at an incident, as documents."""
        if incident not in self._cases:
            ranks: dict[int, dict[str, Any]] = {}
            try:
                said = json.loads(regular.read(os.path.join(incident, "evidence", "case.json"), MOST, owner))
                all_ = listed(said.get("ranks")) if isinstance(said, dict) else []
                ranks = {one["rank"]: one for one in all_ if isinstance(one, dict) and isinstance(one.get("rank"), int)}
                slow = said.get("slow") if isinstance(said, dict) else None
                for pace in listed(slow.get("paces")) if isinstance(slow, dict) else []:
                    if isinstance(pace, dict) and pace.get("rank") in ranks:
                        ranks[pace["rank"]]["pace"] = pace
            except (OSError, ValueError, RecursionError):
                pass  # it is shown as far as it is known
            self._cases[incident] = ranks
        return self._cases[incident]


def _as_far(row: Row, progress: tuple[int, float] | None) -> Row:
    """A row with what was told each minute of the slowest rank, where nothing later is known."""
    if progress is None or (row.step is not None and row.step > progress[0]):
        return row
    return replace(row, step=progress[0], unit="step", each=progress[1])


def moments(events: Sequence[Event]) -> Iterator[float]:
    """When something changes; the ranks of an attempt are started at one moment."""
    workers = [event.time if event.name == "worker" else 0.0 for event in events]
    for event, own, later in zip(events, workers, [*workers, 0.0][1:], strict=True):
        if event.name in MOMENTS or (own and not later):
            yield event.time


def _as_seen(row: Row, facts: Mapping[str, Any]) -> Row:
    """A row with what an incident has kept of its rank."""
    step = number(facts.get("step"))
    if step:
        row = replace(row, step=int(step), unit="step")
    pace = facts.get("pace")
    if isinstance(pace, dict):
        own, peers = number(pace.get("own_s")), number(pace.get("peers_s"))
        more = own - peers if own is not None and peers is not None and pace.get("late") else None
        row = replace(row, late_s=more, loading=number(pace.get("loading")), waiting=number(pace.get("waiting")))
    phases = [one for one in listed(facts.get("phases")) if isinstance(one, dict)]
    if phases:
        return replace(row, doing=str(phases[-1].get("name")))
    calls = [one for one in listed(facts.get("collectives")) if isinstance(one, dict)]
    if calls and not calls[-1].get("done") and not calls[-1].get("issued"):
        return replace(row, doing=f"in {calls[-1].get('op')}")
    return row

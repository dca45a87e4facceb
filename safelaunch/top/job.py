"""A run as it is now, of one node or several: what is in its folders, and the pulses of the ranks that run here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from safelaunch.model import WorkerProcess
from safelaunch.printable import named
from safelaunch.sizes import plural
from safelaunch.top.attempts import how
from safelaunch.top.folder import Folder
from safelaunch.top.picture import Mood, Notice, Picture, Row, one_each
from safelaunch.top.ranks import Ranks, is_there

KILLED = "has left no result, and no process that is seen here: it was killed, or runs in another container"


class Job:
    """All folders of a run.

    Args:
        folders: of its nodes.
    """

    def __init__(self, folders: Sequence[Folder]) -> None:
        self.folders = current(folders)
        self._ranks = [Ranks(one) for one in self.folders]

    def poll(self) -> None:
        """Read what is new."""
        now = time.monotonic()
        for folder, ranks in zip(self.folders, self._ranks, strict=True):
            folder.poll()
            ranks.poll(now)

    @property
    def over(self) -> bool:
        """Whether all nodes have a result, or were killed."""
        return all(one.result is not None or one.is_gone() for one in self.folders)

    def workers(self) -> list[WorkerProcess]:
        """The ranks of this node that run."""
        return [one for folder in self.folders if folder.group is not None for one in folder.group.alive]

    def run_here(self) -> str:
        """The folder of the node on which this runs; empty where none of its ranks is here."""
        return next((one.path for one in self.folders if one.group and any(map(is_there, one.group.alive))), "")

    def picture(self) -> Picture:
        """What there is to show now."""
        now, first = time.monotonic(), self.folders[0]
        rows: list[Row] = []
        for folder, ranks in zip(self.folders, self._ranks, strict=True):
            rows += ranks.rows(_host(folder, len(self.folders)), _culprits(folder), now)
        missing = [_named(one, ranks.missing, len(self.folders)) for one, ranks in self._both() if ranks.missing]
        missing += unread(self.folders)
        return Picture(
            first.run_id,
            first.script,
            self._state(),
            elapsed(self.folders),
            one_each(rows),
            notices(self.folders),
            tuple(dict.fromkeys(missing)),
            self.over,
        )

    def _both(self) -> list[tuple[Folder, Ranks]]:
        return list(zip(self.folders, self._ranks, strict=True))

    def _state(self) -> str:
        if self.over:
            return result(self.folders)
        folder = next(one for one in self.folders if one.result is None and not one.is_gone())
        if folder.group is None:
            checked = any(event.name == "preflight" for event in folder.events)
            return "starts its ranks" if checked else "checks the node"
        asked = ", asked to stop" if os.path.exists(os.path.join(folder.path, "stop")) else ""
        restarts = folder.attempts.count - 1
        return f"runs{f' (attempt {folder.group.attempt})' if restarts else ''}{asked}"


def current(folders: Sequence[Folder]) -> list[Folder]:
    """The folders in the order of their starts, without those of a run of the same name that was over before the latest
    of them: a job that was requeued may keep its name."""
    for one in folders:
        one.poll()
    latest = max((one.started for one in folders), default=0.0)
    kept = [one for one in folders if one.result is None or one.started + elapsed([one]) >= latest]
    return sorted(kept or folders, key=lambda one: one.started)


def result(folders: Sequence[Folder]) -> str:
    """How a run has ended, by the results of its nodes."""
    if all(one.result is None for one in folders):
        return KILLED
    results = [one.result for one in folders if one.result is not None]
    codes = [one.exit_code for one in results if one.exit_code is not None]
    worst = max(codes, default=0)
    stopped = ", stopped at a step" if any(one.preempted for one in results) else ""
    if worst:
        return f"has {how(worst) if worst > 0 else 'ended'}{stopped}"
    if len(codes) < len(folders):
        of = f" of {len(folders) - len(codes)} of {plural(len(folders), 'node')}" if len(folders) > 1 else ""
        return f"has ended{stopped}; how, is not known{of}"
    return f"has ended well{stopped}"


def unread(folders: Sequence[Folder]) -> list[str]:
    """What of the folders could not be read, and why."""
    return [_named(folder, fault, len(folders)) for folder in folders for fault in folder.faults]


def elapsed(folders: Sequence[Folder]) -> float:
    """Seconds since the run began, or until it ended."""
    ended = [one.result.elapsed_s if one.result is not None else None for one in folders]
    if all(one is not None for one in ended):
        return max(one for one in ended if one is not None)
    if all(one.result is not None or one.is_gone() for one in folders):  # as far as its last event
        return max((one.events[-1].time - one.started for one in folders if one.events), default=0.0)
    started = min((one.started for one in folders if one.started), default=0.0)
    return max(time.time() - started, 0.0) if started else 0.0


def notices(folders: Sequence[Folder]) -> tuple[Notice, ...]:
    """What was told, each once, in order of time. A verdict stands in its incident's folder, with the line."""
    told = [one.notice for folder in folders for one in folder.told.values()]
    said = [one for folder in folders for one in folder.attempts.notices]
    found = told + [one for one in said if not any(other.text.startswith(one.text) for other in told)]
    found.sort(key=lambda one: one.time)
    return tuple({one.text: one for one in found}.values())


def _host(folder: Folder, nodes: int) -> str:
    """The name of a folder's node, where run.json does not say it: that of a job of several is its folder's."""
    return os.path.basename(folder.path) if nodes > 1 else os.uname().nodename


def _named(folder: Folder, text: str, nodes: int) -> str:
    return f"node {named(os.path.basename(folder.path))}: {text}" if nodes > 1 else text


def _culprits(folder: Folder) -> dict[int, Mood]:
    """The ranks that the latest verdict of this attempt names, and how bad it is. Of a wait that is over, nobody."""
    told = sorted((one for one in folder.told.values() if one.time >= folder.attempts.begun), key=lambda one: one.time)
    if not told or told[-1].verdict.code == "SL501":
        return {}
    verdict = told[-1].verdict
    return dict.fromkeys(verdict.culprit_ranks, "slow" if verdict.kind == "slow" else "bad")

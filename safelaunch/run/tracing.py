"""One trace, from the side of the command: it asks the supervisors of a run, chooses the step, waits, and merges.

What it asks lies in the run directory of each node (`run.traces`), so that it works from any machine that has them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from safelaunch import files, regular, trace_words
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence import traces as left
from safelaunch.model.traces import RankTrace
from safelaunch.report import trace_file, trace_summary
from safelaunch.report.page.subject import names
from safelaunch.run.traces import ANSWER, ENDED, FILE, FOLDER, MOST, MOST_STEPS, STATES, Request
from safelaunch.settings.commandline import misuse

__all__ = ["MOST_STEPS", "Traced", "take"]
WAITING, RECORDING, WRITTEN, FAILED, MISSED = STATES
POLL_S = 0.1
TELL_S = 10.0  # between two lines about how far they are
ANSWER_S = 30.0  # a supervisor looks once a second, and tries CUPTI; a shared file system takes a while to show a file
# How long it may take for ranks to be told, in which they go on: for so long the step is chosen ahead.
ALONE_S, SHARED_S = 0.5, 10.0
AHEAD = 3  # steps, at least: one in which the profiler is made ready, and one for a rank that is ahead of the others
NAME, SUMMARY = "trace.json.gz", "summary.txt"
UNITS = {trace_words.STEPS: "step", trace_words.MARKS: "heartbeat"}


@dataclass(frozen=True)
class _Rank:
    """What a supervisor says of a rank."""

    pid: int = 0
    state: str = WAITING
    steps: int = 0
    marks: int = 0
    pace: tuple[float, ...] = (0.0, 0.0)

    def count(self, by: int) -> int:
        """How far it is."""
        return self.steps if by == trace_words.STEPS else self.marks


@dataclass(frozen=True)
class _Answer:
    """What a supervisor says."""

    number: int
    first: int = 0
    host: str = ""
    offset_s: float | None = 0.0
    clock_error_s: float | None = 0.0
    no_kernels: str = ""
    world_size: int = 0
    ranks: dict[str, _Rank] = field(default_factory=dict)


@dataclass(frozen=True)
class Traced:
    """What came of it: the file, or "" where there is none; who is missing in it, and why; in words."""

    path: str
    first: int
    count: int
    unit: str
    missing: dict[int, str]
    summary: tuple[str, ...]


def take(
    folders: Sequence[str],
    place: str,
    count: int,
    ranks: tuple[int, ...] | None,
    wait: float,
    tell: Callable[[str], None],
) -> Traced:
    """Have some steps of a run recorded, and merge what the ranks leave.

    Args:
        folders: of the run, one a node.
        place: the folder of the run itself, below which the file goes.
        count: how many steps.
        ranks: of which ranks; None for all.
        wait: seconds, until those that are there are merged without the others.
        tell: takes a line about what is being done.

    Raises:
        SafelaunchError: SL001, where the run cannot be asked, or has nothing that could be traced.
    """
    asked = _Asked(folders, Request(_free(folders), count, time.time() + ANSWER_S + wait, ranks))
    try:
        asked.choose(tell)
        asked.wait(time.monotonic() + wait, tell)
    finally:
        asked.withdraw()
    return asked.merged(place)


def _free(folders: Iterable[str]) -> int:
    """A number that no trace of the run has."""
    taken = [0]
    for folder in folders:
        with contextlib.suppress(OSError):
            taken += [int(name) for name in os.listdir(os.path.join(folder, FOLDER)) if name.isdecimal()]
    return max(taken) + 1


class _Asked:
    """A trace that supervisors have been asked for.

    Raises:
        SafelaunchError: SL001: another one is under way, or this user may not ask.
    """

    def __init__(self, folders: Sequence[str], request: Request) -> None:
        self._folders, self._request = list(folders), request
        self._answers: dict[str, _Answer] = {}
        self._missing: dict[int, str] = {}
        made: list[str] = []
        try:
            for folder in self._folders:
                _demand_none(folder)
                files.write_json(os.path.join(folder, FILE), request)
                made.append(folder)
        except OSError as error:
            self._folders = made
            self.withdraw()
            raise misuse(f"{error.filename} cannot be asked: {error.strerror}", "only who started a run may") from error

    def withdraw(self) -> None:
        """Ask no more: who records still, ends with its next step."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, FILE))

    def choose(self, tell: Callable[[str], None]) -> None:
        """Learn how far the ranks are, and choose the step with which all begin."""
        until = time.monotonic() + ANSWER_S
        while not self._hear() and time.monotonic() < until:
            time.sleep(POLL_S)
        for folder in self._silent():
            tell(f"{folder} has not answered: its ranks are not traced")
        known = self._known()
        unseen = max((answer.world_size for answer in self._answers.values()), default=0) - len(known)
        if self._request.ranks is None and unseen > 0:
            tell(
                f"{unseen} ranks are not traced: the folders of their nodes are not seen from here, or they have ended"
            )
        at, ranks = self._choice(known)
        last = self._request.first + self._request.count - 1
        for folder in self._folders:
            files.write_json(os.path.join(folder, FILE), self._request)
        unit = UNITS[self._request.by]
        steps = f"{unit} {last}" if self._request.count == 1 else f"{unit}s {self._request.first} to {last}"
        tell(f"{names(ranks)} will record {steps}: {'it is' if len(ranks) == 1 else 'they are'} at {at} now")

    def _choice(self, known: dict[int, _Rank]) -> tuple[int, tuple[int, ...]]:
        """Choose the step, and the ranks that can come to it; returns how far they are, and these."""
        if not known:
            raise misuse(*self._why_none())
        by = trace_words.STEPS if any(rank.steps for rank in known.values()) else trace_words.MARKS
        counts = {number: rank.count(by) for number, rank in known.items()}
        if not any(counts.values()):
            raise misuse(
                "no rank has made a step yet that could be counted",
                "ask again once it trains; a loop without an optimizer calls safelaunch.heartbeat() once a turn",
            )
        idle = {number for number, made in counts.items() if not made}
        ahead_s = ALONE_S if len(self._folders) == 1 else SHARED_S
        pace = max((rank.pace[by - 1] for rank in known.values() if len(rank.pace) >= by), default=0.0)
        first = max(counts.values()) + AHEAD + int(pace * ahead_s)
        chosen = tuple(sorted(set(known) - idle))
        self._missing |= dict.fromkeys(idle, f"it makes no {UNITS[by]}s that could be counted")
        self._missing |= dict.fromkeys(set(self._request.ranks or ()) - set(known), "no such rank is known here")
        self._request = dataclasses.replace(self._request, ranks=chosen, first=first, by=by)
        return max(counts.values()), chosen

    def wait(self, until: float, tell: Callable[[str], None]) -> None:
        """Wait for all of them, or for as long as that may take."""
        told_at = time.monotonic()
        while time.monotonic() < until:
            self._hear()
            states = [rank.state for rank in self._known().values()]
            if all(state in (WRITTEN, FAILED, MISSED, ENDED) for state in states) or not self._silent_ends():
                break
            if time.monotonic() - told_at > TELL_S:
                told_at = time.monotonic()
                counts = {state: states.count(state) for state in STATES if state in states}
                tell(f"waits for {len(states)} ranks: " + ", ".join(f"{n} {state}" for state, n in counts.items()))
            time.sleep(POLL_S)
        self._hear()

    def merged(self, place: str) -> Traced:
        """Put together what is there."""
        request = self._request
        found = [self._left(folder, number, rank) for folder, number, rank in self._each()]
        there = sorted((one for one in found if not one.missing), key=lambda one: one.rank)
        self._missing |= {one.rank: one.missing for one in found if one.missing}
        unit = UNITS[request.by]
        if not there:
            return Traced("", request.first, request.count, unit, self._missing, ("no rank has left a trace",))
        folder = os.path.join(place, FOLDER, str(self._request.number))
        path = os.path.join(folder, NAME)
        about = {"unit": unit, "first": request.first, "count": request.count, "hosts": sorted({o.host for o in there})}
        measured, unread = trace_file.write(path, there, left.events, about)
        self._missing |= unread
        summary = tuple(trace_summary.lines(measured, unit))
        files.write_text(os.path.join(folder, SUMMARY), "".join(f"{line}\n" for line in summary))
        for one in there:
            if one.rank not in unread:
                _remove(one)
        return Traced(path, request.first, request.count, unit, self._missing, summary)

    # ------------------------------------------------------------------------------------------------ answers

    def _hear(self) -> bool:
        """Read what there is; whether all have answered."""
        for folder in self._folders:
            with contextlib.suppress(OSError, ValueError, RecursionError, ShapeError):
                answer = checked(_Answer, json.loads(regular.read(os.path.join(folder, ANSWER), MOST)))
                if answer.number == self._request.number and answer.first in (0, self._request.first):
                    self._answers[folder] = answer
        return len(self._answers) == len(self._folders)

    def _each(self) -> list[tuple[str, int, _Rank]]:
        chosen = self._request.ranks
        return [
            (folder, int(number), rank)
            for folder, answer in self._answers.items()
            for number, rank in answer.ranks.items()
            if number.isdecimal() and len(number) < 8 and (chosen is None or int(number) in chosen)
        ]

    def _known(self) -> dict[int, _Rank]:
        return {number: rank for _, number, rank in self._each()}

    def _silent(self) -> list[str]:
        return [folder for folder in self._folders if folder not in self._answers]

    def _silent_ends(self) -> bool:
        """Whether the run goes on, on one of the nodes."""
        return any(not os.path.exists(os.path.join(folder, "result.json")) for folder in self._answers)

    def _why_none(self) -> tuple[str, str]:
        if not self._answers:
            why = "the supervisor of this run has not answered"
            return why, "it has ended, or it does not see what is written in this folder; look at its agent.jsonl"
        return "none of these ranks runs, or none has a black box", "ask again once the ranks are there"

    # ----------------------------------------------------------------------------------------- what was left

    def _left(self, folder: str, number: int, rank: _Rank) -> RankTrace:
        answer, place = self._answers[folder], os.path.join(folder, FOLDER, str(self._request.number))
        if rank.state in (WRITTEN, FAILED):
            found = left.read(place, number, answer.host, os.lstat(folder).st_uid)
            found = dataclasses.replace(found, offset_s=answer.offset_s or 0.0, no_kernels=answer.no_kernels)
            return dataclasses.replace(found, clock_error_s=answer.clock_error_s)
        return RankTrace(number, answer.host, missing=self._why(rank))

    def _why(self, rank: _Rank) -> str:
        first, unit, at = self._request.first, UNITS[self._request.by], rank.count(self._request.by)
        if rank.state == MISSED:
            return f"it was past {unit} {first} before it was told: ask again"
        if rank.state == ENDED or not self._silent_ends():
            return f"it has ended, at {unit} {at}"
        if rank.state == RECORDING:
            return f"it records since {unit} {first}, and has not come through it: it is at {unit} {at}"
        return f"it has not come to {unit} {first} in time: it is at {unit} {at}"


def _demand_none(folder: str) -> None:
    try:
        other = checked(Request, json.loads(regular.read(os.path.join(folder, FILE), MOST)))
    except (OSError, ValueError, RecursionError, ShapeError):
        return
    if time.time() < other.until:
        left_s = other.until - time.time()
        raise misuse(
            f"another trace of this run is under way ({FOLDER}/{other.number})",
            f"wait for it ({left_s:.0f} s at most), or remove {os.path.join(folder, FILE)} if nobody waits for it",
        )


def _remove(trace: RankTrace) -> None:
    """What has been merged is not kept twice."""
    for what in (left.EVENTS, left.CALLS, left.META):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(os.path.dirname(trace.path), left.name(trace.rank, what)))

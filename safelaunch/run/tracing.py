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
from dataclasses import dataclass

from safelaunch import files, trace_words
from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.evidence import traces as left
from safelaunch.model.traces import RankEvents, RankTrace
from safelaunch.open_folder import OpenFolder
from safelaunch.printable import line
from safelaunch.report import trace_file, trace_summary
from safelaunch.report.page.subject import names
from safelaunch.run import trace_answers
from safelaunch.run.trace_answers import Answer, RankAnswer
from safelaunch.run.traces import ANSWER, ENDED, FILE, FOLDER, MOST, MOST_STEPS, STATES, Request
from safelaunch.settings.commandline import misuse

__all__ = ["MOST_STEPS", "Asked", "Traced", "ask"]
WAITING, RECORDING, WRITTEN, FAILED, MISSED = STATES
POLL_S = 0.1
TELL_S = 10.0  # between two lines about how far they are
ANSWER_S = 30.0  # a supervisor looks once a second, and tries CUPTI; a shared file system takes a while to show a file
# How long it may take for ranks to be told, in which they go on: for so long the step is chosen ahead.
ALONE_S, SHARED_S = 0.5, 10.0
AHEAD = 3  # steps, at least: one in which the profiler is made ready, and one for a rank that is ahead of the others
LONGEST_S = 366 * 86400.0  # who asks for longer has not asked
RESULT = "result.json"
NAME, SUMMARY = "trace.json.gz", "summary.txt"
UNITS = {trace_words.STEPS: "step", trace_words.MARKS: "heartbeat"}


@dataclass(frozen=True)
class Traced:
    """What came of it: the file, or "" where there is none; who is missing in it, and why; in words."""

    path: str
    first: int
    count: int
    unit: str
    missing: dict[int, str]
    summary: tuple[str, ...]


def ask(
    folders: Sequence[OpenFolder],
    place: OpenFolder,
    count: int,
    ranks: tuple[int, ...] | None,
    wait: float,
    tell: Callable[[str], None],
) -> Asked:
    """Have some steps of a run recorded. What the ranks leave is put together by `Asked.merged`.

    Args:
        folders: of the run, one a node; `files` holds them.
        place: the folder of the run itself, below which the file goes; likewise.
        count: how many steps.
        ranks: of which ranks; None for all.
        wait: seconds, until those that are there are merged without the others.
        tell: takes a line about what is being done.

    Raises:
        SafelaunchError: SL001, where the run cannot be asked, or has nothing that could be traced.
    """
    asked = Asked(folders, place, Request(_free([*folders, place]), count, time.time() + ANSWER_S + wait, ranks))
    try:
        asked.choose(tell)
        asked.wait(time.monotonic() + wait, tell)
    finally:
        asked.withdraw()
    return asked


def _free(folders: Iterable[OpenFolder]) -> int:
    """A number that no trace of the run has."""
    taken = [0]
    for folder in folders:
        with contextlib.suppress(OSError):
            names_ = folder.names(os.path.join(folder.path, FOLDER))
            taken += [int(name) for name in names_ if name.isdecimal() and len(name) < 9]
    return max(taken) + 1


class Asked:
    """A trace that supervisors have been asked for.

    Raises:
        SafelaunchError: SL001: another one is under way, or this user may not ask.
    """

    def __init__(self, folders: Sequence[OpenFolder], place: OpenFolder, request: Request) -> None:
        self._folders, self._place, self._request = list(folders), place, request
        self._answers: dict[str, Answer] = {}
        self._unread: dict[str, str] = {}  # by folder: why what is there is no answer
        self._missing: dict[int, str] = {}
        self._written: dict[str, os.stat_result | None] = {}
        try:
            for folder in self._folders:
                _demand_none(folder)
                self._write(folder)
        except BaseException:
            self.withdraw()
            raise

    @property
    def ranks(self) -> int:
        """How many are answered for."""
        return len(self._each())

    def _write(self, folder: OpenFolder) -> None:
        # Root's request is read by the supervisor of another user; nobody else comes into his folder.
        mode = 0o600 if folder.owner == os.geteuid() else 0o644
        try:
            files.put(folder.descriptor, FILE, json.dumps(to_json(self._request)).encode(), mode, exact=True)
        except OSError as error:
            why = "only who started a run may"
            raise misuse(f"{folder.path} cannot be asked: {error.strerror}", why) from error
        self._written[folder.path] = folder.found(os.path.join(folder.path, FILE))

    def withdraw(self) -> None:
        """Ask no more: who records still, ends with its next step."""
        for folder in self._folders:
            if (made := self._written.get(folder.path)) is not None:
                folder.remove(os.path.join(folder.path, FILE), made)

    def choose(self, tell: Callable[[str], None]) -> None:
        """Learn how far the ranks are, and choose the step with which all begin."""
        until = time.monotonic() + ANSWER_S
        while not self._hear() and time.monotonic() < until:
            time.sleep(POLL_S)
        for folder in self._silent():
            tell(f"{folder} has not answered{self._why_unread(folder)}: its ranks are not traced")
        known = self._known()
        unseen = max((answer.world_size for answer in self._answers.values()), default=0) - len(known)
        if self._request.ranks is None and unseen > 0:
            tell(
                f"{unseen} ranks are not traced: the folders of their nodes are not seen from here, or they have ended"
            )
        at, ranks = self._choice(known)
        last = self._request.first + self._request.count - 1
        for asked in self._folders:
            self._write(asked)
        unit = UNITS[self._request.by]
        steps = f"{unit} {last}" if self._request.count == 1 else f"{unit}s {self._request.first} to {last}"
        tell(f"{names(ranks)} will record {steps}: {'it is' if len(ranks) == 1 else 'they are'} at {at} now")

    def _choice(self, known: dict[int, RankAnswer]) -> tuple[int, tuple[int, ...]]:
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

    def merged(self) -> Traced:
        """Put together what is there.

        Raises:
            SafelaunchError: SL001, where the file cannot be written.
        """
        request = self._request
        nodes = {number: folder for folder, number, _ in self._each()}
        found = [self._left(folder, number, rank) for folder, number, rank in self._each()]
        there = sorted((one for one in found if not one.missing), key=lambda one: one.rank)
        self._missing |= {one.rank: one.missing for one in found if one.missing}
        unit = UNITS[request.by]
        folder = os.path.join(self._place.path, FOLDER, str(request.number))
        path = os.path.join(folder, NAME)
        hosts = sorted({one.host for one in there if one.host})
        about = {"unit": unit, "first": request.first, "count": request.count, "hosts": hosts}

        def events(one: RankTrace) -> RankEvents:
            return left.events(nodes[one.rank], one)

        try:
            measured, unread = trace_file.write(path, there, events, about)
            self._missing |= unread
            summary = tuple(trace_summary.lines(measured, unit))
            if measured:
                files.write_lines(os.path.join(folder, SUMMARY), [line(one, width=400) for one in summary])
        except OSError as error:
            why = f"{error.filename} cannot be written: {error.strerror}"
            raise misuse(why, "look at that folder; what the ranks have left is still there") from error
        for facts in measured:
            left.remove(nodes[facts.trace.rank], request.number, facts.trace.rank)
        return Traced(path if measured else "", request.first, request.count, unit, self._missing, summary)

    # ------------------------------------------------------------------------------------------------ answers

    def _hear(self) -> bool:
        """Read what there is; whether all have answered."""
        for folder in self._folders:
            try:
                answer = trace_answers.read(folder)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self._unread[folder.path] = str(error)
                continue
            if answer.number == self._request.number and answer.first in (0, self._request.first):
                self._answers[folder.path] = answer
        return len(self._answers) == len(self._folders)

    def _each(self) -> list[tuple[OpenFolder, int, RankAnswer]]:
        """The ranks that were answered for; two nodes that say to have the same one are not both believed."""
        chosen = self._request.ranks
        found: dict[int, tuple[OpenFolder, int, RankAnswer]] = {}
        for folder in self._folders:
            answer = self._answers.get(folder.path)
            for name, rank in answer.ranks.items() if answer is not None else ():
                if chosen is None or int(name) in chosen:
                    found.setdefault(int(name), (folder, int(name), rank))
        return list(found.values())

    def _known(self) -> dict[int, RankAnswer]:
        return {number: rank for _, number, rank in self._each()}

    def _silent(self) -> list[str]:
        return [folder.path for folder in self._folders if folder.path not in self._answers]

    def _silent_ends(self) -> bool:
        """Whether the run goes on, on one of the nodes."""
        answered = [folder for folder in self._folders if folder.path in self._answers]
        return any(folder.found(os.path.join(folder.path, RESULT)) is None for folder in answered)

    def _why_unread(self, folder: str) -> str:
        return f" in a way that can be read ({ANSWER}: {self._unread[folder]})" if folder in self._unread else ""

    def _why_none(self) -> tuple[str, str]:
        if not self._answers:
            why = f"the supervisor of this run has not answered{self._why_unread(self._folders[0].path)}"
            return why, "it has ended, or it does not see what is written in this folder; look at its agent.jsonl"
        return "none of these ranks runs, or none has a black box", "ask again once the ranks are there"

    # ----------------------------------------------------------------------------------------- what was left

    def _left(self, folder: OpenFolder, number: int, rank: RankAnswer) -> RankTrace:
        answer = self._answers[folder.path]
        if rank.state in (WRITTEN, FAILED):
            found = left.read(folder, self._request.number, number, answer.shown_host)
            found = dataclasses.replace(found, offset_s=answer.offset_s or 0.0, no_kernels=answer.no_kernels)
            return dataclasses.replace(found, clock_error_s=answer.clock_error_s)
        return RankTrace(number, answer.shown_host, missing=self._why(rank))

    def _why(self, rank: RankAnswer) -> str:
        first, unit, at = self._request.first, UNITS[self._request.by], rank.count(self._request.by)
        if rank.state == MISSED:
            return f"it was past {unit} {first} before it was told: ask again"
        if rank.state == ENDED or not self._silent_ends():
            return f"it has ended, at {unit} {at}"
        if rank.state == RECORDING:
            return f"it records since {unit} {first}, and has not come through it: it is at {unit} {at}"
        return f"it has not come to {unit} {first} in time: it is at {unit} {at}"


def _demand_none(folder: OpenFolder) -> None:
    path = os.path.join(folder.path, FILE)
    try:
        other = checked(Request, json.loads(folder.read(path, MOST)))
    except (OSError, ValueError, RecursionError, ShapeError):
        return
    left_s = other.until - time.time()
    if 0 < left_s < LONGEST_S:
        raise misuse(
            f"another trace of this run is under way ({FOLDER}/{other.number}), as {path} says",
            f"wait for it ({left_s:.0f} s at most), or remove that file if nobody waits for it",
        )

"""What NCCL's RAS threads report of the job, as a further source of a verdict on a hang. Pure.

The report's wording is that of NVIDIA/nccl, src/ras/client_support.cc, versions 2.24 to 2.29. Its numbers of ranks are
those of a communicator: they are the job's only where the communicator is as large as the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.confidence import HIGHER
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict

QUOTED = 2  # lines; a verdict has four, and the bundle has all

# A row of the table of communicators: group, comms, nodes, ranks per node, ranks per comm, ranks in group, status, ...
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\d+\s+[\d-]+\s+(\d{1,9})\s+\d+\s+[A-Z]+\s+\S+\s*$")
_HEAD = re.compile(r"^#(\d+)-\d+ \([0-9a-f]+\) ([A-Z]+)")
_END_OF_COUNTS = re.compile(r"\s*$|.*operation counts")
_MANY = re.compile(r"^\s+(\d+) ranks (?:have launched up to operation (\d{1,18})|have not launched any operations)")
_ONE = re.compile(r"^\s+Rank (\d{1,9}) has (?:launched up to operation (\d{1,18})|not launched any operations)")
_RANK = re.compile(r"^\s+Rank (\d{1,9}) -- ")
_MISSING = re.compile(r"^\s+The missing ranks?: ([\d,-]+)")
_TELLING = re.compile(
    r"Process \d+ on node|Rank \d+ |The missing rank|considered dead|have different .* counts|have launched up to|"
    r"have not launched|different status|reported |error"
)


@dataclass(frozen=True)
class Report:
    """What a report says of ranks.

    Args:
        absent: those that did not answer.
        behind: those that have launched fewer operations than their peers, by the communicators that span the job.
        lines: those that name somebody.
    """

    absent: frozenset[int] = frozenset()
    behind: frozenset[int] = frozenset()
    lines: tuple[str, ...] = ()


def refine(verdict: Verdict, view: View) -> Verdict:
    """The verdict with NCCL's own word on it. Where it names the same ranks, one more source agrees; where it names
    others, it is quoted, and changes nothing: counts that differ by one are everyday life in a job that is at work."""
    case = view.case
    if case.incident.kind != "hang" or not case.ras or has(verdict.code, Trait.NOTHING_WRONG):
        return verdict
    report = read(case.ras, case.world_size)
    if not report.lines:
        return verdict
    named = set(verdict.culprit_ranks)
    agrees = bool(named) and named in (set(report.absent), set(report.behind))
    lines = tuple(f"NCCL's RAS reports: {one_line(line, 160)}" for line in report.lines[:QUOTED])
    place = 1 if named else 0
    return replace(
        verdict,
        because=(*verdict.because[:place], *lines, *verdict.because[place:]),
        confidence=HIGHER[verdict.confidence] if agrees else verdict.confidence,
    )


def read(text: str, world_size: int) -> Report:
    """Read a report. Unknown lines are passed over: the wording changes from release to release."""
    reader = _Reader(world_size)
    lines: list[str] = []
    for line in text.splitlines():
        for pattern, take in _LINES:
            if match := pattern.match(line):
                take(reader, match)
                break
        if _TELLING.search(line):
            lines.append(line.strip())
    reader.end_counts()
    # A line that names somebody says more than one that counts.
    lines.sort(key=lambda line: not re.match(r"Rank|Process|The missing", line))
    return Report(frozenset(reader.absent), frozenset(reader.behind), tuple(dict.fromkeys(lines)))


class _Reader:
    """What the lines of a report have said so far."""

    def __init__(self, world_size: int) -> None:
        self.absent: set[int] = set()
        self.behind: set[int] = set()
        self._world_size = world_size
        self._sizes: dict[str, int] = {}  # of communicators, by group
        self._spans, self._kind = False, ""  # whether the ranks that follow are the job's, and what is wrong with them
        self._launched = 0  # operations of those that follow
        self._counts: dict[int, set[int]] = {}  # ranks by operations
        self._most: int | None = None

    def take_row(self, row: re.Match[str]) -> None:
        self._sizes[row[1]] = int(row[2])

    def take_head(self, head: re.Match[str]) -> None:
        self._spans, self._kind = self._sizes.get(head[1]) == self._world_size, head[2]

    def take_many(self, many: re.Match[str]) -> None:
        self._count(int(many[2] or 0))

    def take_one(self, one: re.Match[str]) -> None:
        self._count(int(one[2] or 0))
        if self._spans:
            self._add(int(one[1]))

    def take_rank(self, rank: re.Match[str]) -> None:
        """A rank of a list, below what is said of all of them."""
        if not self._spans:
            return
        if self._kind == "INCOMPLETE":
            self.absent.add(int(rank[1]))
        elif self._most is not None:
            self._add(int(rank[1]))

    def take_missing(self, missing: re.Match[str]) -> None:
        if self._spans:
            self.absent |= _numbers(missing[1], self._world_size)

    def end_counts(self, _: object = None) -> None:
        """The ranks that were named with fewer operations than the most are behind."""
        if self._most is not None:
            self.behind.update(*(ranks for count, ranks in self._counts.items() if count < self._most))
        self._counts, self._most = {}, None

    def _count(self, launched: int) -> None:
        self._launched = launched
        self._most = max(launched, -1 if self._most is None else self._most)

    def _add(self, rank: int) -> None:
        self._counts.setdefault(self._launched, set()).add(rank)


# What to do with a line, by the first pattern that it matches.
_LINES: tuple[tuple[re.Pattern[str], Callable[[_Reader, re.Match[str]], None]], ...] = (
    (_ROW, _Reader.take_row),
    (_HEAD, _Reader.take_head),
    (_END_OF_COUNTS, _Reader.end_counts),
    (_MANY, _Reader.take_many),
    (_ONE, _Reader.take_one),
    (_RANK, _Reader.take_rank),
    (_MISSING, _Reader.take_missing),
)


def _numbers(text: str, size: int) -> set[int]:
    """The ranks that a list names, such as `0-3,7`, of a job of this size. A report may hold anything: no more are
    looked at than the job has."""
    ranks: set[int] = set()
    left = size
    for part in text.split(","):
        span = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if span is None:
            continue
        first = int(span[1])
        named = range(first, min(int(span[2] or first), size - 1) + 1)
        left -= max(1, len(named))
        if left < 0:
            break
        ranks.update(named)
    return ranks

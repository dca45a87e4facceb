"""What NCCL's RAS threads report of the job, as a further source of a verdict on a hang. Pure.

The report's wording is that of NVIDIA/nccl, src/ras/client_support.cc, versions 2.24 to 2.29. Its numbers of ranks are
those of a communicator: they are the job's only where the communicator is as large as the job.
"""

from __future__ import annotations

import re
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
    """What a report says of ranks: `absent` did not answer, `behind` have launched fewer operations than their peers,
    by the communicators that span the job; `lines` are those that name somebody."""

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
    sizes: dict[str, int] = {}
    absent: set[int] = set()
    counts: dict[int, set[int]] = {}
    lines: list[str] = []
    spans, kind, seen = False, "", 0
    highest: int | None = None
    behind: set[int] = set()
    for line in text.splitlines():
        if row := _ROW.match(line):
            sizes[row[1]] = int(row[2])
        elif head := _HEAD.match(line):
            spans, kind = sizes.get(head[1]) == world_size, head[2]
        elif not line.strip() or "operation counts" in line:
            behind |= _least(counts, highest)
            counts, highest = {}, None
        elif many := _MANY.match(line):
            seen = int(many[2] or 0)
            highest = max(seen, -1 if highest is None else highest)
        elif one := _ONE.match(line):
            seen = int(one[2] or 0)
            highest = max(seen, -1 if highest is None else highest)
            if spans:
                counts.setdefault(seen, set()).add(int(one[1]))
        elif (rank := _RANK.match(line)) and spans:
            if kind == "INCOMPLETE":
                absent.add(int(rank[1]))
            elif highest is not None:
                counts.setdefault(seen, set()).add(int(rank[1]))
        elif (missing := _MISSING.match(line)) and spans:
            absent |= _numbers(missing[1], world_size)
        if _TELLING.search(line):
            lines.append(line.strip())
    behind |= _least(counts, highest)
    # A line that names somebody says more than one that counts.
    lines.sort(key=lambda line: not re.match(r"Rank|Process|The missing", line))
    return Report(frozenset(absent), frozenset(behind), tuple(dict.fromkeys(lines)))


def _least(counts: dict[int, set[int]], highest: int | None) -> set[int]:
    """The ranks that were named with fewer operations than the most."""
    return {rank for count, ranks in counts.items() if highest is not None and count < highest for rank in ranks}


def _numbers(text: str, size: int) -> set[int]:
    """The ranks that a list names, such as `0-3,7`, of a job of this size. A report may hold anything: no more are
    looked at than the job has."""
    found: set[int] = set()
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
        found.update(named)
    return found

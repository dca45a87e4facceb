"""What NCCL's RAS reports of a job: ranks with other counts of operations than their peers, processes that are gone."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, quote
from safelaunch.diagnosis.logs.waits import hang_verdict
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import Noted

SHOWN = 4  # lines

_WHAT = re.compile(r"Communicator ranks have different (?P<op>[\w ]+?) (?:operation )?counts")
_MANY = re.compile(
    r"^\s*(?P<count>\d{1,9}) ranks? ha(?:s|ve) (?:launched up to operation (?P<number>\d{1,18})|not launched)"
)
_ONE = re.compile(
    r"^\s*Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<number>\d{1,18})|(?P<none>not launched))"
)
_RANK = re.compile(
    r"^\s*Rank (?P<rank>\d{1,9}) -- (?:GPU (?P<gpu>[\w,]+) )?managed by process (?P<pid>\d{1,9}) on node (?P<node>\S+)"
)
_PROCESS = re.compile(
    r"^\s*Process (?P<pid>\d{1,9}) on node (?P<node>\S+) managing GPUs? (?P<gpu>[\d, ]+?)(?: has| is|\W*$)"
)
_GONE = re.compile(
    r"considered dead|Missing communicator data|[Mm]issing ranks?:|did not respond|unreachable|INCOMPLETE"
)


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict on a report of RAS; None where the log holds none that names anything."""
    lines = [one for one in timeline.facts.noted if one.kind == "ras"]
    return _of_counts(lines) or _of_the_gone(lines)


def _of_counts(lines: list[Noted]) -> Verdict | None:
    what = next((match for one in lines if (match := _WHAT.search(one.at.text))), None)
    if what is None:
        return None
    groups: list[tuple[str, str]] = []
    named: dict[int, str] = {}
    for one in lines:
        many, single, rank = (pattern.search(one.at.text) for pattern in (_MANY, _ONE, _RANK))
        if many:
            number = many["number"] or "none"
            groups.append((f"{many['count']} rank{'s' if many['count'] != '1' else ''}", number))
        elif single:
            groups.append((f"rank {single['rank']}", single["number"] or "none"))
            named[int(single["rank"])] = ""
        elif rank:
            named[int(rank["rank"])] = f"GPU {rank['gpu']} on node {rank['node']}, pid {rank['pid']}"
    if len(groups) < 2:
        return None
    counts = " and ".join(f"{who} {number}" for who, number in groups[:4])
    few = f": {names(named)}{_places(named)} {_apart(groups, named)}" if named else ""
    return hang_verdict(
        "SL399",
        f"NCCL's RAS shows ranks with different counts of {what['op']}: {counts}{few}",
        because=_quoted(lines),
        remedy="take the stacks of these ranks and of one of the others (py-spy dump): they stand in different calls. "
        "Counts that differ by one may also be of a job that is at work: ask RAS again, a few seconds later",
        confidence="low",
        waiting=(),
    )


def _quoted(lines: list[Noted]) -> tuple[str, ...]:
    return tuple(quote(one.at) for one in lines if not one.at.text.startswith("#"))[: SHOWN + 1]


def _apart(groups: list[tuple[str, str]], named: dict[int, str]) -> str:
    """Which of the numbers the named ranks have, where their group is as large as they are many."""
    own = [number for who, number in groups if who.partition(" ")[0] == str(len(named))]
    numbers = [int(number) for _, number in groups if number.isdecimal()]
    if len(own) != 1 or not own[0].isdecimal() or not numbers:
        return f"{'is' if len(named) == 1 else 'are'} apart from the others"
    verb = "is" if len(named) == 1 else "are"
    return f"{verb} ahead of the others" if int(own[0]) == max(numbers) else f"{verb} behind the others"


def _places(named: dict[int, str]) -> str:
    places = [f"{place}" for _, place in sorted(named.items()) if place]
    return f" ({'; '.join(places[:3])}{'; ...' if places[3:] else ''})" if places else ""


def _of_the_gone(lines: list[Noted]) -> Verdict | None:
    if not any(_GONE.search(one.at.text) for one in lines):
        return None
    gone: dict[str, Noted] = {}
    ranks: set[int] = set()
    for one in lines:
        process, rank = _PROCESS.search(one.at.text), _RANK.search(one.at.text)
        if process:
            gone[f"process {process['pid']} on node {process['node']} (GPU {process['gpu'].strip()})"] = one
        elif rank:
            ranks.add(int(rank["rank"]))
            gone.setdefault(f"process {rank['pid']} on node {rank['node']} (GPU {rank['gpu']})", one)
    if not gone:
        return None
    who = "; ".join(list(gone)[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    of = f", {names(ranks)}" if ranks else ""
    return hang_verdict(
        "SL399",
        f"NCCL's RAS got no answer of {who}{of}",
        because=_quoted(lines),
        remedy="look at that node and process first: its output, the kernel log of its node, and whether it still runs",
        confidence="low",
        waiting=(),
    )

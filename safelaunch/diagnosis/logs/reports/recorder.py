"""What the analyser of torch's Flight Recorder (torchfrtrace, fr_trace.py) has found: ranks that came with something
else to a collective than their peers, or did not come."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, quote
from safelaunch.diagnosis.logs.waits import hang_verdict
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import Noted

LONG = 160  # characters of what differs

_BEGINS = re.compile(
    r"(?:Collective (?:sequence number: )?(?P<seq>\d{1,18}) at entry|Not all ranks joining collective(?:,? "
    r"sequence number:?)? (?P<seq2>\d{1,18}))"
)
_FIELD = re.compile(
    r"^\s*(?P<name>group info|collective|missing ranks|input sizes|expected ranks|collective state|error msg): ?"
    r"(?P<value>.+)"
)
_TYPE = re.compile(r"\b(?P<type>[A-Z_]{4,60}MISMATCH)\b")
_CULPRIT = re.compile(r"Culprit rank (?P<rank>\d{1,7})")
_DIFFERS = re.compile(r"MISMATCH[,:]? *(?P<what>Expected .{1,400}?)(?=, Culprit rank|$)")

_MEANS = {
    "SIZE": ("SL410", "came with other sizes"),
    "DTYPE": ("SL410", "came with another dtype"),
    "TYPE": ("SL411", "came with another collective"),
    "STATE": ("SL399", "were in another state"),
}


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict on a report of the analyser; None where the log holds none."""
    lines = [one for one in timeline.facts.noted if one.kind == "recorder"]
    text = "\n".join(one.at.text for one in lines)
    missing, kind = _field(lines, "missing ranks"), _TYPE.search(text)
    if missing:
        return _of_missing(lines, missing)
    if kind is None:
        return None
    word = next((name for name in ("DTYPE", "SIZE", "STATE", "TYPE") if name in kind["type"]), "TYPE")
    code, did = _MEANS[word]
    ranks = sorted({int(number) for number in _CULPRIT.findall(text)})
    differs = _DIFFERS.search(text)
    what = f": {_short(differs['what'])}" if differs else ""
    who = f"{names(ranks)} " if ranks else "ranks "
    did = did.replace("were", "was") if len(ranks) == 1 else did
    return hang_verdict(
        code,
        f"{who}{did} to {_collective(lines)} than expected, by the Flight Recorder's analysis ({kind['type']}){what}",
        because=tuple(quote(one.at) for one in _telling(lines)),
        remedy="compare what these ranks and one of the others bring to this call: a batch, a length or a condition "
        "that differs; the analyser takes the first rank that it reads as the right one",
        confidence="medium",
        waiting=(),
    )


def _of_missing(lines: list[Noted], missing: str) -> Verdict:
    ranks = sorted({int(number) for number in re.findall(r"\d{1,7}", missing)})
    return hang_verdict(
        "SL301",
        f"{names(ranks)} never joined {_collective(lines)}, by the Flight Recorder's analysis",
        ranks,
        because=tuple(quote(one.at) for one in _telling(lines)),
        remedy="look at what these ranks did then: their own output, their stacks, and whether they still run",
        confidence="medium",
        waiting=(),
    )


def _collective(lines: list[Noted]) -> str:
    """`all_reduce #39 of group default_pg`."""
    seq = next((match["seq"] or match["seq2"] for one in lines if (match := _BEGINS.search(one.at.text))), "")
    op = _field(lines, "collective").rpartition(":")[2].strip()
    group = _field(lines, "group info").rpartition(":")[2].strip()
    return f"{op or 'a collective'}{f' #{seq}' if seq else ''}{f' of group {group}' if group else ''}"


def _field(lines: list[Noted], name: str) -> str:
    found = (match for one in lines if (match := _FIELD.match(one.at.text)))
    return next((match["value"].strip() for match in found if match["name"] == name), "")


def _telling(lines: list[Noted]) -> list[Noted]:
    """The lines that say what is wrong, and of which collective."""
    names_ = ("error msg", "missing ranks", "collective:", "input sizes")
    found = [one for one in lines if _BEGINS.search(one.at.text) or one.at.text.strip().startswith(names_)]
    return sorted(found, key=lambda one: not _TYPE.search(one.at.text))[:4]


def _short(text: str) -> str:
    return text if len(text) <= LONG else text[: LONG - 3].rstrip() + "..."

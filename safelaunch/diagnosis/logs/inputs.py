"""Errors that list what every rank brought to a call: they are of no rank, and tell themselves what differs."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Candidate
from safelaunch.diagnosis.wording import names
from safelaunch.model.logs import Raised

MOST = 6  # shapes that are shown
_INPUT = re.compile(
    r"^\s*(?:[-*] )?(?:[Pp]rocess|[Rr]ank)(?:es|s)? ?\[?(?P<rank>\d{1,7})\]?\s?[:=] ?"
    r"(?:torch\.Size\()?(?P<shape>\[[\d, ]{0,200}\]|\([\d, ]{0,200}\))",
    re.MULTILINE,
)
_OF_SHAPES = re.compile(r"\b(?:shapes?|sizes?|dimensions?|lengths?|mismatch\w*)\b", re.IGNORECASE)
_CALL = re.compile(r"\bOperation: [`'\"]?(?P<call>[\w.]{1,100})")


def of_all(one: Raised) -> Candidate | None:
    """The candidate of an exception that lists the shapes which all ranks brought, where they differ."""
    brought = {int(match["rank"]): match["shape"].replace(" ", "") for match in _INPUT.finditer(one.message)}
    shapes: dict[str, list[int]] = {}
    for rank, shape in brought.items():
        shapes.setdefault(shape, []).append(rank)
    if len(shapes) < 2 or not _OF_SHAPES.search(one.message):
        return None
    call = _CALL.search(one.message)
    to = f" to {call['call'].rpartition('.')[2]}" if call else ""
    shown = [f"{shape.replace(',', ', ')} on {names(ranks)}" for shape, ranks in shapes.items()]
    more = ", ..." if shown[MOST:] else ""
    where, pad = _apart([[int(number) for number in re.findall(r"\d+", shape)] for shape in shapes])
    return Candidate(
        rank=one.rank,
        host=one.host,
        code="SL410",
        at=one.at,
        what=f"the ranks brought tensors of different shapes{to}: {', '.join(shown[:MOST])}{more}{where}",
        sources=frozenset({"traceback" if one.whole else "message"}),
        alike=("inputs", tuple(shapes)),
        remedy=f"{pad} before this call, on all ranks alike (accelerate: pad_across_processes; a collator that pads to "
        "one length), or gather objects in place of tensors",
        traceback=one.traceback,
        message_only=not one.whole,
        local=one.local,
        process=one.process,
        blameless=True,
    )


def _apart(shapes: list[list[int]]) -> tuple[str, str]:
    """In which dimensions shapes differ, as a headline goes on, and what to do."""
    if len({len(shape) for shape in shapes}) > 1:
        return "", "bring tensors with the same number of dimensions"
    apart = [at for at, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    dimensions = f"dimension{'s' if apart[1:] else ''} {', '.join(map(str, apart))}"
    return f"; they differ in {dimensions}", f"pad {dimensions} to the largest size"

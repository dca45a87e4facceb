"""Exceptions that only point to another one: `See inner exception for details`."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.diagnosis.wording import one_line
from safelaunch.model.logs import LogFacts, LogLine

POINTS = re.compile(r"\b[Ss]ee (?:the )?inner exception")
# What says of a connection how it failed: with an address, or a limit.
_HOW = re.compile(
    r"(?:client socket has (?:timed out|failed)|failed to connect to|[Cc]onnection (?:refused|reset|timed out)"
    r"|(?:timed? ?out) (?:after|waiting|while)|failed to (?:bind|listen|resolve)|[Nn]ame or service not known)[^\n]*"
)


def words(facts: LogFacts, at: LogLine, chain: tuple[str, ...] = ()) -> tuple[str, LogLine | None]:
    """What the exception that was meant says, and where, by its own words or by the line before that tells of it."""
    for said in chain:
        if match := _HOW.search(said):
            return one_line(match[0], 150), None
    lines = [s.at for s in facts.sightings if s.at.file == at.file and s.at.line < at.line and _HOW.search(s.at.text)]
    if not lines:
        return (one_line(chain[0], 150), None) if chain else ("", None)
    match = _HOW.search(lines[-1].text)
    return (one_line(match[0], 150) if match else ""), lines[-1]


def with_inner_words(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and in place of `see inner exception` what that one says."""
    found = []
    for one in candidates:
        chain = next((raised.chain for raised in facts.raised if raised.at == one.at), ())
        said, at = words(facts, one.at, chain) if POINTS.search(one.what) else ("", None)
        what = POINTS.split(one.what)[0].rstrip(" .") + f": {said}"
        line = (quote(at),) if at is not None else ()
        found.append(replace(one, what=what, more=(*line, *one.more)) if said else one)
    return found

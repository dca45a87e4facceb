"""Why a process died of a signal, by what was written before: a check that failed, an exception of C++, an abort."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.diagnosis.logs.timeline import Candidate, quote, words
from safelaunch.model.logs import LogFacts, Sighting

FATAL = ("check-failed", "cpp-what", "cuda-fault", "device-assert", "gpu-error", "gpu-hardware", "process-aborted")
DIED = ("crashed in native code", "aborted (")
NEAR = 300  # lines


def with_reasons(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and of the only one that died of a signal what was said before its death."""
    died = [one for one in candidates if one.what.startswith(DIED)]
    if len(died) != 1:
        return candidates
    one = died[0]
    said = _said_before(facts, one)
    if said is None:
        return candidates
    own = said.field("what") or words(said.at)
    explained = replace(one, what=f"{one.what}, after `{own[:140]}`", more=(quote(said.at), *one.more))
    return [explained if other is one else other for other in candidates]


def _said_before(facts: LogFacts, died: Candidate) -> Sighting | None:
    """The last fatal word before a death, of the same rank or of one that is not known."""
    near = [
        s
        for s in facts.sightings
        if s.known.name in FATAL and s.at.file == died.at.file and 0 < died.at.line - s.at.line <= NEAR
        if s.rank in (None, died.rank)
        if not s.at.text.startswith(("Segmentation fault", "Aborted", "Killed", "Bus error", "[", "*** "))
    ]
    return min(near, default=None, key=lambda s: (FATAL.index(s.known.name), s.at.line))

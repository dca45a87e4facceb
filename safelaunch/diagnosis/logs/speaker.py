"""Whose a failure is that no mark gives to a rank: what its own words say, and what the lines around it say.

A rank that its own message names is taken. One that only lines before it name may be of another process that writes to
the same log: it is told as what it is, and nobody is blamed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.diagnosis.wording import names
from safelaunch.model.logs import Ended, LogFacts, LogLine, Noted, Raised

BEFORE, AFTER = 12, 2  # lines around a failure
SHORT = 80  # characters of a line that names a rank
_NO_RANK = re.compile(
    r"\w*(?:Controller|Coordinator|EngineCore|APIServer|ApiServer|Driver|Supervisor|Router|Monitor)(?![a-z])"
)
_DEVICES = ("device=TPU:", "xla:")
# An exception that speaks of a rank may have been raised by another one, whose share of something it looks at. Who
# tells of its own numbers, device or host is that rank.
_MENTIONS = re.compile(r"(?i)(?:\b(?:on|in|for|from|at) (?:global )?rank[: ]|: ['\"]?(?:global )?rank[ :=#])")
_OF_ITSELF = re.compile(
    r"(?i)\bfound (?:nan|inf)\b|\b(?:device|node|host|hostname|pid)\s?[:=]|\b(?:my|this) rank\b|\(rank \d"
    r"|\brank \d+ at (?:iteration|step)\b|did not receive grad|unused parameter"
)


@dataclass(frozen=True)
class _Place:
    """Where a failure stands: its first and its last line."""

    file: str
    first: int
    last: int


def with_own_words(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and the rank of those without a mark whose own message names one alone."""
    return [_named(facts, one) if _is_unmarked(one) else one for one in candidates]


def _named(facts: LogFacts, one: Candidate) -> Candidate:
    place = _of_candidate(facts, one)
    own = [noted for noted in _around(facts, place, 0, AFTER) if not (_of_device(noted) or _mentioned(facts, noted))]
    ranks = {noted.rank for noted in own}
    if len(ranks) != 1 or one.blameless:
        return one
    lead = own[0]
    said = () if lead.at.line == one.at.line else (f"whose it is: {quote(lead.at)}",)
    return replace(one, rank=lead.rank, guessed=True, more=(*said, *one.more))


def serves(process: str) -> bool:
    """Whether a process, by its name, is none that a rank runs in: it starts, serves or watches others."""
    return _NO_RANK.match(process) is not None


def claim(facts: LogFacts, one: Candidate, *, that: bool = False) -> str:
    """What is said of the rank that no mark tells: that a line before it names one, or that there is none. Nothing of a
    process that is no rank.

    Args:
        facts: of the log.
        one: the failure.
        that: whether a process was named, and only its rank is not known.
    """
    if serves(one.process):
        return ""
    near = _around(facts, _of_candidate(facts, one), BEFORE, AFTER)
    if near:
        return _near(near)
    tasks = sorted({end.task for end in facts.ended if end.task is not None and end.code})
    if tasks:
        return f"srun tells that {names(tasks).replace('rank', 'task')} failed"
    listed = sorted({end.rank for end in facts.ended if end.by == "elastic" and end.rank is not None and _failed(end)})
    if listed:
        return f"torchrun lists {names(listed)} as failed"
    if any(noted.kind == "rank" for noted in facts.noted):
        return "no mark says whose it is"
    return "the log does not say which rank" + (" that is" if that else "")


def _failed(end: Ended) -> bool:
    return bool(end.code) and end.code not in (-15, -9)


def of_cut(facts: LogFacts, one: Raised) -> str:
    """What the lines around a traceback that is cut off say of its rank; empty where they name none."""
    first = one.at.line - (0 if not one.type else one.traceback.count("\n"))
    near = _around(facts, _Place(one.at.file, first, one.at.line), BEFORE, 0)
    return _near(near) if near and one.rank is None and not one.launcher and not one.process else ""


def names_any(facts: LogFacts) -> bool:
    """Whether any line of a log names a rank or a task."""
    return any(one.kind == "rank" for one in facts.noted) or any(end.task is not None for end in facts.ended)


def _near(near: list[Noted]) -> str:
    numbers = {noted.rank for noted in near if noted.rank is not None}
    last = near[-1]
    if len(numbers) == 1:
        what = "TPU" if _of_device(last) else "rank"
        return f"the lines there name {what} {last.rank} (`{_part(last)}`)"
    return f"the lines there name {names(numbers)}, and not whose it is"


def _part(noted: Noted) -> str:
    """The words of a line that name the rank: of a path its last part."""
    words = noted.at.text.split()
    at = next((i for i, word in enumerate(words) if re.search(rf"(?i)rank.*?{noted.said}|TPU:|xla:", word)), None)
    if at is not None:
        return words[at].rpartition("/")[2].rstrip(".,;") if "/" in words[at] else words[at]
    at = next((i for i, word in enumerate(words[:-1]) if re.search("(?i)rank", word)), None)
    return " ".join(words[max(0, at - 1) : at + 3]) if at is not None else fit(noted.at.text, SHORT)


def _of_device(noted: Noted) -> bool:
    return any(mark in noted.at.text for mark in _DEVICES)


def _mentioned(facts: LogFacts, noted: Noted) -> bool:
    """Whether a line is that of an exception which speaks of a rank, and does not say that it is its own."""
    text = noted.at.text
    spoken = _MENTIONS.search(text) is not None and not _OF_ITSELF.search(text)
    return spoken and any((one.at.file, one.at.line) == (noted.at.file, noted.at.line) for one in facts.raised)


def _around(facts: LogFacts, place: _Place, before: int, after: int) -> list[Noted]:
    """The lines that name a rank, and have no mark of another process."""
    first, last = place.first - before, place.last + after
    return [one for one in facts.noted if one.kind == "rank" and _within(one.at, place.file, first, last)]


def _within(at: LogLine, file: str, first: int, last: int) -> bool:
    return at.file == file and first <= at.line <= last


def _of_candidate(facts: LogFacts, one: Candidate) -> _Place:
    raised = next((other for other in facts.raised if other.at == one.at), None)
    if raised is None:
        return _Place(one.at.file, one.at.line, one.at.line)
    above = max(0, raised.traceback.count("\n") - raised.message.count("\n"))
    return _Place(one.at.file, one.at.line - min(above, 200), one.at.line + raised.message.count("\n"))


def _is_unmarked(one: Candidate) -> bool:
    return one.rank is None and one.local is None and not one.process and one.times == 1

"""Whose a failure without a mark is: by the same error in a line that names its rank, or by the only process that
failed."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.diagnosis.logs.exits import failed_by_itself
from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.model.logs import Ended, LogFacts, Sighting

TERMINATED = (-15, -9)  # srun ends the other tasks so
WITNESSES = ("elastic", "launcher", "slurm")


def with_named_ranks(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and in place of one without a mark those of the ranks whose lines show the same error."""
    unknown = [one for one in candidates if _is_unmarked(one)]
    if len(unknown) != 1 or not unknown[0].error or unknown[0].blameless:
        return candidates
    lead = unknown[0]
    told = _told(facts, lead.error)
    if not told or len(told) < lead.times:
        return candidates
    found = [one for one in candidates if one is not lead and one.rank not in told]
    return found + [
        replace(lead, rank=rank, guessed=True, times=1, more=(*lead.more, f"the same error: {quote(s.at)}"))
        for rank, s in sorted(told.items())
    ]


def _told(facts: LogFacts, error: str) -> dict[int, Sighting]:
    """The first line of each rank that shows an error, and is no part of a traceback."""
    found: dict[int, Sighting] = {}
    for s in facts.sightings:
        if s.rank is not None and s.known.name == error and s.known.role == "cause" and not s.inside:
            found.setdefault(s.rank, s)
    return found


def with_their_tracebacks(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and the rank of one without a mark right below which the traceback of the only rank begins: who
    copies a log puts the last line of an error first."""
    cut = [one for one in facts.raised if not one.type and one.rank is not None]
    if len(facts.ranks) != 1 or len(candidates) != 1 or not _is_unmarked(candidates[0]) or not cut:
        return candidates
    lead, below = candidates[0], cut[0]
    if not lead.message_only or below.at.file != lead.at.file or below.at.line - lead.at.line not in (1, 2):
        return candidates
    return [replace(lead, rank=below.rank, guessed=True, more=(*lead.more, f"below it: {quote(below.at)}"))]


def located(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and the process of one without a mark where a single one failed, and its record stands behind."""
    unknown = [one for one in candidates if _is_unmarked(one)]
    end = _only_end(facts)
    if len(unknown) != 1 or len(candidates) != 1 or unknown[0].times != 1 or end is None:
        return candidates
    lead = unknown[0]
    if lead.blameless or lead.pid is not None or end.at.file != lead.at.file or end.at.line < lead.at.line:
        return candidates
    return [_of_end(lead, end)]


def _of_end(lead: Candidate, end: Ended) -> Candidate:
    """A candidate, as one of the process whose end a launcher tells."""
    return replace(
        lead,
        rank=end.rank,
        local=end.local_rank if end.rank is None else None,
        process=f"task {end.task}" if end.by == "slurm" and end.rank is None else "",
        host=lead.host or end.host,
        pid=end.pid or None,
        sources=lead.sources | {"launcher"},
        guessed=True,
        more=(*lead.more, f"{quote(end.at)}: the only process that failed by itself"),
    )


def _is_unmarked(one: Candidate) -> bool:
    return one.rank is None and one.local is None and not one.process


def _only_end(facts: LogFacts) -> Ended | None:
    """The one process that failed by itself, where it is known by its rank or its local rank."""
    ends: dict[tuple[object, object], Ended] = {}
    for end in facts.ended:
        if failed_by_itself(end) and end.by in WITNESSES and end.code not in TERMINATED:
            key = (end.host, end.pid or end.task) if end.rank is None else ("rank", end.rank)
            ends.setdefault(key, end)
    only = next(iter(ends.values())) if len(ends) == 1 else None
    known = only is not None and not (only.rank is None and only.local_rank is None and only.task is None)
    return only if known else None

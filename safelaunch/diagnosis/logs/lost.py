"""Ranks that lost a peer, or did not come to one: the store, the root of a group, or one that the logs do not show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis.logs import nccl
from safelaunch.diagnosis.logs.crashes import distinct, verdict
from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote, words
from safelaunch.diagnosis.logs.witnesses import awaited, testifies
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine

_STORE = re.compile(r"client socket has (?:timed out|failed to connect)|connect\(\) timed out")
_ENDPOINT = re.compile(
    r"(?:trying to connect to|connect to(?: any network address of)?) \(?(?P<at>[^\s(),]+(?:, ?\d{1,5})?)"
)
_WHY = re.compile(
    r"(?:errno: \d+ - |gai error: -?\d+ - )(?P<said>[^)\n]{3,60})|timed out after (?P<ms>\d{1,12})(?P<unit>ms|s)"
)
_FROM_ROOT = re.compile(r"retr(?:ie|ei)ving ncclUniqueId from \[(?P<root>\d{1,7})\]")


def peers_lost(timeline: Timeline) -> Verdict | None:
    """Ranks lost a peer, and the logs do not show the one that was lost."""
    if not timeline.victims:
        return None
    ranks = distinct(rank for rank, _ in timeline.victims)
    who = names(ranks) if ranks else "ranks"
    if all(_STORE.search(_whole(timeline.facts, at)) for _, at in timeline.victims):
        return _store_not_reached(timeline, ranks)
    absent = awaited(timeline.victims) or _roots(timeline, ranks)
    said = nccl.of_lost_peer(timeline.facts)
    if absent:
        summary = f"{who} waited for {names(absent)}, and the logs do not show what became of {_it(absent)}"
        remedy = f"look at the log of {names(absent)} first: it says what happened there, or who was late"
    elif any(testifies(at.text, rank) for rank, at in timeline.victims):
        witness = next(at for rank, at in timeline.victims if testifies(at.text, rank))
        summary = f"{who} tell{'s' if len(ranks) == 1 else ''} of others, which the logs do not show: " + one_line(
            witness.text, 120
        )
        remedy = "give the logs of all ranks and nodes: the ones that failed have no such line"
    else:
        summary = f"{who} lost a peer, or waited for one in vain, and the logs do not show which"
        remedy = "give the logs of all ranks and nodes: the one that was lost has no such line"
        said = said or words(timeline.victims[0][1])
    return verdict(
        "SL412",
        summary + (f": {said}" if said else ""),
        because=(*(quote(line) for _, line in timeline.victims[:2]), *missing(timeline.facts)[:2]),
        remedy=remedy,
        secondary=ranks,
    )


def _whole(facts: LogFacts, at: LogLine) -> str:
    """A line, with the rest of its message where it is an exception's."""
    raised = next((one for one in facts.raised if one.at == at), None)
    return f"{at.text}\n{raised.message}\n{' '.join(raised.chain)}" if raised is not None else at.text


def _roots(timeline: Timeline, ranks: Sequence[int]) -> tuple[int, ...]:
    """The first rank of the group, from which NCCL's id was to come, where all victims name the same."""
    matches = [_FROM_ROOT.search(_whole(timeline.facts, at)) for _, at in timeline.victims]
    roots = {int(match["root"]) for match in matches if match}
    alone = all(matches) and len(roots) == 1 and not roots & set(ranks)
    return tuple(roots) if alone else ()


def _store_not_reached(timeline: Timeline, ranks: Sequence[int]) -> Verdict:
    """No rank says anything but that it did not reach the process that holds the store."""
    text = "\n".join(_whole(timeline.facts, at) for _, at in timeline.victims)
    endpoint, why = _ENDPOINT.search(text), _WHY.search(text)
    where = " at " + re.sub(r", ?", ":", endpoint["at"]).rstrip(".") if endpoint else ""
    how = ""
    if why and why["said"]:
        how = f": {why['said'].strip()}"
    elif why:
        seconds = int(why["ms"]) / (1000 if why["unit"] == "ms" else 1)
        how = f" within {seconds:.0f} s"
    return verdict(
        "SL602",
        f"{names(ranks) if ranks else 'a rank'} did not reach the process that holds the store{where}{how}",
        because=(*(quote(line) for _, line in timeline.victims[:2]), *missing(timeline.facts)[:2]),
        remedy="see that rank 0 (or the first node) was started and runs, and that this node knows its name and comes "
        "to its port (getent hosts NAME; nc -vz NAME PORT)",
        kind="infra",
        confidence="medium",
        secondary=ranks,
    )


def _it(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "them"

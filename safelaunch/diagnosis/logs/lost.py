"""Ranks that lost a peer, or did not come to one: the store, the root of a group, or one that the logs do not show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis.logs import nccl
from safelaunch.diagnosis.logs.crashes import distinct
from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote, words
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.diagnosis.logs.witnesses import awaited, testifies
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine

LONG = 200  # characters of a line in a headline that says nothing else
# A peer by its address; a line that torch writes whatever happened.
_NAMED = re.compile(r"[Pp]eer (?:information|\[?\d)|remote(?: address)?=\S|\bpeer \S{0,4}\d+\.\d+\.")
_SAYS_NOTHING = re.compile(r"taking the entire process down|To avoid data inconsistency|Exception raised from|^frame #")
_CALL = re.compile(r"\b(?:dist|distributed)\.i?(?:send|recv)\([^\n]{0,200}?\b(?:dst|src)=(?P<peer>\d{1,7})\b")
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
    who = names(ranks) if ranks else _process(timeline)
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
        said = said or words(_telling(timeline), LONG)
        summary, remedy = _lost(timeline, who)
    return verdict(
        "SL412",
        summary + (f": {said}" if said else ""),
        because=(*(quote(line) for line in _quoted(timeline)), *missing(timeline.facts)[:2]),
        remedy=remedy,
        secondary=ranks,
    )


def _process(timeline: Timeline) -> str:
    """Who lost a peer, where no line tells its rank."""
    marks = {one.process for one in timeline.facts.raised if any(one.at == at for _, at in timeline.victims)}
    alone = next(iter(marks)) if len(marks) == 1 else ""
    return alone or ("a process" if len(timeline.victims) == 1 else "ranks")


def _telling(timeline: Timeline) -> LogLine:
    """The first line of a victim that says more than that a process ends."""
    lines = [at for _, at in timeline.victims]
    telling = [at for at in lines if not _SAYS_NOTHING.search(at.text)] or lines
    return next((at for at in telling if _NAMED.search(at.text)), telling[0])


def _lost(timeline: Timeline, who: str) -> tuple[str, str]:
    """That a peer was lost, as far as lines name it, and where to look."""
    peers = _peers(timeline)
    if peers:
        remedy = f"look at the log of {names(peers)} first: it says what happened there"
        return f"{who} lost {names(peers)}, or waited for {_it(peers)} in vain", remedy
    summary = f"{who} lost a peer, or waited for one in vain"
    if any(_NAMED.search(at.text) for at in _quoted(timeline)):
        return summary, "look at the log of the peer that this line names, and at the network between the two"
    silent = _without_such_a_line(timeline)
    if silent is not None:
        last = dict(timeline.facts.tails).get(silent)
        its = f"; its last line is `{words(last, 80)}`" if last is not None else ""
        return f"{summary}, most likely for rank {silent}, the only one without such a line", (
            f"look at what rank {silent} did, and whether it left its loop, or ended, before the others{its}"
        )
    remedy = "give the logs of all ranks and nodes: the one that was lost has no such line"
    return f"{summary}, and the logs do not show which", remedy


def _without_such_a_line(timeline: Timeline) -> int | None:
    """The only rank of a job that does not say that it lost or awaited a peer, where all ranks have lines of their
    own: either it was awaited, or it was ended before it could say so."""
    facts = timeline.facts
    told = {rank for rank, _ in timeline.victims}
    others = sorted(set(facts.ranks) - told)
    whole = not facts.cut and None not in told and facts.ranks == tuple(range(len(facts.ranks)))
    listed = {end.rank for end in facts.ended if end.by == "elastic"} >= set(facts.ranks)
    return others[0] if len(others) == 1 and len(told) > 1 and whole and listed else None


def _quoted(timeline: Timeline) -> list[LogLine]:
    """Two lines of victims, those first that say more."""
    lines = [at for _, at in timeline.victims]
    return sorted(lines, key=lambda at: bool(_SAYS_NOTHING.search(at.text)))[:2]


def _peers(timeline: Timeline) -> list[int]:
    """The ranks with which messages were exchanged that failed, as the last calls of tracebacks name them."""
    found: set[int] = set()
    for one in timeline.facts.raised:
        calls = _CALL.findall(one.traceback) if any(one.at == at for _, at in timeline.victims) else []
        found |= {int(calls[-1])} if calls else set()
    return sorted(found)


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

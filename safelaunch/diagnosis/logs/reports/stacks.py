"""Stacks that py-spy, or an engine's watchdog by it, wrote into a log: where main threads stood."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.model import Verdict
from safelaunch.model.logs import Noted

MOST = 3  # processes that are told
_WHO = re.compile(r"Process (?P<pid>\d{1,9}): (?P<name>\S[^\n]{0,60}?)\s*$|(?:for )?PID (?P<pid2>\d{1,9})")
_CALL = re.compile(r"^\s*(?P<call>[\w<>.]{1,100}) \((?P<place>[^()\n]{1,300}:\d{1,7})\)")


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict where a dump of stacks is all that a log has: where processes stood, for whoever may compare."""
    facts = timeline.facts
    stood = {(one.at.file, one.at.line): one.at for one in facts.complaints if _CALL.match(one.at.text)}
    heads = [one for one in facts.noted if one.kind == "stack"]
    if not stood or not heads:
        return None
    parts = []
    for at in list(stood.values())[:MOST]:
        who = next((name for one in reversed(heads) if one.at.line < at.line and (name := _who(one))), "a process")
        call = _CALL.match(at.text)
        assert call is not None
        short = call["place"].rpartition("/")[2]
        parts.append(f"{who} was in {call['call']} ({short})")
    return verdict(
        "SL499",
        f"py-spy's dump shows where processes stood, and the logs do not say why it was taken: {'; '.join(parts)}",
        because=(*(quote(at) for at in list(stood.values())[:2]), *_of_heads(heads), *missing(facts)[:1]),
        remedy="compare the stacks of all ranks: the one that is in another call than its peers is late, or has the "
        "lock that they wait for",
    )


def _who(one: Noted) -> str:
    match = _WHO.search(one.at.text)
    mark = f"{one.process} " if one.process else f"rank {one.rank} " if one.rank is not None else ""
    if match is None:
        return mark.strip()
    name = f" ({match['name']})" if match["name"] else ""
    return f"{mark}process {match['pid'] or match['pid2']}{name}"


def _of_heads(heads: list[Noted]) -> list[str]:
    """The lines that say of whom a dump is."""
    said = [one for one in heads if "ump for PID" in one.at.text]
    return [quote(one.at) for one in said[:2]]

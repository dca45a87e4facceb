"""Processes that only pass on that another one failed: Ray's callers, the engines of vLLM and SGLang, process pools.

Whoever says so is named nowhere. Ray's message says which actor died, with its pid and its node; why it died is in the
words of that process, or nowhere.
"""

from __future__ import annotations

import re

from safelaunch.codes import CATALOGUE, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine

NAMES = ("ray-actor-died", "messenger", "worker-died")

_FIELDS = {
    "what": re.compile(r"\bclass_name: (\S+)"),
    "dead": re.compile(r"\bdead: ([Rr]ank \d+ scheduler)"),
    "worker": re.compile(r"\bwhat: (\S+)"),
    "pid": re.compile(r"\b(?:Worker PID|pid): ?(\d{1,9})"),
    "node": re.compile(r"\b(?:Worker IP address|ip): ?(\w[\w.:]+)"),
}
_WHY = re.compile(r"(?:The actor is dead because|Worker exit type:|Worker exit detail:|The actor died because) ?[^\n]*")


def passed_on(timeline: Timeline) -> Verdict | None:
    """The verdict where nothing is known of a failure but that other processes tell of it; None where more is."""
    said = _messages(timeline.facts)
    places = {(at.file, at.line) for at, _ in said}
    if not said or any((at.file, at.line) not in places for _, at in timeline.victims):
        return None
    lead, text = next((one for one in said if _FIELDS["pid"].search(one[1])), _first_death(timeline.facts) or said[0])
    found = {name: match[1] for name, pattern in _FIELDS.items() if (match := pattern.search(text))}
    why = _WHY.search(text)
    return Verdict(
        code="SL499",
        slug=CATALOGUE["SL499"].slug,
        kind="crash",
        summary=f"{_who(found)} died, and its own words are not in the logs"
        if found
        else "a process tells that another one failed, and the words of that one are not in the logs",
        because=(
            quote(lead),
            *((one_line(why[0], 200),) if why else ()),
            *(quote(at) for at, _ in said[:1] if at != lead),
            *missing(timeline.facts)[:1],
        ),
        host=found.get("node", ""),
        pid=int(found["pid"]) if "pid" in found else None,
        confidence="low",
        remedy="give that process's own log (Ray keeps it in session_latest/logs) and the kernel log of its node",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def _messages(facts: LogFacts) -> list[tuple[LogLine, str]]:
    """The lines in which processes pass on that another one failed, each with all its words."""
    raised = [(one.at, one.message) for one in facts.raised if one.known is not None and one.known.name in NAMES]
    seen = {(at.file, at.line) for at, _ in raised}
    lines = [(s.at, f"{_told(s.fields)} {s.at.text}") for s in facts.sightings if s.known.name in NAMES]
    return raised + [one for one in lines if (one[0].file, one[0].line) not in seen]


def _first_death(facts: LogFacts) -> tuple[LogLine, str] | None:
    """The line that says first that a worker died: it tells more than what passes on that something failed."""
    died = (s for s in facts.sightings if s.known.name == "worker-died")
    return next(((s.at, f"{_told(s.fields)} {s.at.text}") for s in died), None)


def _told(fields: tuple[tuple[str, str], ...]) -> str:
    return "".join(f" {name}: {value}" for name, value in fields)


def _who(found: dict[str, str]) -> str:
    """`actor Worker (pid 7 on 10.0.0.9)`."""
    words = {"pid": "pid", "node": "on"}
    place = " ".join(f"{word} {found[name]}" for name, word in words.items() if name in found)
    what = f"actor {found['what']}" if "what" in found else "a worker of Ray"
    if "dead" in found:
        return f"the scheduler of {found['dead'].lower().removesuffix(' scheduler')}"
    if "worker" in found:
        what = f"process {found['worker']}"
    return f"{what} ({place})" if place else what

"""Processes that only pass on that another one failed: Ray's callers, the engines of vLLM and SGLang, process pools.

Whoever says so is named nowhere. Ray's message says which actor died, with its pid and its node; why it died is in the
words of that process, or nowhere. Where an engine's watchdog spoke before, its processes hung.
"""

from __future__ import annotations

import re

from safelaunch.codes import CATALOGUE, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis.logs.crashes import signal_name
from safelaunch.diagnosis.logs.exceptions import REPEATED, after_a_death
from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.diagnosis.logs.timeline import Timeline, before, missing, quote, words
from safelaunch.diagnosis.logs.waits import hang_verdict
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine, Parted, Sighting

NAMES = ("ray-actor-died", "messenger", "worker-died")
NEAR = 12  # lines, in which Ray writes what it knows of an actor

_FIELDS = {
    "what": re.compile(r"\bclass_name: (\S+)"),
    "actor": re.compile(r"\bactor: (\S+)"),
    "name": re.compile(r"^\s+name: (\S+)", re.MULTILINE),
    "dead": re.compile(r"\bdead: ([Rr]ank \d+ scheduler)"),
    "worker": re.compile(r"\bwhat: (\S+)"),
    "pid": re.compile(r"\b(?:Worker PID|pid): ?(\d{1,9})"),
    "node": re.compile(r"\b(?:Worker IP address|ip|node): ?\[?(\w[\w.:]+)"),
    "code": re.compile(r"\b(?:exit code|exited with code|return code):? (-?\d{1,3})\b"),
    "kind": re.compile(
        r"\b([Ss]erver|[Ee]ngine|[Cc]hild|[Ss]ub)[ -]?process(?:es)? (?:has |have )?(?:exited|died|ended|failed)"
    ),
}
_WHY = re.compile(r"(?:The actor is dead because|Worker exit type:|Worker exit detail:|The actor died because) ?[^\n]*")
_OF_RAY = re.compile(r"\bray\b|Ray|actor", re.IGNORECASE)
_SERVER_LOG = re.compile(r"[Cc]heck (?:the )?(?:server |its )?logs?\b")
_RETURNED = re.compile(
    r"\b[Rr]eturn(?:ed|ing|s)? from\b|\b(?:[Ff]inished|[Cc]ompleted|[Dd]one with|[Ll]eft|[Ll]eaving|[Ee]xiting)"
    r" (?:the )?(?:\w+ )?(?:func|function|main|loop|worker|train\w*)\b"
)
_SECONDS = re.compile(r"(?:watchdog_timeout=|found in )(\d{1,7})")


_TO_THE_END = (
    "give the log to the end of these tracebacks, and from before the first line: a worker's own exception is the "
    "cause, and not what its engine passes on"
)


def passed_on(timeline: Timeline) -> Verdict | None:
    """The verdict where nothing is known of a failure but that other processes tell of it; None where more is."""
    said = _messages(timeline.facts)
    places = _places(timeline.facts, said)
    if not said or any((at.file, at.line) not in places for _, at in timeline.victims):
        return None
    stuck = _stuck(timeline, said[0][0])
    if stuck is not None:
        return stuck
    lead, text = next((one for one in said if _FIELDS["pid"].search(one[1])), _first_death(timeline.facts) or said[0])
    found = {name: match[1] for name, pattern in _FIELDS.items() if (match := pattern.search(text))}
    why = _WHY.search(text)
    named = set(found) - {"code", "name"}
    if timeline.unexplained and not named:
        return None  # a launcher names the one that ended
    own = _own_words(timeline.facts, found)
    summary = f"{_who(found)} died{_how(found)}" + _ending(own)
    if not named:
        summary = "a process tells that another one failed, and the words of that one are not in the logs: "
        summary += words(lead)
    return Verdict(
        code="SL499",
        slug=CATALOGUE["SL499"].slug,
        kind="crash",
        summary=summary,
        because=(
            quote(lead),
            *_further(why[0] if why else "", said[0][0], lead, own),
            *_all_dead(said),
            *_cut_tracebacks(timeline),
            *(quote(s.at) for s in _of_engine(timeline)[:1]),
            *missing(timeline.facts)[:1],
        ),
        host=found.get("node", ""),
        pid=int(found["pid"]) if "pid" in found else None,
        confidence="low",
        remedy=_TO_THE_END if _cut_tracebacks(timeline) else _where_to_look(said, named),
        exit_code=EXIT_SCRIPT_FAILED,
    )


def _own_words(facts: LogFacts, found: dict[str, str]) -> Parted | None:
    """The last line of the process that died, by the pid and the node in the mark of its lines."""
    pid, node = found.get("pid", ""), found.get("node", "")
    own = [one for one in facts.parted if str(one.pid) == pid and (not (node and one.host) or one.host == node)]
    return own[-1] if own else None


def _ending(own: Parted | None) -> str:
    """How a headline on a death goes on: by the last words of the process that died."""
    if own is None:
        return ", and its own words are not in the logs"
    returned = " after its function had returned" if _RETURNED.search(own.at.text) else ""
    rank = f"it was rank {own.rank}, and " if own.rank is not None else "and "
    return f"{returned}: {rank}its last words are `{REPEATED.sub('', words(own.at, 100))}`".replace(": and", ", and")


def _places(facts: LogFacts, said: list[tuple[LogLine, str]]) -> set[tuple[str, int]]:
    """The lines that are explained where one of these processes died: theirs, and what followed from that."""
    followed = (one.at for one in facts.raised if after_a_death(facts, one))
    return {(at.file, at.line) for at in (*(at for at, _ in said), *followed)}


def _further(why: str, first: LogLine, lead: LogLine, own: Parted | None) -> tuple[str, ...]:
    """The last words of the process, what Ray says of the reason, and who said first that a process had failed."""
    again = not why or fit(why)[:80] in quote(lead)
    last = (f"its last words: {quote(own.at)}",) if own is not None else ()
    return (*last, *(() if again else (fit(why),)), *((quote(first),) if first != lead else ()))


def _all_dead(said: list[tuple[LogLine, str]]) -> tuple[str, ...]:
    """The pids of all processes of which the log says that they died, where they are several."""
    pids = dict.fromkeys(pid for _, text in said for pid in _FIELDS["pid"].findall(text))
    return (f"processes that died, by these lines: pids {', '.join(list(pids)[:6])}",) if len(pids) > 1 else ()


def _cut_tracebacks(timeline: Timeline) -> tuple[str, ...]:
    """The processes whose own tracebacks are there, and cut off."""
    ranks = sorted({one.rank for one in timeline.cut if one.rank is not None})
    who = names(ranks) if ranks else ", ".join(dict.fromkeys(one.process for one in timeline.cut if one.process))
    return (f"tracebacks of {who} begin in the log, and are cut off",) if who else ()


def _where_to_look(said: list[tuple[LogLine, str]], named: set[str]) -> str:
    if any(_SERVER_LOG.search(text) for _, text in said):
        return (
            "read the log of that process: it says why it ended; the kernel log of its node says whether it was killed"
        )
    if any(_OF_RAY.search(text) for _, text in said):
        return "give that process's own log (Ray keeps it in session_latest/logs) and the kernel log of its node"
    if named & {"worker", "pid"}:
        return "the kernel log of its node says whether it was killed, and a file of its own what it wrote last"
    remedy = "give the log from its start: the process that failed wrote why before this; "
    return remedy + "the kernel log of its node says whether it was killed"


def _of_engine(timeline: Timeline) -> list[Sighting]:
    """What the watchdogs of an engine said."""
    return [s for s in timeline.facts.sightings if s.known.name == "engine-stuck"]


def _stuck(timeline: Timeline, first: LogLine) -> Verdict | None:
    """The verdict where an engine's watchdog spoke before anybody told of a failure: that one follows from the hang."""
    said = [s for s in _of_engine(timeline) if before(s.at, first) is not False]
    if not said or timeline.candidates or _first_death(timeline.facts) is not None:
        return None  # nobody frees what a process held that has died
    ranks = sorted({s.rank for s in said if s.rank is not None})
    whose = names(ranks) if ranks else said[0].process or "processes of the engine"
    seconds = max((int(match[1]) for s in said if (match := _SECONDS.search(s.at.text))), default=0)
    times = max(len(said), *(s.times for s in said))
    often = f", {times} times" if times > 1 and not ranks else ""
    long = f" for {seconds} s{often}" if seconds else often
    they = _they(ranks, said[0].process)
    return hang_verdict(
        "SL399",
        f"{whose} {_did(said[0], len(ranks), long)}, and the logs do not say for whom {they} waited",
        because=(quote(said[0].at), f"what ended it came after that: {quote(first)}", *missing(timeline.facts)[:1]),
        remedy="take the stacks while it hangs (py-spy dump on each process, or `safelaunch attach`): the one that is "
        "in another call than its peers is late",
        confidence="low",
        call=None,
        waiting=ranks,
    )


def _they(ranks: list[int], process: str) -> str:
    return "it" if len(ranks) == 1 or (process and not ranks) else "they"


def _did(said: Sighting, ranks: int, long: str) -> str:
    if "watchdog timeout" in said.at.text.lower():
        return f"{'was' if ranks == 1 else 'were'} stuck in a batch{long}, until the engine's watchdog gave up"
    return f"waited{long} for a block of shared memory that no peer freed"


def _messages(facts: LogFacts) -> list[tuple[LogLine, str]]:
    """The lines in which processes pass on that another one failed, each with all its words."""
    raised = [(one.at, one.message) for one in facts.raised if one.known is not None and one.known.name in NAMES]
    seen = {(at.file, at.line) for at, _ in raised}
    lines = [
        (s.at, f"{_told(s.fields)} {s.at.text}{_near(facts, s)}") for s in facts.sightings if s.known.name in NAMES
    ]
    return raised + [one for one in lines if (one[0].file, one[0].line) not in seen]


def _near(facts: LogFacts, s: Sighting) -> str:
    """What Ray says of the actor in the lines around: each of its fields has one."""
    if s.known.name != "ray-actor-died":
        return ""
    fields = (
        other
        for other in facts.sightings
        if other.known.name in ("field-of-actor", "ray-actor-died") and other is not s
        if other.at.file == s.at.file and abs(other.at.line - s.at.line) <= NEAR
    )
    return "".join(f" {other.at.text.strip()} {_told(other.fields)}" for other in fields)


def _first_death(facts: LogFacts) -> tuple[LogLine, str] | None:
    """The line that says first that a worker died: it tells more than what passes on that something failed."""
    died = (s for s in facts.sightings if s.known.name == "worker-died")
    return next(((s.at, f"{_told(s.fields)} {s.at.text}") for s in died), None)


def _told(fields: tuple[tuple[str, str], ...]) -> str:
    return "".join(f" {name}: {value}" for name, value in fields)


def _who(found: dict[str, str]) -> str:
    """`actor Worker (pid 7 on 10.0.0.9)`."""
    marks = {"name": "", "pid": "pid ", "node": "on "}
    place = " ".join(f"{mark}{found[name]}" for name, mark in marks.items() if name in found)
    actor = found.get("actor") or found.get("what")
    what = f"actor {actor}" if actor else "a worker"
    if "dead" in found:
        return f"the scheduler of {found['dead'].lower().removesuffix(' scheduler')}"
    if "kind" in found and not actor:
        what = f"the {found['kind'].lower()} process".replace("sub process", "subprocess")
    if "worker" in found and not actor:
        what = f"process {found['worker']}"
    return f"{what} ({place})" if place else what


def _how(found: dict[str, str]) -> str:
    if "code" not in found:
        return ""
    name = signal_name(found["code"].removeprefix("-")) if found["code"].startswith("-") else ""
    return f" (exit code {found['code']}{f', {name}' if name else ''})"

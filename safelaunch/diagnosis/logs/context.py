"""What lines around an end make of it: a shutdown that had begun, a long silence before somebody ended the job, ranks
that fell silent, lines whose newest one comes first."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch import durations
from safelaunch.diagnosis.logs import silent
from safelaunch.diagnosis.logs.timeline import quote, words
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine

NEAR = 40  # lines
_BEGAN = re.compile(r"[Ss]hutdown|Shutting down|waiting for worker exit")
_READY = re.compile(r"is ready|complete|PASSED|running|started|fired up")
_STOPPED = re.compile(r"is stopped|shutdown complete|Finished server|Shutting down")


_COUNTED = re.compile(
    r"\b(?:step|iter(?:ation)?|batch|epoch)s?\W{0,3}(?P<done>\d{1,12})\s?/\s?(?P<all>\d{1,12})\b", re.I
)


def reached_its_last_step(facts: LogFacts) -> bool:
    """Whether the last lines tell of the last of all steps, counted from 0 or from 1."""
    counted = (match for at in facts.last for match in _COUNTED.finditer(at.text))
    return any(int(match["done"]) + 1 >= int(match["all"]) > 1 for match in counted)


def with_context(facts: LogFacts, verdict: Verdict) -> Verdict:
    """A verdict, with what the times of the lines say of it."""
    lines = list(verdict.because)
    silence = next((one for one in facts.noted if one.kind == "silence"), None)
    summary = verdict.summary
    if silence is not None and verdict.code == "SL603":
        long = durations.text(float(silence.said))
        summary = f"{summary}, after {long} in which the log has no line"
        lines.insert(1, f"nothing was written for {long} before it: the job may have hung, and was ended for that")
        verdict = replace(
            verdict,
            remedy=f"{verdict.remedy}; find why the job stood still before: its stacks (py-spy dump) would have told",
        )
    if any(one.kind == "backwards" for one in facts.noted):
        lines.append("the times of these lines run backwards: the newest one comes first")
    quiet = silent.told(facts)
    explained = verdict.kind != "hang" and set(silent.ranks(facts)) <= set(verdict.culprit_ranks)
    if quiet and not explained and quiet not in summary:
        lines.append(quiet)
    return replace(verdict, summary=summary, because=tuple(lines))


def shutting_down(facts: LogFacts, at: LogLine) -> tuple[str, ...]:
    """The line that says that a shutdown had begun, shortly before another line."""
    states = (one for one in facts.noted if one.kind == "state" and _BEGAN.search(one.at.text))
    near = [one for one in states if one.at.file == at.file and 0 <= at.line - one.at.line <= NEAR]
    return (f"a shutdown had begun before it: {quote(near[-1].at)}",) if near else ()


def ended_in_order(facts: LogFacts) -> str:
    """That a service was ready, and then was stopped, as a headline goes on; empty where lines do not say so."""
    states = [one for one in facts.noted if one.kind == "state"]
    ready = next((one for one in states if _READY.search(one.said) or _READY.search(one.at.text)), None)
    stopped = next((one for one in reversed(states) if _STOPPED.search(one.at.text)), None)
    if ready is None or stopped is None or stopped.at.line <= ready.at.line:
        return ""
    passed = ", a test `PASSED`" if any("PASSED" in one.said for one in states) else ""
    return f"they show an orderly end: `{words(ready.at, 80)}`{passed}, then `{words(stopped.at, 80)}`"

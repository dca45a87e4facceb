"""Ranks failed, and nobody can be named."""

from __future__ import annotations

from safelaunch.diagnosis.crash.first_failure import Failure, failures, unaccounted
from safelaunch.diagnosis.crash.own_words import quoted
from safelaunch.diagnosis.crash.process_end import shortly
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names, verb
from safelaunch.model import PyError, Verdict


def cannot_tell(view: View) -> Verdict:
    """Ranks failed, and the evidence does not say who was first.

    Example:
        error[SL499]: ranks failed and the evidence does not say who was first

    How it was concluded: no other rule holds. It is better to say so than to name a victim. Typical are

    - several ranks that fail alike, and another one that fails later, or says no reason;
    - several ranks that abort, or leave with an error code, and say no reason;
    - several exceptions that speak of another rank, or that a living rank may still follow: where they are alike, the
      headline has them;
    - an abort inside a collective, while nothing is known of another rank.

    Of logs it is said as well where one could not be read, where a traceback is cut off, or where no line says why a
    process ended.

    What to do: read the reasons: they say of the first two ranks how each failed. Stacks, exceptions and exit codes of
    every rank are in the evidence folder.

    What it is not: lost connections alone, which all follow from a peer (SL412).
    """
    found = failures(view.case)
    said = tuple(f"rank {failure.rank}: {shortly(failure)}" for failure in found[:2])
    for facts in unaccounted(view.case)[:1]:
        frame = user_frame(facts.stack)
        where = f"; it was at {frame.file}:{frame.line}" if frame else ""
        said += (f"rank {facts.rank} had neither failed nor entered a collective{where}",)
    alike = _raised_alike(found)
    others = sorted({facts.rank for facts in view.case.ranks} - {failure.rank for failure in found})
    if alike is not None and others:
        raised, more = quoted(sorted(found, key=lambda failure: failure.rank))
        return crash_verdict(
            view,
            "SL499",
            f"{raised}; the cause may lie with {names(others)}, which {verb(others, 'has', 'have')} not failed",
            [],
            location=alike.location,
            because=(*more, *said[2:]),
            remedy=f"see what {names(others)} did at that time, and what the line needs",
            confidence="low",
        )
    return crash_verdict(
        view,
        "SL499",
        "ranks failed and the evidence does not say who was first",
        [],
        because=said or ("no rank left a trace",),
        remedy="read the evidence folder; the earliest line in the ranks' own output may tell",
        confidence="low",
    )


def _raised_alike(found: list[Failure]) -> PyError | None:
    """The exception that all ranks which failed have raised at one line; None where they differ, or it is of one."""
    errors = [failure.facts.error for failure in found]
    first = errors[0] if len(errors) > 1 else None
    if first is None or first.location is None:
        return None
    same = (one is not None and (one.type, one.location) == (first.type, first.location) for one in errors)
    return first if all(same) else None

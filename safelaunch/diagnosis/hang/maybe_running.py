"""Dumps of a job that may not have hung at all."""

from __future__ import annotations

from safelaunch.diagnosis.sources.dumps import gaps, young
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.model import Verdict


def may_be_running(view: View) -> Verdict | None:
    """The answer of `cannot_tell` to dumps that were taken so soon after the calls in them that nothing may hang."""
    graph = view.graph
    age = young(view.case, graph.waits)
    if age is None:
        return None
    wait = min(graph.waits, key=lambda one: one.call.t)
    return hang_verdict(
        view,
        "SL399",
        f"the job may simply have been running: no wait had lasted longer than {max(age, 0.001):.3g} s",
        (),
        location=wait.call.location,
        call=wait.call,
        because=("ranks of a job that runs pause as long between two calls", *waiters(view), *gaps(view.case)),
        remedy="if it does hang, take dumps again a minute later",
        confidence="low",
        waiting={other.rank for other in graph.waits},
    )

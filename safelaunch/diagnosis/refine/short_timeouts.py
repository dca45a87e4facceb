"""A process group whose time-out is shorter than the work that its members wait for. Pure."""

from __future__ import annotations

import dataclasses

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.view import View
from safelaunch.model import Verdict

# Torch's own defaults are 600 s (NCCL) and 1800 s (gloo). Whoever sets two minutes or less expects no longer work.
SHORT_S = 120.0


def refine(verdict: Verdict, view: View) -> Verdict:
    """What ends the wait for a rank that does something else: perhaps it is at work, and needs no more than time."""
    if verdict.kind != "hang" or not verdict.culprit_ranks or not has(verdict.code, Trait.LATE):
        return verdict
    open_ = [
        call
        for facts in view.case.ranks
        if facts.rank not in verdict.culprit_ranks
        for call in facts.recorded or ()
        if not call.done and 0 < call.timeout_s <= SHORT_S
    ]
    if not open_:
        return verdict
    shortest = min(call.timeout_s for call in open_)
    said = (
        f"torch ends that wait after {shortest:g} s, the `timeout` of its group: "
        "a longer one lets work that only takes its time come to an end"
    )
    return dataclasses.replace(verdict, because=(*verdict.because, said))

"""What is left to say of a hang of which no rule has found the reason."""

from __future__ import annotations

from safelaunch.diagnosis.sources import dumps
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import is_waiting, label, names, of_group
from safelaunch.model import Collective, Verdict


def cannot_tell(view: View) -> Verdict | None:
    """Ranks make no progress, and the evidence does not say why. It is better to say so than to name a victim.

    Example:
        error[SL399]: the ranks make no progress, and the evidence does not say for whom they wait

    How it was concluded: no rule had what it needs. `safelaunch diagnose --why` says what each of them lacked.

    What to do: compare the stacks of all ranks in the evidence folder. Where evidence is missing, the lines say why.

    What it is not: an all-clear. Somebody waits, or nothing moves.
    """
    if view.from_dumps:
        return _of_dumps(view)
    gaps = tuple(f"rank {facts.rank}: {gap}" for facts in view.case.ranks for gap in facts.missing[:1])
    return hang_verdict(
        view,
        "SL399",
        "the ranks make no progress, and the evidence does not say for whom they wait",
        (),
        because=gaps or waiters(view) or ("no rank was found inside a collective",),
        remedy="compare the ranks' stacks in the evidence folder",
        confidence="low",
        waiting={wait.rank for wait in view.graph.waits},
    )


def _of_dumps(view: View) -> Verdict:
    """The verdict of `cannot_tell` on a job of which dumps are left."""
    waits = view.graph.waits
    if view.graph.sinks:
        summary, doubts = _of_late_ranks(view)
    elif waits:
        summary, doubts = _of_waits(view), []
    else:
        summary, *doubts = dumps.behind(view.case) or ("no rank was inside a collective, as far as the dumps show",)
    return hang_verdict(
        view,
        "SL399",
        summary,
        (),
        location=next((wait.call.location for wait in waits), None),
        because=(*doubts, *waiters(view), *dumps.gaps(view.case)),
        remedy="the ranks' logs and stacks tell more" if waits else "take the dumps while the job hangs",
        confidence="low",
        waiting={wait.rank for wait in waits},
    )


def _of_late_ranks(view: View) -> tuple[str, list[str]]:
    """That ranks did not come, and why these cannot be blamed for it."""
    missing = {rank for rank, _ in view.graph.sinks}
    blocked = view.graph.waiting_for(missing) or view.graph.waits
    who, what = names({wait.rank for wait in blocked}), _call(blocked[0].call)
    doubt = dumps.doubt(view.case, missing, blocked)
    summary = f"{who} came to {what}, and {names(missing)} did not: the dumps do not say who is wrong"
    return summary, [doubt] if doubt else []


def _of_waits(view: View) -> str:
    """That ranks wait, and for whom is not known."""
    call = view.graph.waits[0].call
    there = {wait.rank for wait in view.graph.waits if (wait.call.group, wait.call.seq) == (call.group, call.seq)}
    has_members = any(group.name == call.group for group in view.case.groups)
    whom = "for whom" if has_members else "who else belongs to that group"
    return f"{is_waiting(there)} in {_call(call)}, and the dumps do not tell {whom}"


def _call(call: Collective) -> str:
    return f"{label(call)}{of_group(call)}"

"""Ranks that have left no dump, where torch lets only those dump who wait."""

from __future__ import annotations

from safelaunch.diagnosis.sources.dumps import ground, of_nccl2
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import is_waiting, label, names, of_group
from safelaunch.model import RankFacts, Verdict


def did_not_dump(view: View) -> Verdict | None:
    """Ranks wait for one that has left no dump of its Flight Recorder, and none of those that have is late.

    How it was concluded: since torch 2.15 "nccl" is a backend (nccl2) whose watchdog dumps the ranks whose own calls
    have timed out, and no other. All dumps are of such ranks, and what they wait for are ranks without one: these wait
    for nothing that has timed out. Such a rank is late, or has ended, or its file was not copied; or it waits in a
    group with a longer timeout. So the confidence is low, and of several nobody is named, since one of them may wait
    for another. Of a log with nccl2's lines (`Operation timed out`) the rank is named likewise that wrote none.

    What to do: look at that rank's log and stack; with `safelaunch`, all ranks are dumped before torch aborts them.
    """
    found = view.graph
    if not (view.case.gave_up and of_nccl2(view.case)):
        return None
    undumped = tuple(facts.rank for facts in view.case.ranks if facts.recorded is None)
    blocked = tuple(wait for wait in found.waits if {*wait.away} & {*undumped})
    if not blocked or not all(_has_no_file(facts) for facts in view.case.ranks if facts.rank in undumped):
        return None
    # Those who wait for fewest wait for that rank itself.
    wait = min(blocked, key=lambda one: (len(one.away), one.call.t))
    called = f"{label(wait.call)}{of_group(wait.call)}"
    there = {other.rank for other in blocked}
    if len(undumped) == 1:
        count = "a peer waits for it" if len(there) == 1 else f"{len(there)} peers wait for it"
        summary = f"{names(undumped)} left no dump, and {count} in {called}"
    else:
        summary = f"{is_waiting(there)} in {called}, and {names(undumped)} left no dump: one of them at least is late"
    return hang_verdict(
        view,
        "SL301" if len(undumped) == 1 else "SL399",
        summary,
        undumped if len(undumped) == 1 else (),
        call=wait.call,
        because=(
            "with torch's nccl2 only ranks whose calls have timed out write dumps: others are late, or have ended, or "
            "their files were not copied",
            *waiters(view),
            *ground(view.case, found.waits),
        ),
        remedy=f"look at the log and the stack of {names(undumped)} first: of all others, none is late",
        confidence="low",
        waiting={other.rank for other in found.waits},
    )


def _has_no_file(facts: RankFacts) -> bool:
    """Whether nothing was found of a rank, not even a file that cannot be read."""
    return any(gap.kind == "no dump" for gap in facts.missing)

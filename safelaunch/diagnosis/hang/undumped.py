"""Ranks that have left no dump, where torch lets only those dump who wait."""

from __future__ import annotations

from safelaunch.diagnosis.sources.dumps import ground, of_nccl2
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import is_waiting, label, names, of_group
from safelaunch.model import RankFacts, Verdict


def did_not_dump(view: View) -> Verdict | None:
    """Ranks wait for one that has left no dump of its Flight Recorder, and none of those that have one is late.

    How it was concluded: since torch 2.15 "nccl" is another backend, nccl2. Its watchdog dumps the ranks whose own
    calls have timed out, and no other. So all dumps are of ranks that wait, and they wait for one without a dump: that
    one waits for nothing that has timed out. It is late, or has ended, or its file was not copied, or its group has a
    longer timeout. So the confidence is low. Of several such ranks nobody is named, since one may wait for another. In
    a log with nccl2's lines (`Operation timed out`) the rank that wrote none is named likewise.

    What to do: look at that rank's log and stack. Under `safelaunch`, all ranks are dumped before torch aborts them.
    """
    graph = view.graph
    if not (view.case.gave_up and of_nccl2(view.case)):
        return None
    undumped = tuple(facts.rank for facts in view.case.ranks if facts.recorded is None)
    blocked = tuple(wait for wait in graph.waits if {*wait.away} & {*undumped})
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
            *ground(view.case, graph.waits),
        ),
        remedy=f"look at the log and the stack of {names(undumped)} first: of all others, none is late",
        confidence="low",
        waiting={other.rank for other in graph.waits},
    )


def _has_no_file(facts: RankFacts) -> bool:
    """Whether nothing was found of a rank, not even a file that cannot be read."""
    return any(gap.kind == "no dump" for gap in facts.missing)

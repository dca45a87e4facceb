"""All who are to come to a call have come, and it does not end."""

from __future__ import annotations

from safelaunch.diagnosis.sources import dumps
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.wait import away_of
from safelaunch.diagnosis.wording import label, names, of_group
from safelaunch.model import Verdict


def all_inside(view: View) -> Verdict | None:
    """All ranks are inside the same collective, with the same operation, and it does not end. No rank is to blame.

    Example:
        error[SL310]: ranks 0-3 are inside the same all_reduce #12, and it does not end: no rank is late

    How it was concluded: the records of all members agree on operation and number, so each rank has done its part. What
    is left is what carries the data: network, links, a GPU, or the library. NVML and the kernel log are asked, and say
    which NVLinks and network ports of this node are down, and which GPUs run nothing while others do. Members on other
    nodes that could not be looked at are said to be unknown, with less confidence.

    What to do: check the interface that the ranks use, the links, Xid messages in the kernel log, and the verdicts of
    the other nodes.

    What it is not: a fault of a GPU that the driver has logged. That is SL428, or SL427 for a kernel.
    """
    found = view.graph
    if any(not wait.partners for wait in found.waits):
        return None
    away = sorted(away_of(found.waits))
    # The others wait for these ranks, behind what these are in.
    wait = next((wait for wait in found.heads if not wait.blockers), found.waits[0])
    who = names({w.rank for w in found.waits})
    inside = "is inside" if len(found.waits) == 1 else "are inside the same"
    summary = f"{who} {inside} {label(wait.call)}, and it does not end: no rank is late"
    if away:
        summary = f"{who} wait in {label(wait.call)}, and no rank of this node is late"
    here = {facts.rank for facts in view.case.ranks}
    unknown = [rank for rank in away if rank in here]
    because: tuple[str, ...] = (f"nothing is known of {names(unknown)}",) if unknown else ()
    if view.from_dumps:
        because = dumps.gaps(view.case, away)
        meetings = {(other.call.group, other.call.seq) for other in found.waits}
        if away:
            verb = "waits" if len(found.waits) == 1 else "wait"
            call = f"{label(wait.call)}{of_group(wait.call)}"
            summary = f"{who} {verb} in {call}, and nothing is known of {names(away)}"
        elif any(group not in {known.name for known in view.case.groups} for group, _ in meetings):
            return None  # there may be ranks that left no dump, and of which nobody speaks
        elif len(meetings) > 1:
            summary = f"{who} wait in {len(meetings)} collectives or messages, and no rank is missing in any"
    unstarted = () if away else dumps.unstarted(view.case, wait)
    if unstarted:
        because += unstarted
        if len({(other.call.group, other.call.seq) for other in found.heads}) == 1:
            summary = f"{who} have enqueued {label(wait.call)}, and no GPU completes it"
    if len(away) > len(unknown):
        because += (f"{names(set(away) - set(unknown))} are on other nodes: read their verdicts",)
    return hang_verdict(
        view,
        "SL310" if not unknown else "SL399",
        summary,
        (),
        location=wait.call.location,
        call=wait.call,
        because=(*because, *waiters(view), *(dumps.ground(view.case, found.waits) if view.from_dumps else ())),
        remedy=f"look at {names(unknown)} first: the log, the stack, a dump; of all others, none is late"
        if unknown
        else "no rank's host is late: look at the GPUs (Xid messages, a kernel without an end), then at the network"
        if unstarted
        else "no rank is late: look at the network, the links and the GPUs",
        confidence="low" if unknown or unstarted else "medium",
        waiting={wait.rank for wait in found.waits},
    )

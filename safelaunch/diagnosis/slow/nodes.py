"""Runs of several nodes that are slow: what is said of a node as a whole, and of the network between nodes."""

from __future__ import annotations

from safelaunch.diagnosis.slow.reasons import NOTABLE, Lateness, Reason, are_slow, is_whole_node, span
from safelaunch.model.hosts import host_name
from safelaunch.model.slow import Slowness

OR_LINK = "when calls end is not in the Flight Recorder: its link may let it go later, or it needs longer for itself"


def throttled(slow: Slowness) -> Reason | None:
    """That the CPU limit of a node holds its ranks back, and those of other nodes do not theirs."""
    late = next((node for node in slow.nodes if node.late), None)
    if late is None or not is_whole_node(slow) or late.usage is None or late.usage.throttled is None:
        return None
    own, others = late.usage.throttled, [node.usage for node in slow.nodes if not node.late and node.usage is not None]
    most = max((one.throttled or 0.0 for one in others), default=0.0)
    if own - most < NOTABLE:
        return None
    line = (
        f"the CPU limit of the cgroup on {late.host} holds processes back {own:.0%} of the time, elsewhere {most:.0%}"
    )
    remedy = "raise the CPU limit of the container or the job on that node"
    return Reason("the cgroup's CPU limit is reached", (line,), remedy, on_host=True)


def or_link(slow: Slowness, what: str, lines: tuple[str, ...]) -> Lateness:
    """What is said of ranks that come last to collectives that C++ makes, with nothing that shows why."""
    summary = f"{are_slow(slow)}: {what}; whether by its work or by its link cannot be told"
    remedy = "compare its work with that of the other ranks, and the link of its node with theirs"
    return Lateness(summary, (*lines, OR_LINK), remedy, "low")


def link(slow: Slowness) -> Reason | None:
    """That collectives with one node last longer than those among others, once all ranks have come."""
    found = slow.link
    if found is None:
        return None
    line = (
        f"from the moment when all have come, collectives with {found.host} last {span(found.with_s)}, "
        f"those without it {span(found.without_s)}"
    )
    return Reason(f"the link of {found.host} is slow", (line,), f"check the network of {host_name(found.host)}")

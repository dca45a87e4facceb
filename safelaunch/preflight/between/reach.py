"""Whether the nodes came, answered, and can reach each other; and whether their clocks agree. Pure."""

from __future__ import annotations

import errno
import statistics
from collections.abc import Iterable, Iterator, Mapping

from safelaunch.model import Finding
from safelaunch.preflight.between.facts import Dial, Picture
from safelaunch.preflight.check import ok, unchecked

# Up to so many nodes, each dials all others: 32 connections at once cost a node nothing. Beyond, some of them.
ALL_PAIRS = 32
NEIGHBOURS = 8

ALL_OF_ALL = "no node can reach any other on a high port"


def dial_plan(ranks: Iterable[int], src: int) -> tuple[int, ...]:
    """Whom node `src` dials: all others, or, of very many, the first node and eight neighbours. The first node dials
    all, so that each has its clock compared with one and the same."""
    ring = sorted(ranks)
    if len(ring) <= ALL_PAIRS or src == ring[0]:
        return tuple(rank for rank in ring if rank != src)
    place, half = ring.index(src), NEIGHBOURS // 2
    near = {ring[(place + step) % len(ring)] for step in range(-half, half + 1)}
    return tuple(sorted((near | {ring[0]}) - {src}))


def missing(picture: Picture) -> Iterator[Finding]:
    """A node of the job did not come to the check between nodes, or came and then did not answer.

    A job starts when all its nodes are there. A node that came and went silent is worse than one that is late: it
    hangs, or its network drops what it sends.

    How it is concluded: one probe on each node connects to the rendezvous endpoint, says what the node is, and then
    answers questions. A node that never connected is an error in `safelaunch check`, and a warning in a launch, whose
    rendezvous waits longer for it. One that connected and did not answer in time is an error. Two nodes that give the
    same rank are one too.

    What to do: see whether safelaunch was started on the node that is named, with the same endpoint, and whether the
    node reaches it (SL103, firewall). Leave a node that does not answer out of the job.
    """
    if picture.unlooked:
        yield unchecked("SL160", "the nodes were not compared", picture.unlooked)
        return
    found = [*_clashes(picture), *_silent(picture), *_never_came(picture)]
    if picture.unfinished and not picture.tried_pairs:
        found.append(unchecked("SL160", "the check between nodes was cut short", picture.unfinished))
    yield from found
    if not found:
        yield ok("SL160", f"all {picture.expected} nodes came and answered")


def refused(picture: Picture) -> Iterator[Finding]:
    """A node of the job was refused by its own checks, so that the others wait for it in vain.

    How it is concluded: each node looks at itself first, and tells the others if it found an error. Only launches tell
    it: the node ends with exit code 69, and the others, which its rendezvous would hold up for minutes, end as well.

    What to do: what the node's own message says, or leave the node out of the job.
    """
    bad = [node for node in picture.nodes if node.refused]
    for node in bad:
        yield Finding(
            code="SL169",
            severity="error",
            summary=f"{picture.name(node.rank)} was refused by its own checks",
            because=(node.refused,),
            remedy=f"see what safelaunch said on {node.host}, or leave the node out of the job",
            where=picture.name(node.rank),
        )
    if picture.nodes and not bad:
        yield ok("SL169", "no node was refused by its own checks")


def _clashes(picture: Picture) -> Iterator[Finding]:
    for clash in picture.clashes:
        hosts = " and ".join(clash.hosts)
        yield Finding(
            code="SL160",
            severity="error",
            summary=f"two nodes came as rank {clash.rank}: {hosts}",
            because=("each node of a job needs a rank of its own, from 0 on",),
            remedy="give each node its own --node-rank",
            where=hosts,
        )


def _silent(picture: Picture) -> Iterator[Finding]:
    for silent in picture.silent:
        yield Finding(
            code="SL160",
            severity="error",
            summary=f"{picture.name(silent.rank)} came and then did not answer",
            because=(f"it was asked for {silent.question}, and gave no answer within {silent.after_s:.3g} s",),
            remedy=f"leave the node out, or look on it for what hangs (`safelaunch check --full` on {silent.host})",
            where=picture.name(silent.rank),
        )


def _never_came(picture: Picture) -> Iterator[Finding]:
    if picture.unmet:
        yield Finding(
            code="SL160",
            severity=picture.limits.missing,
            summary="this node could not meet the others",
            because=(picture.unmet,),
            remedy="see that the node which owns the endpoint is started, with the same endpoint, and can be reached",
        )
        return
    there = {node.rank for node in picture.nodes} | {silent.rank for silent in picture.silent}
    taken = {clash.rank for clash in picture.clashes}
    absent = [rank for rank in range(picture.expected) if rank not in there | taken]
    count = picture.expected - len(there) - len(picture.clashes)
    if count <= 0:
        return
    by_rank = picture.ranked and len(absent) == count
    who = picture.names(absent) if by_rank else f"{count} of {picture.expected} nodes"
    yield Finding(
        code="SL160",
        severity=picture.limits.missing,
        summary=f"{who} never came",
        because=(f"the others waited {picture.waited_s:.3g} s: {picture.names(there)}",),
        remedy="start safelaunch there with the same endpoint, and see that the node reaches it",
        where=who if by_rank else "",
    )


def dial_back(picture: Picture) -> Iterator[Finding]:
    """A node cannot be reached by the others on a high port.

    NCCL and gloo connect the ranks with each other on ports above 1023 that the kernel chooses. A firewall that lets
    only the rendezvous port through makes the first collective wait without end.

    How it is concluded: each node listens on such a port, and each dials every other (of more than 32 nodes: the first
    one and eight neighbours), with 3 s for an answer. No answer at all: a firewall drops the packets. Refused: a
    firewall rejects them, or another machine has that address. A node that nobody can reach, or that can reach nobody,
    is named; of two nodes it cannot be told whose firewall it is.

    What to do: open the ports between the nodes of the job, at least those of net.ipv4.ip_local_port_range; or let the
    ranks use another network (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME).
    """
    tried = picture.dials
    failed = [dial for dial in tried if dial.error]
    if not failed:
        yield ok("SL166", "every node can be reached on a high port" if tried else "there was no other node to dial")
        return
    if len(failed) == len(tried):
        yield _blocked(picture, ALL_OF_ALL, failed, picture.names({dial.dst for dial in failed}))
        return
    for node, inbound in _closed(picture, failed):
        kind = "cannot be reached by any other node" if inbound else "cannot reach any other node"
        edges = [dial for dial in failed if node in ((dial.dst,) if inbound else (dial.src,))]
        yield _blocked(picture, f"{picture.name(node)} {kind}", edges, picture.name(node))
        failed = [dial for dial in failed if dial not in edges]
    for dial in failed:
        where = picture.names((dial.src, dial.dst))
        summary = f"{picture.name(dial.dst)} cannot be reached by {picture.name(dial.src)}"
        yield _blocked(picture, summary, [dial], where, alone=True)


def unreachable(picture: Picture) -> frozenset[int]:
    """Nodes that `dial_back` blames: nothing more is learned from exchanging data with them."""
    failed = [dial for dial in picture.dials if dial.error]
    if failed and len(failed) == len(picture.dials):
        return frozenset(node.rank for node in picture.nodes)
    return frozenset(node for node, _ in _closed(picture, failed))


def unreachable_pairs(picture: Picture) -> frozenset[tuple[int, int]]:
    """Pairs of nodes of which one did not reach the other, lower rank first."""
    return frozenset((min(dial.src, dial.dst), max(dial.src, dial.dst)) for dial in picture.dials if dial.error)


def _closed(picture: Picture, failed: Iterable[Dial]) -> list[tuple[int, bool]]:
    """Nodes that explain failures in one go: (node, True) where nobody reaches it, (node, False) where it reaches
    nobody. The one that explains most comes first."""
    left = list(failed)
    found: list[tuple[int, bool]] = []
    while True:
        best: tuple[int, int, bool] | None = None
        for node in sorted({rank for dial in left for rank in (dial.src, dial.dst)}):
            for inbound in (True, False):
                edges = [dial for dial in picture.dials if (dial.dst if inbound else dial.src) == node]
                new = [dial for dial in left if (dial.dst if inbound else dial.src) == node]
                enough = len(edges) > 1 and len(new) > 1 and all(dial.error for dial in edges)
                if enough and (best is None or len(new) > best[0]):
                    best = (len(new), node, inbound)
        if best is None:
            return found
        _, node, inbound = best
        found.append((node, inbound))
        left = [dial for dial in left if (dial.dst if inbound else dial.src) != node]


def _blocked(picture: Picture, summary: str, edges: list[Dial], where: str, *, alone: bool = False) -> Finding:
    because = [
        f"from {picture.name(dial.src)} to {dial.ip}:{dial.port}: {dial.error}{_meaning(dial)}" for dial in edges[:3]
    ]
    if len(edges) > 3:
        because.append(f"and {len(edges) - 3} more like these")
    if alone:
        because.append("cannot tell which of the two keeps the connection from coming about")
    return Finding(
        code="SL166",
        severity="error",
        summary=summary,
        because=tuple(because),
        remedy="ask an administrator to open TCP ports above 1023 between the nodes, or use another network"
        " (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
        where=where,
    )


def _meaning(dial: Dial) -> str:
    if dial.errno == errno.ETIMEDOUT:
        return " (a firewall drops it)"
    return " (a firewall rejects it, or another machine has this address)" if dial.errno == errno.ECONNREFUSED else ""


def clocks(picture: Picture) -> Iterator[Finding]:
    """The clock of a node is off.

    Logs of the nodes cannot be put in order, and tokens and certificates may count as expired or not yet valid.

    How it is concluded: a node that is dialled answers with its time. Half of the round trip is the most that the
    difference can be wrong by, and is taken off. A node whose clock is more than 1 s (`clock_skew`, an estimate: NTP
    keeps clocks within milliseconds) from the median of all is named; of two nodes it cannot be told which is right.

    What to do: ask an administrator to see whether chronyd or ntpd runs there (`timedatectl`).
    """
    offsets = _offsets(picture)
    if len(offsets) < 2:
        yield ok("SL165", "no clocks to compare")
        return
    limit = picture.limits.clock_skew_s
    reference = statistics.median_low(sorted(offset for offset, _ in offsets.values()))
    off = {
        rank: offset - reference for rank, (offset, doubt) in offsets.items() if abs(offset - reference) - doubt > limit
    }
    if not off:
        widest = max(offset for offset, _ in offsets.values()) - min(offset for offset, _ in offsets.values())
        yield ok("SL165", f"the clocks of all nodes agree within {max(widest, 0.001):.3f} s")
    elif len(offsets) > 2 and 2 * len(off) < len(offsets):
        for rank, seconds in sorted(off.items()):
            direction = "ahead of" if seconds > 0 else "behind"
            yield _skewed(f"the clock of {picture.name(rank)} is {abs(seconds):.1f} s {direction} the others",
                          picture.name(rank), ())  # fmt: skip
    else:
        first, last = min(offsets, key=lambda rank: offsets[rank][0]), max(offsets, key=lambda rank: offsets[rank][0])
        apart = offsets[last][0] - offsets[first][0]
        yield _skewed(f"the clock of {picture.name(last)} is {apart:.1f} s ahead of that of {picture.name(first)}",
                      picture.names((first, last)), ("cannot tell which of them is right",))  # fmt: skip


def _skewed(summary: str, where: str, because: tuple[str, ...]) -> Finding:
    return Finding(
        code="SL165",
        severity="warning",
        summary=summary,
        because=because,
        remedy="ask an administrator to see whether chronyd or ntpd runs there (`timedatectl`)",
        where=where,
    )


def _offsets(picture: Picture) -> Mapping[int, tuple[float, float]]:
    """Each node's clock against the first node's, in seconds, and how far that may be wrong."""
    if not picture.nodes:
        return {}
    first = picture.nodes[0].rank
    found: dict[int, tuple[float, float]] = {first: (0.0, 0.0)}
    for dial in sorted((dial for dial in picture.dials if not dial.error), key=lambda dial: dial.rtt_s):
        if dial.src == first:
            found.setdefault(dial.dst, (dial.offset_s, dial.rtt_s / 2))
        elif dial.dst == first:
            found.setdefault(dial.src, (-dial.offset_s, dial.rtt_s / 2))
    return found

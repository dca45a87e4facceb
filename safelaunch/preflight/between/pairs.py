"""Which pairs of nodes exchange data in which order, and what follows from the results. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from safelaunch.model import Finding, Severity
from safelaunch.preflight.between.facts import Limits, Pair, PairReport, Picture, Speed
from safelaunch.preflight.check import ok

# Two for the first pairs (an odd number of nodes needs a second one), two for the suspects, one to spare.
MAX_ROUNDS = 5

Both = tuple[int, int]


@dataclass(frozen=True)
class Standing:
    """What the pairs tried so far say of the nodes.

    `scores` holds the best bandwidth of each node that passed with anybody, `bad` the pairs that failed or were slow,
    `good` the nodes that passed with somebody at the usual speed.
    """

    pairs: tuple[Pair, ...]
    limits: Limits
    scores: Mapping[int, float]
    usual: float
    bad: tuple[Pair, ...]
    good: frozenset[int]

    def severity(self, pair: Pair) -> Severity:
        return "error" if pair.error else _severity(pair.bandwidth, self.usual, self.limits)

    def bad_with_good(self, rank: int) -> list[Pair]:
        """The bad pairs of a node whose other member is good."""
        return [pair for pair in self.bad if rank in pair.both and pair.other(rank) in self.good]

    def convicted(self, rank: int) -> bool:
        """Bad with two different good partners, and good with nobody: it is the node."""
        return rank not in self.good and len(self.bad_with_good(rank)) > 1


def standing(pairs: Sequence[Pair], limits: Limits) -> Standing:
    """Weigh the pairs. The usual speed is the median of the nodes' scores, the upper one of two."""
    scores: dict[int, float] = {}
    for pair in pairs:
        for rank in () if pair.error else pair.both:
            scores[rank] = max(scores.get(rank, 0.0), pair.bandwidth)
    usual = statistics.median_high(sorted(scores.values())) if scores else 0.0
    bad = tuple(pair for pair in pairs if pair.error or _severity(pair.bandwidth, usual, limits) != "ok")
    good = frozenset(rank for pair in pairs if pair not in bad for rank in pair.both)
    return Standing(tuple(pairs), limits, scores, usual, bad, good)


def next_round(
    ranks: Iterable[int], pairs: Sequence[Pair], limits: Limits, barred: Collection[Both] = ()
) -> tuple[Both, ...]:
    """The pairs to try next, lower rank first; no node is in two. Empty when nothing new can be learned.

    First adjacent nodes; one that is left over is next with any other. Then each node that has not passed with a
    partner that has, until it passes, or has failed with two different ones. Of three nodes all pairs are tried.

    Args:
        ranks: all nodes that take part.
        pairs: results of the rounds so far.
        limits: what counts as slow.
        barred: pairs, lower rank first, that are known not to reach each other.
    """
    ring = sorted(ranks)
    if len(ring) == 3:
        # Two of the three pairs share a node: were it slow, both would be, and look alike.
        done = {pair.both for pair in pairs}
        left = [both for both in combinations(ring, 2) if both not in done and both not in barred]
        return tuple((a, b) for a, b in left[:1])
    if not pairs:
        first = [(a, b) for a, b in zip(ring[::2], ring[1::2], strict=False) if (a, b) not in barred]
        if first:
            return tuple(first)
    now = standing(pairs, limits)
    tried = {pair.both for pair in pairs}
    new = [rank for rank in ring if not any(rank in both for both in tried)]
    suspects = [rank for rank in ring if rank not in new and rank not in now.good and not now.convicted(rank)]
    chosen: list[Both] = []
    busy: set[int] = set()
    for rank in (*new, *suspects):
        if rank in busy:
            continue
        for partner in _partners(rank, ring, now):
            both = (min(rank, partner), max(rank, partner))
            if partner not in busy and both not in tried and both not in barred:
                chosen.append(both)
                busy |= {rank, partner}
                break
    return tuple(chosen)


def _partners(rank: int, ring: Sequence[int], now: Standing) -> list[int]:
    """Good nodes first; while there are none, any that is not convicted."""
    good = [other for other in ring if other in now.good and other != rank]
    others = [other for other in ring if other != rank and other not in now.good and not now.convicted(other)]
    return good or others


def merge(both: Both, reports: Mapping[int, PairReport], names: Callable[[int], str]) -> Pair:
    """One result of a pair from what its two nodes say; a node that says nothing has failed."""
    a, b = both
    errors = []
    for rank in both:
        report = reports.get(rank)
        if report is None:
            errors.append(f"{names(rank)} gave no answer")
        elif report.error:
            errors.append(f"{names(rank)}: {report.error}")
    return Pair(a, b, 0.0 if errors else min(reports[rank].bandwidth for rank in both), "; ".join(errors))


# ----------------------------------------------------------------------------------------------- findings


def bad_node(picture: Picture) -> Iterator[Finding]:
    """A node fails, or is slow, whichever good node it works with.

    One such node stops the whole job, or every step takes as long as that node does.

    How it is concluded: pairs of nodes do all_reduce with whole numbers that are compared exactly, and measure its bus
    bandwidth. A node that failed or was slow is tried again with nodes that passed: bad with two different good
    partners and good with nobody means the node. A node's speed is the best of its pairs, against the median of all
    nodes: below 0.5 (`pair_slow_error`) is an error, below 0.8 (`pair_slow`) a warning (estimates: microsoft/superbench
    calls a node defective that is 5 % under its baseline; this leaves room for other jobs on the network). With gloo,
    which shares its cores with all else, half of these shares hold. Computing is measured apart from the network, each
    node by itself. It is compared in the same way between nodes with the same GPUs (on the CPU alone it is a warning at
    most). A probe that hangs is killed at its deadline and has failed.

    What to do: leave the node out of the job (`--exclude` of sbatch), and tell an administrator. `safelaunch check
    --full` on it may say what is broken.
    """
    now = standing(picture.pairs, picture.limits)
    found = [*_slow_at_computing(picture)]
    for rank in _all(picture):
        if now.convicted(rank):
            found.append(_node_finding(picture, now, rank))
    yield from found
    if picture.unfinished:
        yield Finding(
            code="SL167", severity="unchecked", summary="not all nodes were measured", because=(picture.unfinished,)
        )
    elif not picture.pairs:
        yield ok("SL167", "no pair of nodes was tried, since they do not reach each other (SL166)")
    elif not found:
        speed = f", all_reduce at {_rate(now.usual)}" if now.usual else ""
        yield ok("SL167", f"no node is slow or fails with good partners ({len(picture.pairs)} pairs{speed})")


def bad_link(picture: Picture) -> Iterator[Finding]:
    """Two nodes cannot exchange data, or only slowly, and it is the way between them; or it cannot be told which of
    them it is.

    How it is concluded: pairs of nodes do all_reduce, as SL167 says. A pair that fails or is slow while both its
    members are good with others means the link: a cable, a switch port, a route. With two nodes alone, or where no good
    partner was left to try, it cannot be told whether it is one of the nodes, and which. Where all pairs are slow there
    is nothing to compare with, and a bandwidth under 10 MB/s (`pair_bandwidth`, an estimate: 100 Mbit/s Ethernet) is a
    warning.

    What to do: for a link, tell an administrator both ends. Where it cannot be told, run the check with a third node.
    """
    now = standing(picture.pairs, picture.limits)
    found = False
    for pair in now.bad:
        if now.convicted(pair.a) or now.convicted(pair.b):
            continue  # SL167's
        found = True
        yield _link_finding(picture, now, pair)
    if not found and 0 < now.usual < picture.limits.floor:
        found = True
        yield Finding(
            code="SL168",
            severity="warning",
            summary=f"all_reduce between the nodes runs at {_rate(now.usual)} only",
            because=(
                f"that is less than {_rate(picture.limits.floor)}, and no pair was faster",
                "cannot tell which node or link it is",
            ),
            remedy="see which network the ranks use (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), and how fast it is",
            where=picture.names(now.scores),
        )
    if not found:
        yield ok("SL168", "no link between two good nodes is slow or broken")


def _node_finding(picture: Picture, now: Standing, rank: int) -> Finding:
    evidence = now.bad_with_good(rank)
    failed = [pair for pair in evidence if pair.error]
    severity: Severity = "error"
    partners = picture.names(pair.other(rank) for pair in evidence)
    if len(failed) == len(evidence):
        summary = f"{picture.name(rank)} cannot exchange data with good nodes"
    else:
        score = now.scores.get(rank, 0.0)
        summary = (
            f"the network of {picture.name(rank)} is slow: {_rate(score)}, {_share(score, now.usual)} of the median"
        )
        severity = _severity(score, now.usual, picture.limits)
    return Finding(
        code="SL167",
        severity=severity,
        summary=summary,
        because=(
            *(f"with {picture.name(pair.other(rank))}: {pair.error or _rate(pair.bandwidth)}" for pair in evidence[:3]),
            f"{partners} {'did well' if len(failed) == len(evidence) else 'were fast'} with others",
        ),
        remedy="leave the node out of the job, and tell an administrator; try `safelaunch check --full` on "
        + _host(picture, rank),
        where=picture.name(rank),
    )


def _link_finding(picture: Picture, now: Standing, pair: Pair) -> Finding:
    where = picture.names(pair.both)
    names = f"{picture.name(pair.a)} and {picture.name(pair.b)}"
    if pair.error:
        summary = f"{names} cannot exchange data"
        because = [pair.error]
    else:
        share = _share(pair.bandwidth, now.usual)
        summary = f"the link between {names} is slow: {_rate(pair.bandwidth)}, {share} of the median"
        because = []
    if pair.a in now.good and pair.b in now.good:
        because.append("both are good with other nodes: it is the way between them")
        remedy = "tell an administrator both ends; do not put both nodes into one job"
    else:
        because += ["cannot tell which of the two it is: " + _why_untold(picture, now), *_alone(picture, pair)]
        remedy = "run the check again with another node that is good, or leave both out"
    return Finding(
        code="SL168", severity=now.severity(pair), summary=summary, because=tuple(because), remedy=remedy, where=where
    )


def _why_untold(picture: Picture, now: Standing) -> str:
    if len(picture.nodes) == 2:
        return "there is no third node to try them with"
    return "no other good node was left to try them with" if now.good else "no pair of nodes passed"


def _alone(picture: Picture, pair: Pair) -> list[str]:
    """What is known of the members of a pair by themselves."""
    broken = [speed for speed in picture.speeds if speed.rank in pair.both and speed.error]
    if broken:
        return [f"by itself, {picture.name(speed.rank)} could not compute: {speed.error}" for speed in broken]
    return ["by itself, each of them computes"] if picture.speeds else []


def _slow_at_computing(picture: Picture) -> Iterator[Finding]:
    kinds: dict[tuple[str, ...], list[Speed]] = {}
    for speed in picture.speeds:
        node = next((node for node in picture.nodes if node.rank == speed.rank), None)
        if speed.error:
            yield Finding(
                code="SL167",
                severity="error",
                summary=f"{picture.name(speed.rank)} cannot compute",
                because=(speed.error,),
                remedy=f"see `safelaunch check --full` on {_host(picture, speed.rank)}",
                where=picture.name(speed.rank),
            )
        elif node is not None:
            kinds.setdefault(tuple(sorted(set(node.gpus))) if node.uses_gpu else ("CPU",), []).append(speed)
    for kind, speeds in kinds.items():
        # Of two nodes the faster one is the measure: nothing makes a node faster than it is.
        values = sorted(speed.flops for speed in speeds)
        usual = values[-1] if len(values) < 3 else statistics.median_high(values)
        for speed in speeds:
            severity = _severity(speed.flops, usual, picture.limits)
            if severity != "ok":
                yield _slow_finding(picture, speed, usual, "warning" if kind == ("CPU",) else severity)


def _slow_finding(picture: Picture, speed: Speed, usual: float, severity: Severity) -> Finding:
    return Finding(
        code="SL167",
        severity=severity,
        summary=f"{picture.name(speed.rank)} computes slowly: {speed.flops / 1e9:.3g} GFLOP/s, "
        f"{_share(speed.flops, usual)} of its peers",
        because=(f"a multiplication of matrices on its slowest device; its peers do {usual / 1e9:.3g} GFLOP/s",),
        remedy=f"see what slows it down (`safelaunch check --full` on {_host(picture, speed.rank)}), or leave it out",
        where=picture.name(speed.rank),
    )


def _severity(speed: float, usual: float, limits: Limits) -> Severity:
    if speed < limits.slow_error * usual:
        return "error"
    return "warning" if speed < limits.slow_warning * usual else "ok"


def _all(picture: Picture) -> list[int]:
    return sorted({rank for pair in picture.pairs for rank in pair.both})


def _host(picture: Picture, rank: int) -> str:
    return next((node.host for node in picture.nodes if node.rank == rank), "that node")


def _rate(value: float) -> str:
    return f"{value / 1e9:.3g} GB/s" if value >= 1e9 else f"{value / 1e6:.3g} MB/s"


def _share(value: float, of: float) -> str:
    return f"{100 * value / of:.0f} %" if of else "0 %"

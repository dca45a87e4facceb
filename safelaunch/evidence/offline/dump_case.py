"""From the dumps of all ranks to one case, so that the rules of live runs decide.

Wrong names come from dumps that do not belong together: taken at different moments, left over from another run, or of
groups that share a name only. What contradicts its peers is set aside, and the case says so.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from safelaunch.evidence.offline.dump import Dump
from safelaunch.model import Case, Collective, Gap, GroupProgress, Incident, ProcessGroup, RankFacts

WORLD = "0"  # torch's name of the default group

# A dump whose latest entry is so much older than the latest of all is of another run: within one run, the ranks'
# latest entries lie no further apart than what keeps a rank from its next call. An estimate: four days.
ANOTHER_RUN_S = 4 * 86400.0

SOURCE = "recorder"
NO_DUMP = Gap(SOURCE, "no dump: it had ended, or could not write one, or its file was not copied here", "no dump")
OF_MESSAGES = Gap(SOURCE, "gloo records no messages (send, recv), and there were some: a rank may be waiting in one")


def build(dumps: Sequence[Dump]) -> Case:
    """The case of a job of which these dumps are left; several of one rank are allowed."""
    chosen, gaps = _one_of_each(dumps)
    groups, chosen = _groups(chosen)
    gaps |= _of_another_time(chosen, {group.name: group.ranks for group in groups})
    gaps |= _behind_in_messages(chosen, gaps)
    chosen = _numbered(chosen, gaps)
    everybody = _everybody(dumps, groups)
    by_rank = {dump.rank: dump for dump in chosen}
    by_rank = {rank: _with_uncalled(dump, groups) for rank, dump in by_rank.items()}
    facts = tuple(_facts(rank, by_rank.get(rank), gaps.get(rank)) for rank in everybody)
    known = [one for one in facts if one.recorded is not None]
    groups = (*groups, *_seen_together(known, {group.name for group in groups}))
    world = max(everybody, default=-1) + 1
    latest = max((call.t for one in known for call in one.recorded or () if call.done), default=0.0)
    written = max((dump.written for dump in chosen), default=0.0)
    incident = Incident("hang", 0, (), latest)
    gave_up = any(dump.gave_up or (dump.backend == "nccl2" and _timed_out(dump)) for dump in chosen)
    return Case(incident, "", world, facts, groups=groups, origin="dumps", now=written or None, gave_up=gave_up)


def _timed_out(dump: Dump) -> bool:
    """Whether a call had timed out when its rank dumped, by the times: entries of nccl2 do not say so."""
    return 0.0 < dump.limit <= dump.written


def _one_of_each(dumps: Sequence[Dump]) -> tuple[list[Dump], dict[int, Gap]]:
    """The latest readable dump of each rank, with frames where two are alike; and why a rank has none."""
    best: dict[int, Dump] = {}
    gaps: dict[int, Gap] = {}
    backend = _backend_of_most(dumps)
    for dump in dumps:
        if dump.unreadable:
            gaps[dump.rank] = Gap(SOURCE, f"{os.path.basename(dump.path)}: {dump.unreadable}")
            continue
        if dump.backend != backend:
            backends = f"it is of {dump.backend}, those of most ranks are of {backend}"
            gaps[dump.rank] = Gap(SOURCE, f"{os.path.basename(dump.path)}: {backends}, which numbers calls for itself")
            continue
        other = best.get(dump.rank)
        if other is None or (dump.t, dump.frames) > (other.t, other.frames):
            best[dump.rank] = dump
    return [best[rank] for rank in sorted(best)], {rank: gap for rank, gap in gaps.items() if rank not in best}


def _backend_of_most(dumps: Sequence[Dump]) -> str:
    """The backend of which most ranks have left dumps; of two, one of NCCL's: gloo is there for what is small."""
    ranks: dict[str, set[int]] = {}
    for dump in dumps:
        if not dump.unreadable:
            ranks.setdefault(dump.backend, set()).add(dump.rank)
    return max(ranks, key=lambda name: (len(ranks[name]), name.startswith("nccl"), name), default="")


def _groups(dumps: list[Dump]) -> tuple[tuple[ProcessGroup, ...], list[Dump]]:
    """All groups, and the dumps with groups told apart that share a name and have other members: names are given by
    each process for itself, where a program does not make its groups on all ranks alike."""
    members: dict[str, dict[tuple[int, ...], int]] = {}
    for dump in dumps:
        for group in dump.groups:
            sets = members.setdefault(group.name, {})
            sets.setdefault(group.ranks, len(sets))
    shared = {name for name, sets in members.items() if len(sets) > 1}

    def own_name(name: str, ranks: tuple[int, ...]) -> str:
        return f"{name}.{members[name][ranks]}" if name in shared else name

    groups = tuple(ProcessGroup(own_name(name, ranks), ranks) for name, sets in members.items() for ranks in sets)
    return groups, [_renamed(dump, shared, own_name) if shared else dump for dump in dumps]


def _renamed(dump: Dump, shared: set[str], own_name: Callable[[str, tuple[int, ...]], str]) -> Dump:
    names = {group.name: own_name(group.name, group.ranks) for group in dump.groups if group.name in shared}
    if not names:
        return dump
    return replace(
        dump,
        calls=tuple(replace(call, group=names.get(call.group, call.group)) for call in dump.calls),
        high={names.get(name, name): number for name, number in dump.high.items()},
        met={names.get(name, name): number for name, number in dump.met.items()},
        ahead={names.get(name, name): number for name, number in dump.ahead.items()},
        progress=tuple(replace(one, group=names.get(one.group, one.group)) for one in dump.progress),
    )


def _of_another_time(dumps: Sequence[Dump], members: dict[str, tuple[int, ...]]) -> dict[int, Gap]:
    """Ranks whose dumps cannot have been taken at the moment of the others', and why.

    Nobody finishes a collective such as all_reduce before all members have come to it. A rank that never came to what
    a peer has finished was dumped before; where that would be most of them, the peer was dumped after.
    """
    odd: dict[int, Gap] = {}
    latest = max((dump.t for dump in dumps), default=0.0)
    for dump in dumps:
        if dump.calls and latest - dump.t > ANOTHER_RUN_S:
            days = (latest - dump.t) / 86400
            odd[dump.rank] = Gap(SOURCE, f"its dump is {days:.0f} days older than the latest one")
    by_rank = {dump.rank: dump for dump in dumps if dump.rank not in odd}
    names = {name for dump in by_rank.values() for name in dump.high}
    having: dict[str, list[int]] = {name: list(members[name]) for name in names if name in members}
    for dump in by_rank.values():
        for name in dump.high:
            if name not in members:
                having.setdefault(name, []).append(dump.rank)
    for name, ranks in having.items():
        _compare(name, [by_rank[rank] for rank in ranks if rank in by_rank], odd)
    return odd


def _compare(name: str, dumps: list[Dump], odd: dict[int, Gap]) -> None:
    known = [dump for dump in dumps if name in dump.high or not dump.overwritten]
    highs = sorted(_came(dump, name) for dump in known)
    for claim in sorted({dump.met.get(name, 0) for dump in known}, reverse=True):
        behind = bisect_left(highs, claim)
        if behind * 2 > len(known):
            ahead = [dump for dump in known if dump.met.get(name, 0) == claim]
            rest = [dump for dump in known if _came(dump, name) < claim]
            if _went_on(ahead, rest):
                later = Gap(SOURCE, f"a later dump, of rank {ahead[0].rank}, shows that the job went on")
                odd.update((dump.rank, later) for dump in rest)
                return
            for dump in known:
                if dump.met.get(name, 0) == claim:
                    odd[dump.rank] = _of_another_moment("after its peers'")
            continue
        for dump in known:
            if _came(dump, name) < claim:
                odd[dump.rank] = _of_another_moment("before its peers'")
        return


def _of_another_moment(when: str) -> Gap:
    return Gap(SOURCE, f"its dump was taken {when}, or is of another run", "another moment")


def _came(dump: Dump, name: str) -> int:
    """The highest number of a group that the rank may have let its peers finish."""
    return dump.high.get(name, 0) + dump.ahead.get(name, 0)


def _went_on(ahead: list[Dump], rest: list[Dump]) -> bool:
    """Whether dumps that are ahead are of the same run, and so prove that what the others wait in has ended: their
    ranks made calls after the others' latest, and before."""
    last = max(dump.t for dump in rest)
    return all(dump.t > last and (dump.since <= last or dump.overwritten) for dump in ahead)


Pair = tuple[str, int, int, str]  # group, rank, peer, and what it does


def _by_pair(dumps: Iterable[Dump]) -> dict[Pair, list[Collective]]:
    found: dict[Pair, list[Collective]] = {}
    for dump in dumps:
        for call in dump.calls:
            if call.peer is not None:
                found.setdefault((call.group, dump.rank, call.peer, call.op), []).append(call)
    return found


def _opposite(pair: Pair) -> Pair:
    group, rank, peer, op = pair
    return (group, peer, rank, "recv" if op == "send" else "send")


def _behind_in_messages(dumps: Sequence[Dump], gaps: dict[int, Gap]) -> dict[int, Gap]:
    """Ranks that wait in a message which its other end has done: their dumps were taken before that, unless the wait
    had timed out by then."""
    pairs = _by_pair(dump for dump in dumps if dump.rank not in gaps)
    partial = {dump.rank for dump in dumps if dump.overwritten or _timed_out(dump)}
    odd: dict[int, Gap] = {}
    for pair, calls in pairs.items():
        theirs = pairs.get(_opposite(pair), [])
        if partial & {pair[1], pair[2]}:
            continue
        ended = max((call.seq for call in theirs if call.done), default=0)
        if any(not call.done and call.seq <= ended for call in calls):
            odd[pair[1]] = _of_another_moment(f"before that of rank {pair[2]}")
    return odd


def _numbered(dumps: Sequence[Dump], gaps: dict[int, Gap]) -> list[Dump]:
    """Messages with numbers that compare between two ranks.

    Where both rings are whole these are counts. Else nobody knows how many there were: what is done is 0, what is
    waited in is 1, and so is what was done by a call made after the other end began to wait: it may be that message.
    """
    pairs = _by_pair(dump for dump in dumps if dump.rank not in gaps)
    partial = {dump.rank for dump in dumps if dump.overwritten}

    def number(rank: int, call: Collective) -> Collective:
        if call.peer is None or not partial & {rank, call.peer}:
            return call
        theirs = pairs.get(_opposite((call.group, rank, call.peer, call.op)), [])
        waited = min((other.t for other in theirs if not other.done), default=float("inf"))
        return replace(call, seq=0 if call.done and call.t <= waited else 1)

    return [
        replace(dump, calls=tuple(number(dump.rank, call) for call in dump.calls))
        if any(call.peer is not None for call in dump.calls)
        else dump
        for dump in dumps
    ]


def _everybody(dumps: Iterable[Dump], groups: Sequence[ProcessGroup]) -> list[int]:
    """All ranks that are known to exist: with a dump, as members of groups, and below the highest of them."""
    ranks = {dump.rank for dump in dumps} | {rank for group in groups for rank in group.ranks}
    top = max(ranks, default=-1) + 1
    # One file with a large number in its name does not make a job of that size.
    return list(range(top)) if top <= 4 * len(ranks) + 64 else sorted(ranks)


def _with_uncalled(dump: Dump, groups: Sequence[ProcessGroup]) -> Dump:
    """The dump with the groups of its rank that have no counters: it has made no call in them."""
    known = {one.group for one in dump.progress}
    if not dump.counters or "" in known:
        return dump
    uncalled = [group.name for group in groups if dump.rank in group.ranks and group.name not in known]
    return replace(dump, progress=(*dump.progress, *(GroupProgress(name, dump.backend, 0, 0) for name in uncalled)))


def _facts(rank: int, dump: Dump | None, gap: Gap | None) -> RankFacts:
    if dump is None or gap:
        return RankFacts(rank, -1, 0, watched=False, recording=False, recorded=None, missing=(gap or NO_DUMP,))
    return RankFacts(
        rank,
        -1,
        0,
        watched=False,
        recording=False,
        recorded=dump.calls,
        overwritten=dump.overwritten,
        progress=dump.progress,
        missing=(OF_MESSAGES,) if dump.messages_lost else (),
    )


def _seen_together(known: Sequence[RankFacts], named: set[str]) -> list[ProcessGroup]:
    """Groups whose members no dump tells (gloo's): those that were seen in it, where one of them is late for another.

    There may be more members, which never made a call in it. So where nobody that was seen is late, the group is left
    out, and with it the claim that all have come.
    """
    seen: dict[str, list[tuple[int, Collective]]] = {}
    for facts in known:
        last: dict[str, Collective] = {}
        for call in facts.recorded or ():
            if not (call.issued or call.op in ("send", "recv")):
                last[call.group] = call
        for name, call in last.items():
            if name not in named and name != WORLD:
                seen.setdefault(name, []).append((facts.rank, call))
    return [
        ProcessGroup(name, tuple(rank for rank, _ in calls))
        for name, calls in seen.items()
        if min(call.seq for _, call in calls) < max((call.seq for _, call in calls if not call.done), default=0)
    ]

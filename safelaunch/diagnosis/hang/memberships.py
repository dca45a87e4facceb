"""Process groups that ranks have not made together: from there on their names, and numbers, mean different things."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping

from safelaunch.diagnosis.blame.history import Departure
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import MAKING, final
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Verdict


def groups_differ(view: View) -> Verdict | None:
    """Ranks wait in a process group, or make one, and the group has other members for some of them than for others.

    How it was concluded: each rank writes down the members of the groups that it makes, in order. A group that one rank
    did not make shifts all later ones: the second group here is the first one there. With three ranks or more, the one
    is named that called `new_group` for other members than all others did, or did not call it where all others wait for
    it. Otherwise the evidence does not say who is wrong.

    What to do: call `new_group` on all ranks of the job, in the same order, also for groups that a rank is not in. Or
    give it `use_local_synchronization=True`.
    """
    found = view.graph
    claims: dict[str, list[frozenset[int]]] = {}
    for group in view.case.groups:
        claims.setdefault(group.name, []).append(frozenset(group.ranks))
    shifted = {name for name, sets in claims.items() if _differ(sets)}
    concerned = [wait for wait in found.waits if wait.call.group in shifted]
    odd = _asked_for_another(view.case, found)
    making = [wait for wait in found.waits if wait.call.group.startswith(MAKING)]
    if not concerned and (odd is None or not (found.cycle or making)):
        return None
    ranks = view.by_rank
    own = [wait for wait in found.waits if odd is not None and wait.rank == odd.rank]
    wait = (own or concerned or making or [*found.waits])[0]
    if odd is None:
        name = wait.call.group
        what = name if name.startswith(MAKING) else f"group {name}"
        sets = sorted(set(claims[name]), key=lambda members: (len(members), sorted(members)))
        told = f"{what} has for some {', for others '.join(names(each) for each in sets)}"
    else:
        told = odd.text
    return hang_verdict(
        view,
        "SL302",
        f"ranks have not made the same process groups: {told}",
        (odd.rank,) if odd is not None else (),
        location=place_of(view, wait),
        call=wait.call,
        because=waiters(view),
        remedy="call new_group on all ranks of the job, in the same order, also for groups that a rank is not in",
        confidence="medium",
        conclusive=bool(found.cycle) and not found.sinks and final((ranks[w.rank], w.call) for w in found.waits),
        waiting={each.rank for each in found.waits},
    )


def alone_in_its_group(view: View) -> Departure | None:
    """The rank that has come to a line with a group whose members have come there with other ones, where all other
    ranks, two of them at least with each other, have come with groups that all their members share, but for it."""
    found = view.graph
    members = {group.name: frozenset(group.ranks) for group in view.case.groups}
    if len(members) < len(view.case.groups) or not view.sees_all_ranks or view.from_dumps:
        return None
    departures = []
    for wait in found.waits:
        line = wait.call.location
        lines = {facts.rank: [call for call in facts.calls if call.location == line] for facts in view.case.ranks}
        came = {rank: calls for rank, calls in lines.items() if calls}
        if line is None or wait.rank not in found.cycle or wait.rank not in came:
            continue
        # Of the same round: nearer to this call than to the rank's own one before it.
        before = came[wait.rank][-2].t if len(came[wait.rank]) > 1 else float("-inf")
        if any(calls[-1].t < (before + wait.call.t) / 2 or calls[-1].group not in members for calls in came.values()):
            continue
        groups = {rank: members[calls[-1].group] for rank, calls in came.items()}
        if not frozenset().union(*groups.values()) <= groups.keys():
            continue
        own = groups.pop(wait.rank)
        shared = all(groups[peer] == group for group in groups.values() for peer in group - {wait.rank})
        awaited = any(wait.rank in group for group in groups.values())
        agreeing = any(len(group) > 1 and wait.rank not in group for group in groups.values())
        if shared and awaited and agreeing and any(groups[peer] != own for peer in own - {wait.rank}):
            text = f"rank {wait.rank} came to line {line.line} with the group of {names(own)}, whose other members"
            departures.append(Departure(wait.rank, f"{text} came there with other groups"))
    return departures[0] if len(departures) == 1 else None


def _asked_for_another(case: Case, found: Graph) -> Departure | None:
    """The rank that has called `new_group` for other members than all others, or has not called it, the first time that
    they differ."""
    asked = [facts.new_groups for facts in case.ranks]
    for number, groups in enumerate(itertools.zip_longest(*asked), start=1):
        votes = collections.Counter(groups)
        if len(votes) == 1 or _apart(dict(zip((facts.rank for facts in case.ranks), groups, strict=True))):
            continue
        (usual, most), *rest = votes.most_common()
        if len(case.ranks) != case.world_size or len(rest) != 1 or rest[0][1] != 1 or most < 2 or usual is None:
            return None
        facts = next(facts for facts, members in zip(case.ranks, groups, strict=True) if members != usual)
        theirs = rest[0][0]
        own = found.of(facts.rank)
        if theirs is None and (facts.rank not in found.cycle or own is None or own.call.is_message):
            return None  # one that has called it less often may be late, or wait for what another one has left out
        did = (
            f"called new_group #{number} for {names(theirs)}, and" if theirs else f"has not called new_group #{number},"
        )
        return Departure(facts.rank, f"rank {facts.rank} {did} all others for {names(usual)}")
    return None


def _apart(asked: Mapping[int, tuple[int, ...] | None]) -> bool:
    """Whether ranks have called it for groups that have nothing to do with one another, each with all its members."""
    return all(members and all(asked.get(rank, members) == members for rank in members) for members in asked.values())


def _differ(sets: list[frozenset[int]]) -> bool:
    """Whether these cannot be one group, nor several that have nothing to do with one another."""
    return any(one != other and one & other for one in sets for other in sets)

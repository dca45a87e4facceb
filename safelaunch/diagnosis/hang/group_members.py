"""Process groups that ranks have not made together: from there on their names, and numbers, mean different things."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Mapping

from safelaunch.diagnosis.blame.deviation import Deviation
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import MAKING, is_irreversible, record_is_complete
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import is_waiting, names
from safelaunch.model import Case, Collective, Location, RankFacts, Verdict


def groups_differ(view: View) -> Verdict | None:
    """Ranks wait in a process group, or make one, and the group has other members for some of them than for others.

    How it was concluded: each rank writes down the members of the groups that it makes, in order. A group that one rank
    did not make shifts all later ones: the second group here is the first one there. With three ranks or more, the one
    is named that called `new_group` for other members than all others did, or did not call it where all others wait for
    it. Otherwise the evidence does not say who is wrong.

    What to do: call `new_group` on all ranks of the job, in the same order, also for groups that a rank is not in. Or
    give it `use_local_synchronization=True`.
    """
    claims: dict[str, list[frozenset[int]]] = {}
    for group in view.case.groups:
        claims.setdefault(group.name, []).append(frozenset(group.ranks))
    outlier = _asked_for_another(view.case, view.graph)
    concerned = _concerned(view.graph, {name for name, sets in claims.items() if _differ(sets)}, outlier)
    uncalled = _not_called(view) if not concerned else None
    if not concerned and uncalled is None:
        return None
    graph, ranks = view.graph, view.by_rank
    wait, what = uncalled or (concerned[0], outlier.text if outlier is not None else _in_words(concerned[0], claims))
    return hang_verdict(
        view,
        "SL302",
        f"ranks have not made the same process groups: {what}",
        (outlier.rank,) if outlier is not None else (),
        location=place_of(view, wait),
        call=wait.call,
        because=waiters(view),
        remedy="call new_group on all ranks of the job, in the same order, also for groups that a rank is not in",
        confidence="medium",
        conclusive=bool(graph.cycle)
        and not graph.sinks
        and is_irreversible((ranks[w.rank], w.call) for w in graph.waits),
        waiting={each.rank for each in graph.waits},
    )


def _concerned(graph: Graph, shifted: set[str], outlier: Deviation | None) -> list[Wait]:
    """The waits that follow from it, the one to show first; none where ranks may wait for another reason."""
    in_shifted = [wait for wait in graph.waits if wait.call.group in shifted]
    making = [wait for wait in graph.waits if wait.call.group.startswith(MAKING)]
    if not in_shifted and (outlier is None or not (graph.cycle or making)):
        return []
    own = [wait for wait in graph.waits if outlier is not None and wait.rank == outlier.rank]
    return own or in_shifted or making or [*graph.waits]


def _not_called(view: View) -> tuple[Wait, str] | None:
    """A wait in a `new_group` that a rank of this node has not called, and cannot come to, with that in words. Who is
    wrong is not known."""
    for wait in view.graph.waits if not any(wait.away for wait in view.graph.waits) else ():
        numbered = wait.call.group.startswith(f"{MAKING} #") and view.sees_all_ranks and not view.graph.cycle
        number = int(wait.call.group.rpartition("#")[2]) if numbered else 0
        behind = {facts.rank for facts in view.case.ranks if len(facts.new_groups) < number}
        never = [rank for rank in sorted(behind) if _cannot_come(view.by_rank[rank], view.graph)]
        if never and wait.rank not in behind:  # it has written down that it makes this one
            makers = [each.rank for each in view.graph.waits if each.call.group == wait.call.group]
            wait_in = f"{is_waiting(makers)} in new_group #{number}"
            return wait, f"{wait_in}, not called by {names(never)}"
    return None


def _in_words(wait: Wait, claims: Mapping[str, list[frozenset[int]]]) -> str:
    """`group 2 has for some ranks 0 and 1, for others ranks 2 and 3`."""
    name = wait.call.group
    sets = sorted(set(claims[name]), key=lambda members: (len(members), sorted(members)))
    what = name if name.startswith(MAKING) else f"group {name}"
    return f"{what} has for some {', for others '.join(names(each) for each in sets)}"


# ------------------------------------------------------------------------------------ by the lines that ranks come to


def only_member_at_line(view: View) -> Deviation | None:
    """The rank that has come to a line with a group whose members have come there with other ones.

    All other ranks have come with groups that all their members share, but for it, and two of them at least with each
    other.
    """
    graph = view.graph
    members = {group.name: frozenset(group.ranks) for group in view.case.groups}
    if len(members) < len(view.case.groups) or not view.sees_all_ranks or view.from_dumps:
        return None
    in_cycle = [wait for wait in graph.waits if wait.rank in graph.cycle]
    calls = _calls_at(view.case, {wait.call.location for wait in in_cycle if wait.call.location is not None})
    deviations = []
    for wait in in_cycle:
        line = wait.call.location
        groups = _groups_at(wait, calls[line], members) if line is not None else None
        if line is not None and groups is not None and _comes_alone(wait.rank, groups):
            text = f"rank {wait.rank} came to line {line.line} with the group of {names(groups[wait.rank])}"
            deviations.append(Deviation(wait.rank, f"{text}, whose other members came there with other groups"))
    return deviations[0] if len(deviations) == 1 else None


def _calls_at(case: Case, lines: Iterable[Location]) -> dict[Location, dict[int, list[Collective]]]:
    """The calls that ranks have made at these lines."""
    calls: dict[Location, dict[int, list[Collective]]] = {line: {} for line in lines}
    for facts in case.ranks:
        for call in facts.calls:
            if call.location is not None and call.location in calls:
                calls[call.location].setdefault(facts.rank, []).append(call)
    return calls


def _groups_at(
    wait: Wait, calls: Mapping[int, list[Collective]], members: Mapping[str, frozenset[int]]
) -> dict[int, frozenset[int]] | None:
    """The members of the group with which each rank has come to the line of a wait.

    None where not all have come to it in this round, as far as is known.
    """
    own = calls.get(wait.rank)
    if own is None:
        return None
    # Of the same round: nearer to this call than to the rank's own one before it.
    begin = (own[-2].t + wait.call.t) / 2 if len(own) > 1 else float("-inf")
    if any(made[-1].t < begin or made[-1].group not in members for made in calls.values()):
        return None
    groups = {rank: members[made[-1].group] for rank, made in calls.items()}
    return groups if frozenset().union(*groups.values()) <= groups.keys() else None


def _comes_alone(rank: int, groups: Mapping[int, frozenset[int]]) -> bool:
    """Whether a rank has come without another member of its group, and all others with all of theirs, but for it."""
    others = {other: group for other, group in groups.items() if other != rank}
    own = groups[rank]
    shared = all(others[peer] == group for group in others.values() for peer in group - {rank})
    awaited = any(rank in group for group in others.values())
    agreeing = any(len(group) > 1 and rank not in group for group in others.values())
    return shared and awaited and agreeing and any(others[peer] != own for peer in own - {rank})


# ------------------------------------------------------------------------------------ by the groups that ranks make


def _asked_for_another(case: Case, graph: Graph) -> Deviation | None:
    """The rank that has called `new_group` for other members than all others, or has not called it, the first time that
    they differ."""
    asked = {facts.rank: facts.new_groups for facts in case.ranks}
    for number, groups in enumerate(itertools.zip_longest(*asked.values()), start=1):
        by_rank = dict(zip(asked, groups, strict=True))
        if len({*groups}) > 1 and not _are_unrelated(by_rank):
            return _outlier(number, by_rank, case, graph) if len(case.ranks) == case.world_size else None
    return None


def _outlier(number: int, asked: Mapping[int, tuple[int, ...] | None], case: Case, graph: Graph) -> Deviation | None:
    """The one rank that has asked for another group than all others, two at least."""
    (usual, most), *rest = collections.Counter(asked.values()).most_common()
    if usual is None or most < 2 or [count for _, count in rest] != [1]:
        return None
    rank = next(rank for rank, members in asked.items() if members != usual)
    theirs = asked[rank]
    if theirs is None and not _cannot_come(next(facts for facts in case.ranks if facts.rank == rank), graph):
        return None  # one that has called it less often may be late, or wait for what another one has left out
    did = f"called new_group #{number} for {names(theirs)}, and" if theirs else f"has not called new_group #{number},"
    return Deviation(rank, f"rank {rank} {did} all others for {names(usual)}")


def _cannot_come(facts: RankFacts, graph: Graph) -> bool:
    """Whether a rank waits, in a circle or for those alone who are in `new_group`, so that it will not call that."""
    own = graph.of(facts.rank)
    if own is None or own.call.is_message:
        return False
    making = {wait.rank for wait in graph.waits if wait.call.group.startswith(MAKING)}
    for_makers = bool(own.blockers) and making.issuperset(own.blockers) and record_is_complete(facts)
    return facts.rank in graph.cycle or for_makers


def _are_unrelated(asked: Mapping[int, tuple[int, ...] | None]) -> bool:
    """Whether ranks have called it for groups that have nothing to do with one another, each with all its members."""
    return all(members and all(asked.get(rank, members) == members for rank in members) for members in asked.values())


def _differ(sets: list[frozenset[int]]) -> bool:
    """Whether these cannot be one group, nor several that have nothing to do with one another."""
    return any(one != other and one & other for one in sets for other in sets)

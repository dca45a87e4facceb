"""Process groups that ranks have not made together: from there on their names, and numbers, mean different things."""

from __future__ import annotations

from safelaunch.diagnosis.dumps import from_dumps
from safelaunch.diagnosis.graph import graph
from safelaunch.diagnosis.hang import hang_verdict, place_of, waiters
from safelaunch.diagnosis.waits import final
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Verdict


def groups_differ(case: Case) -> Verdict | None:
    """Ranks wait in a process group, or make one, that has other members for some of them than for others.

    How it was concluded: each rank writes down the members of the groups that it makes, in their order. One that a rank
    did not make, because it is not to belong to it, shifts all later ones: what is the second group here is the first
    one there. Who should have called `new_group`, and who should not, the evidence does not say: nobody is named.

    What to do: call `new_group` on all ranks of the job, in the same order, also for groups that a rank is not in; or
    give it `use_local_synchronization=True`.
    """
    found = graph(case)
    claims: dict[str, list[frozenset[int]]] = {}
    for group in case.groups:
        claims.setdefault(group.name, []).append(frozenset(group.ranks))
    shifted = {name for name, sets in claims.items() if _differ(sets)}
    wait = next((wait for wait in found.waits if wait.call.group in shifted), None)
    if wait is None or from_dumps(case):
        return None
    ranks = {facts.rank: facts for facts in case.ranks}
    name = wait.call.group
    what = name if name.startswith("new_group") else f"group {name}"
    sets = sorted(set(claims[name]), key=lambda members: (len(members), sorted(members)))
    members = ", for others ".join(names(each) for each in sets)
    return hang_verdict(
        case,
        "SL302",
        f"ranks have not made the same process groups: {what} has for some {members}",
        (),
        location=place_of(case, wait),
        call=wait.call,
        because=waiters(case, found),
        remedy="call new_group on all ranks of the job, in the same order, also for groups that a rank is not in",
        confidence="medium",
        conclusive=bool(found.cycle) and not found.sinks and final((ranks[w.rank], w.call) for w in found.waits),
        waiting={each.rank for each in found.waits},
    )


def _differ(sets: list[frozenset[int]]) -> bool:
    """Whether these cannot be one group, nor several that have nothing to do with one another."""
    return any(one != other and one & other for one in sets for other in sets)

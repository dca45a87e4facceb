"""Golden cases as they look with other numbers of ranks, or without one piece of their evidence."""

from __future__ import annotations

import dataclasses
import re

from hang_stories import LOST
from hang_stories import without as without_of_all
from stories import permuted

from safelaunch.evidence.offline.dump_case import NO_DUMP
from safelaunch.model import Case, Condition, Gap, RankFacts

# What a message says of a rank stays as it is, whatever the ranks are called.
OF_A_RANK = re.compile(r"(rank(?:\(\))? [!=]= )(\d+)")

# One collector's word of one rank. What a rank writes as it fails is told to be missing by its black box.
PIECES = {
    **LOST,
    "phases": {"phases": ()},
    "children": {"children": ()},
    "fault": {"fault": None},
    "error": {"error": None, "raised": True},
}


def in_order(case: Case, order: list[int]) -> Case:
    """The case with rank `n` called `order[n]`, in what its source says of ranks, too."""

    def renamed(condition: Condition) -> Condition:
        text = OF_A_RANK.sub(lambda match: f"{match[1]}{order[int(match[2])]}", condition.text)
        return dataclasses.replace(condition, text=text)

    other = permuted(case, order)
    source = tuple(dataclasses.replace(line, conditions=tuple(map(renamed, line.conditions))) for line in other.source)
    return dataclasses.replace(other, source=source)


def fewer(case: Case) -> list[tuple[str, Case]]:
    """The case without one piece of its evidence, in every way."""
    found = [(kind, without_of_all(case, -1, kind)) for kind in ("groups", "source") if getattr(case, kind)]
    for facts in case.ranks:
        others = tuple(each for each in case.ranks if each is not facts)
        if case.origin == "dumps":  # that there is such a rank, the others' dumps still say
            others = tuple(_without_dump(each) if each is facts else each for each in case.ranks)
        if others:
            found.append((f"all of rank {facts.rank}", dataclasses.replace(case, ranks=others)))
        for kind, lost in PIECES.items():
            if kind == "everything" and facts.exit is not None:
                continue  # the agent knows of an end whatever was lost
            poorer = dataclasses.replace(facts, **lost)  # type: ignore[arg-type]
            if poorer != facts:
                poorer = dataclasses.replace(poorer, missing=(*facts.missing, Gap(kind, "the rank did not answer")))
                ranks = tuple(poorer if each is facts else each for each in case.ranks)
                found.append((f"{kind} of rank {facts.rank}", dataclasses.replace(case, ranks=ranks)))
    return found


def _without_dump(facts: RankFacts) -> RankFacts:
    return RankFacts(facts.rank, -1, 0, watched=False, recording=False, missing=(NO_DUMP,))

"""A case as the rules look at it: built once, with what many of them ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.lines import Lines, by_place
from safelaunch.diagnosis.waitgraph.calls import ENDED
from safelaunch.diagnosis.waitgraph.graph import Graph, build
from safelaunch.model import Case, RankFacts


@dataclass(frozen=True)
class View:
    """The facts of a case, and what follows from them whatever the rule. What is costly is made when it is asked for.

    Args:
        case: all evidence of one incident on one node, or of what was left of one.
    """

    case: Case

    @cached_property
    def graph(self) -> Graph:
        """Who waits for whom."""
        return build(self.case)

    @cached_property
    def by_rank(self) -> Mapping[int, RankFacts]:
        """What is known of each rank, by its number."""
        return {facts.rank: facts for facts in self.case.ranks}

    @cached_property
    def lines(self) -> Lines:
        """What stands around lines of the program, by file and line."""
        return by_place(self.case.source)

    @cached_property
    def living(self) -> list[RankFacts]:
        """The ranks that still run."""
        return [facts for facts in self.case.ranks if facts.exit is None and facts.state != ENDED]

    @property
    def now(self) -> float:
        """When the evidence was taken, in seconds of the clock that the case counts in."""
        return self.case.now or self.case.incident.t

    @property
    def from_dumps(self) -> bool:
        """Whether nothing but Flight Recorder dumps is left of the job."""
        return self.case.origin == "dumps"

    @property
    def from_outside(self) -> bool:
        """Whether the job was attached to: nothing of ours has watched it."""
        return self.case.origin == "attach"

    @property
    def joined(self) -> bool:
        """Whether the ranks have joined by themselves: one that is not known may be on this node all the same."""
        return self.case.origin == "joined"

    @property
    def sees_all_ranks(self) -> bool:
        """Whether all ranks of the job are in the case: none of them is on another node."""
        return len(self.case.ranks) == self.case.world_size

"""What the nodes of a job are asked, at the hub: the cases that have come, and what a node shows of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from safelaunch import redaction
from safelaunch.evidence.offline.nodes import shifted
from safelaunch.model import Case, Stack, Verdict


@dataclass
class Inquiry:
    """One look at all nodes. `until` is CLOCK_MONOTONIC."""

    number: int
    until: float
    cases: dict[int, Case] = field(default_factory=dict)  # by node rank
    answered: set[int] = field(default_factory=set)
    asked: list[tuple[int, int]] = field(default_factory=list)  # `Judged.asked`
    verdict: Verdict | None = None  # of these cases; None where there are others since

    def add(self, node: int, case: Case | None, *, looked: bool) -> None:
        """What a node has told; a look that the hub has asked for is worth less than what the node says by itself."""
        self.answered.add(node)
        if case is not None and not (looked and any(node == asker for asker, _ in self.asked)):
            self.cases[node] = case
            self.verdict = None

    @property
    def of_failures(self) -> bool:
        """Whether ranks have failed, and not only wait."""
        return any(case.incident.kind == "exit" for case in self.cases.values())


def shown(case: Case, offset_s: float) -> Case:
    """What the others see of a node: times of the hub's clock, which is `offset_s` ahead, no secrets that are known as
    such, and no texts of stacks, which no rule reads."""
    ranks = tuple(
        dataclasses.replace(
            facts,
            last_lines=tuple(map(redaction.text, facts.last_lines)),
            fault=_without_text(facts.fault),
            stack=_without_text(facts.stack),
            earlier=_without_text(facts.earlier),
            stacks=tuple(dataclasses.replace(stack, text="") for stack in facts.stacks),
        )
        for facts in case.ranks
    )
    return shifted(dataclasses.replace(case, ranks=ranks), offset_s)


def _without_text(stack: Stack | None) -> Stack | None:
    return dataclasses.replace(stack, text="") if stack is not None else None


def sound(verdict: Verdict) -> Verdict:
    """Another node's verdict, with an exit code that ends no job as if it had succeeded."""
    return verdict if verdict.exit_code in range(1, 256) else dataclasses.replace(verdict, exit_code=1)

"""What the verdicts of a run's attempts say of the next one: whether a restart promises anything."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.codes import Trait, has
from safelaunch.model import Case, LaunchPlan, Verdict
from safelaunch.run.blamed_nodes import BlamedNodes
from safelaunch.run.console import Console

OPTION = "--useful-restarts"


@dataclass(frozen=True)
class _Attempt:
    """What one attempt came to. `step` is how many optimizer steps it had made, None where it had made none."""

    number: int
    verdict: Verdict
    step: int | None


class Restarts:
    """Torch elastic restarts after each failure, as often as `--max-restarts` says, and so does a run of ours: what is
    known of it is said. With `--useful-restarts` it ends where the next attempt would fail as this one did.

    Args:
        plan: of the run.
        console: of the run.
    """

    def __init__(self, plan: LaunchPlan, console: Console) -> None:
        self.stops = False  # whether the run ends with the latest attempt, by what was asked for
        self.blamed = BlamedNodes(plan, console)
        self._plan = plan
        self._console = console
        self._attempts: list[_Attempt] = []

    def concluded(self, facts: Case, verdict: Verdict) -> None:
        """An attempt has its verdict."""
        steps = max((rank.step for rank in facts.ranks), default=0)
        now = _Attempt(facts.incident.attempt, verdict, steps or None)
        before = self._attempts[-1] if self._attempts else None
        self._attempts.append(now)
        self.stops = False
        if now.number >= self._plan.torchrun["max_restarts"]:
            return  # no restart comes
        self.blamed.concluded(facts, verdict)
        if has(verdict.code, Trait.INFRASTRUCTURE):
            return  # other nodes, or another time, may be all that it takes
        reason = _repeated(before, now) or _before_first_step(facts)
        if not reason:
            self._tell_host(before, verdict, facts)
            return
        self.stops = self._plan.useful_restarts
        if self.stops:
            self._console.aside(f"no restart: {reason} ({OPTION})")
        elif before is not None:
            self._console.aside(f"{reason}: another restart promises little ({OPTION} ends the run here)")

    def _tell_host(self, before: _Attempt | None, verdict: Verdict, facts: Case) -> None:
        """That ranks of one node failed twice: it may be the node, or what its ranks are given."""
        several = facts.world_size > len(facts.ranks)
        if before is None or not several or not verdict.host or before.verdict.host != verdict.host:
            return
        if before.verdict.culprit_ranks and verdict.culprit_ranks:
            codes = " and ".join(dict.fromkeys((before.verdict.code, verdict.code)))
            where = f"ranks of {verdict.host} failed in both attempts ({codes})"
            self._console.aside(f"{where}: look at what they read, and at the node")


def _repeated(before: _Attempt | None, now: _Attempt) -> str:
    """That this attempt has failed as the one before."""
    if before is None or before.step != now.step or _what(before.verdict) != _what(now.verdict):
        return ""
    where = f"at the same step ({now.step})" if now.step is not None else "before the first optimizer step"
    return f"the same verdict {where} as in attempt {before.number}"


def _what(verdict: Verdict) -> tuple[object, ...]:
    """What makes two verdicts the same: their words may hold pids and times."""
    place = verdict.location
    return verdict.code, verdict.culprit_ranks, verdict.operation, place and (place.file, place.line)


def _before_first_step(facts: Case) -> str:
    """That no rank has made a step, nor been given a batch, nor made a collective, where that is known of all."""
    began = any(rank.step or rank.batch or rank.collectives or rank.recorded for rank in facts.ranks)
    known = facts.ranks and all(rank.watched and rank.recording for rank in facts.ranks)
    return "it failed before the first step" if known and not began else ""

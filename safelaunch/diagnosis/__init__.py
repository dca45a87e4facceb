"""Pure rules over evidence: `Case -> Verdict`, the same live and from a bundle on another machine.

`rules` has a row for each rule. Rows are asked by their stage, from evidence that proves to evidence that is left over,
and the first that concludes wins. Refinements may add to its verdict, or replace it, by evidence of other kinds.
"""

from __future__ import annotations

import dataclasses

from safelaunch.diagnosis import rules
from safelaunch.diagnosis.refine.table import REFINEMENTS
from safelaunch.diagnosis.rule import Rule
from safelaunch.diagnosis.view import View
from safelaunch.model import Case, Verdict


@dataclasses.dataclass(frozen=True)
class Examination:
    """A verdict, and how it came about.

    `skipped` are the rules that were not asked, each with what it lacked; `passed` those that were asked and did not
    conclude; `concluded` is the one that did. `refined` names the refinements that added to its verdict, or replaced
    it.
    """

    verdict: Verdict
    concluded: Rule
    skipped: tuple[tuple[Rule, str], ...]
    passed: tuple[Rule, ...]
    refined: tuple[str, ...]


def diagnose(case: Case) -> Verdict:
    """The verdict of the first rule that concludes; the last one of its kind always does."""
    return examine(View(case)).verdict


def examine(view: View) -> Examination:
    """The same, with how it came about."""
    skipped: list[tuple[Rule, str]] = []
    passed: list[Rule] = []
    for rule in sorted(rules.BY_KIND[view.case.incident.kind], key=lambda row: row.stage):
        lack = rule.lacks(view)
        verdict = rule.conclude(view) if not lack else None
        if lack:
            skipped.append((rule, lack))
        elif verdict is None:
            passed.append(rule)
        else:
            verdict, refined = _refined(verdict, view)
            return Examination(verdict, rule, tuple(skipped), tuple(passed), refined)
    raise AssertionError("the last rule concludes always")


def untold(case: Case) -> Verdict:
    """That nothing is known: what is left to say where a rule fails."""
    verdict = rules.BY_KIND[case.incident.kind][-1].conclude(View(case))
    assert verdict is not None, "the last rule concludes always"
    return verdict


def _refined(verdict: Verdict, view: View) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict with what refinements make of it, and the names of these."""
    refined = []
    for refinement in REFINEMENTS if view.case.incident.kind != "slow" else ():
        before, verdict = verdict, refinement.refine(verdict, view)
        if verdict != before:
            refined.append(refinement.name)
    if (view.from_dumps or view.from_outside) and verdict.confidence == "high":
        # Nothing of ours has watched the job: dumps, or two looks from outside, are one kind of evidence.
        verdict = dataclasses.replace(verdict, confidence="medium")
    return verdict, tuple(refined)

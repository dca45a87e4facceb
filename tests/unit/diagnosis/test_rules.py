"""What the table of rules promises: that a place within a stage means nothing, and that its columns are true."""

from __future__ import annotations

import collections

import pytest
from frozen import variants
from golden import golden

from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import examine, rules
from safelaunch.diagnosis.refine.table import REFINEMENTS
from safelaunch.diagnosis.rule import Rule, Stage
from safelaunch.diagnosis.view import View
from safelaunch.model import Verdict

CASES = {name: case for name, (case, _) in golden().items()}
TABLES = pytest.mark.parametrize("table", rules.BY_KIND.values(), ids=rules.BY_KIND)


@pytest.mark.parametrize("name", CASES)
def test_of_the_rules_of_one_stage_at_most_one_concludes(name: str) -> None:
    """So each order of them within their stages comes to the same verdict."""
    for variant, case in variants(CASES[name]):
        view = View(case)
        concluded: dict[Stage, list[tuple[Rule, Verdict]]] = collections.defaultdict(list)
        for rule in rules.BY_KIND[case.incident.kind]:
            verdict = rule.conclude(view) if not rule.lacks(view) else None
            if verdict is not None:
                concluded[rule.stage].append((rule, verdict))

        for stage, found in concluded.items():
            assert all(verdict == found[0][1] for _, verdict in found), (variant, stage, [row.name for row, _ in found])


def test_every_rule_concludes_a_golden_case() -> None:
    """A rule without one is a rule that nobody can change in safety."""
    examined = [examine(View(case)) for case in CASES.values()]

    missing = {row.name for table in rules.BY_KIND.values() for row in table} - {one.concluded.name for one in examined}
    assert missing == set()


@pytest.mark.parametrize("name", CASES)
def test_a_rule_says_which_codes_it_may_conclude(name: str) -> None:
    view = View(CASES[name])
    rule = examine(view).concluded
    verdict = rule.conclude(view)

    assert verdict is not None
    assert verdict.code in rule.codes


@TABLES
def test_the_last_rule_of_each_kind_concludes_always(table: tuple[Rule, ...]) -> None:
    last = table[-1]

    assert (last.stage, last.needs) == (Stage.UNKNOWN, ())
    assert [row.stage for row in table] == sorted(row.stage for row in table)  # a reader sees the order that holds
    assert {code for row in table for code in row.codes} <= {*CATALOGUE}


@pytest.mark.parametrize("name", CASES)
def test_a_refinement_that_may_not_replace_says_nothing_else(name: str) -> None:
    view = View(CASES[name])
    rule = examine(view).concluded
    verdict = rule.conclude(view)
    assert verdict is not None
    for refinement in REFINEMENTS if view.case.incident.kind != "slow" else ():
        before, verdict = verdict, refinement.refine(verdict, view)
        if not refinement.may_replace:
            said = [(one.code, one.summary, one.culprit_ranks, one.location) for one in (before, verdict)]
            assert said[0] == said[1]
        assert set(before.culprit_ranks) <= set(verdict.culprit_ranks)


def test_an_examination_says_what_each_rule_lacked() -> None:
    found = examine(View(CASES["hang-sleep"]))

    assert found.concluded.name == "never_entered"
    lacked = {rule.name: lack for rule, lack in found.skipped}
    assert lacked["may_be_running"] == "more than dumps is known"
    assert lacked["different_operation"] == "no two ranks made different calls at one number"
    assert "tags_differ" in {rule.name for rule in found.passed}
    assert not {rule.stage for rule, _ in found.skipped} - set(range(1, Stage.SHAPE + 1))

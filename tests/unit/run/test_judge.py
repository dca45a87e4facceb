"""A rule that fails costs no verdict, whatever fails behind it."""

from __future__ import annotations

import pytest
from golden_file import load

from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.model import Case
from safelaunch.run.judge import judged

CASE = load("hang-sleep")


def test_a_case_is_judged() -> None:
    assert judged(CASE, pytest.fail) == diagnose(CASE)


@pytest.mark.parametrize("broken", ["safelaunch.run.judge.diagnose", "safelaunch.diagnosis.view.build"])
def test_where_rules_or_the_graph_fail_nobody_can_tell(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(case: Case) -> Graph:
        if case.ranks:
            raise ZeroDivisionError
        return Graph()

    monkeypatch.setattr(broken, fails)
    said: list[str] = []
    verdict = judged(CASE, said.append)

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert said
    assert all("safelaunch's own fault" in line for line in said)

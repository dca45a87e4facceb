from __future__ import annotations

import json
from pathlib import Path

from safelaunch.codec import from_json
from safelaunch.diagnosis import diagnose
from safelaunch.evidence import case as cases
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import bundle

GOLDEN = Path(__file__).resolve().parents[2] / "cases" / "exception-in-one-rank" / "case.json"


def test_a_bundle_diagnoses_to_the_same_verdict_elsewhere(tmp_path: Path) -> None:
    case = from_json(Case, json.loads(GOLDEN.read_text()))
    verdict = diagnose(case)
    evidence = (Evidence("kernel", 3, {"state": "S"}), Evidence("stack", 3, unavailable="py-spy is not installed"))
    folder = tmp_path / "incident-0"

    bundle.write(str(folder), case, verdict, evidence, cases.stack_text)

    assert from_json(Verdict, json.loads((folder / "verdict.json").read_text())) == verdict
    assert diagnose(from_json(Case, json.loads((folder / "evidence/case.json").read_text()))) == verdict
    printed = (folder / "verdict.txt").read_text()
    assert verdict.summary in printed
    assert "\x1b" not in printed
    for facts in case.ranks:
        assert (folder / f"evidence/rank_{facts.rank:03d}/stack.txt").read_text().strip()
    gap = json.loads((folder / "evidence/rank_003/stack.json").read_text())
    assert gap["unavailable"] == "py-spy is not installed"

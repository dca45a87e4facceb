"""The public benchmark: its truths fit its programs, and what launchers print is read as it is meant."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

CULPRITS = Path(__file__).resolve().parents[2] / "benchmarks" / "culprits"
sys.path.insert(0, str(CULPRITS))

import launchers  # noqa: E402
import score  # noqa: E402

TRUTHS = score.truths()


@pytest.mark.parametrize("name", TRUTHS)
def test_a_truth_is_about_lines_and_ranks_of_its_program(name: str) -> None:
    truth = TRUTHS[name]
    source = (CULPRITS / "programs" / name / "train.py").read_text()
    compile(source, name, "exec")

    assert truth.backend in ("gloo", "nccl")
    assert all(0 <= rank < truth.ranks for rank in truth.culprits)
    assert all(source.splitlines()[line - 1].strip() for line in truth.lines)
    assert bool(truth.lines) == bool(truth.culprits)


def test_torchs_report_names_the_root_cause() -> None:
    output = """Failures:
  <NO_OTHER_FAILURES>
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 7)
"""
    assert launchers.of_elastic(output, Path()).ranks == {3}
    assert launchers.of_elastic("step 1\n", Path()).ranks == set()


def test_whoever_the_watchdog_speaks_of_is_named() -> None:
    said = "[E ProcessGroupNCCL.cpp:738] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
    assert launchers.of_elastic(said.format(0) + said.format(2), Path()).ranks == {0, 2}


def test_our_last_verdict_counts_and_no_notice_of_what_came_back(tmp_path: Path) -> None:
    run = tmp_path / "safelaunch_runs" / "a"
    run.mkdir(parents=True)
    verdicts = [
        {"kind": "crash", "culprit_ranks": [1], "summary": "rank 1 raised"},
        {"kind": "slow", "culprit_ranks": [0], "summary": "rank 0 is slow"},
    ]
    (run / "result.json").write_text(json.dumps({"verdicts": verdicts}))

    assert launchers.of_safelaunch("", tmp_path) == launchers.Named(frozenset({1}), "rank 1 raised")
    (run / "result.json").write_text(json.dumps({"verdicts": []}))
    assert launchers.of_safelaunch("", tmp_path).ranks == set()


@pytest.mark.parametrize(
    ("ends", "culprits", "score_of_it"),
    [
        ("print('Root Cause rank : 1')", [1], "right"),
        ("print('Root Cause rank : 0')", [1], "wrong"),
        ("print('step 1')", [1], "nobody named"),
        ("print('step 1')", [], "let it run"),
        ("sys.exit(1)", [], "ended it"),
        ("import time; time.sleep(600)", [], "ended it"),
    ],
)
def test_a_score_is_what_the_launcher_said_of_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, culprits: list[int], score_of_it: str
) -> None:
    folder = tmp_path / "programs" / "one"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(f"import sys\n{ends}\n")
    monkeypatch.setattr(score, "HERE", tmp_path)
    launcher = launchers.Launcher(("{python}",), launchers.of_elastic)
    patience = 1.0 if "sleep" in ends else 60.0

    found = score.score("plain", launcher, "one", score.Truth("gloo", 2, culprits, [2], "it"), patience)
    assert found.score == score_of_it

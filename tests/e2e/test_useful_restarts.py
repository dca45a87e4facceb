"""Restarts that promise nothing: made and told of by default, as torchrun makes them; left out on request."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import FAULTS, launch

VICTIM = FAULTS / "victim.py"
OPTIONS = ("--preflight", "off", "--nproc-per-node", 2, "--max-restarts", 2)


@pytest.mark.parametrize(("option", "attempts"), [((), 3), (("--useful-restarts",), 2)])
def test_the_same_failure_at_the_same_step(option: tuple[str, ...], attempts: int, tmp_path: Path) -> None:
    ended = launch(*OPTIONS, *option, VICTIM, "exception", 1, cwd=tmp_path)

    assert ended.code == 1, ended.err
    assert len(ended.read("result.json")["attempts"]) == attempts, ended.err
    assert ended.verdict["code"] == "SL401"
    assert "the same verdict" in ended.err
    assert ("no restart:" in ended.err) == bool(option)


def test_a_failure_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("raise RuntimeError('no such option')\n")
    ended = launch(*OPTIONS, "--useful-restarts", tmp_path / "early.py", cwd=tmp_path)

    assert ended.code == 1, ended.err
    assert len(ended.read("result.json")["attempts"]) == 1
    assert "no restart: it failed before the first step" in ended.err

"""How a verdict came about, as `diagnose --why` and why.txt tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_file import load, names

from safelaunch.cli.main import main
from safelaunch.diagnosis import diagnose, why
from safelaunch.evidence.case import stack_text
from safelaunch.report import bundle


def test_it_names_the_rule_what_others_lacked_and_what_says_who_waits() -> None:
    told = "\n".join(why.lines(load("hang-sleep")))

    assert "SL301 was concluded by never_entered (shape)" in told
    assert "different_operation (misfit)            no two ranks made different calls at one number" in told
    assert "\n  tags_differ (misfit)\n" in told
    assert "rules that come later: all_inside" in told
    assert "wait in all_reduce #12 of group 0 at /home/ada/project/train.py:61, for rank 2" in told
    assert "[record, Flight Recorder, stack]" in told
    assert "at the end of the chains of waits in calls: rank 2" in told


def test_it_tells_of_waits_outside_of_collectives() -> None:
    told = "\n".join(why.lines(load("hang-lock-of-a-rank-that-sleeps")))

    assert "rank 1 waits for the lock on /data/index, which rank 2 has [kernel]" in told
    assert "at the end of the chains of waits in calls: ranks 1 and 2" in told
    assert "of these wait for no other rank by other means: rank 2" in told


def test_where_nobody_waits_it_says_so() -> None:
    told = why.lines(load("hang-dead-mount"))

    assert told[0] == "SL316 was concluded by all_in_file_system (quiet)"
    assert "no rank is known to wait for another in a call" in told


@pytest.mark.parametrize("name", names())
def test_it_tells_of_the_verdict_that_was_given(name: str) -> None:
    case = load(name)

    assert why.lines(case)[0].startswith(f"{diagnose(case).code} was concluded by ")


def test_the_command_line_and_the_bundle_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("hang-sleep")
    bundle.write(str(tmp_path / "i"), case, diagnose(case), (), stack_text, why=why.lines)

    main(["diagnose", "--why", str(tmp_path / "i")])
    shown = capsys.readouterr().out
    main(["diagnose", "--why", "--json", str(tmp_path / "i")])
    (one,) = json.loads(capsys.readouterr().out)["conclusions"]

    written = (tmp_path / "i" / "why.txt").read_text().splitlines()
    assert written == list(why.lines(case)) == one["why"]
    assert "why: SL301 was concluded by" in shown
    assert all(line in shown for line in written)


def test_a_rule_that_fails_leaves_the_verdict(tmp_path: Path) -> None:
    def fails(_: object) -> list[str]:
        raise RuntimeError("x")

    case = load("hang-sleep")
    bundle.write(str(tmp_path / "i"), case, diagnose(case), (), stack_text, why=fails)

    assert (tmp_path / "i" / "verdict.txt").exists()
    assert "own fault" in (tmp_path / "i" / "why.txt").read_text()

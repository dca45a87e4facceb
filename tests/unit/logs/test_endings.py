"""Ordinary ends of logs: of jobs that failed, none is all right; of jobs that are well, none is an alarm.

The sets were written before the words that the rules know were looked at. Entries are parted by empty lines.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence import logs
from safelaunch.model import Verdict

FOLDER = Path(__file__).parent / "endings"
# Hundreds of logs are judged here: each is as short as one may be that shows steps, and that goes on for a while.
BEGUN = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(10))
STEPS = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(10, 50))
SIGNATURES = logs.load([], {"HOME": "/nonexistent"})


def judged(folder: Path, text: str) -> Verdict:
    (folder / "job.log").write_text(text)
    return diagnose(logs.read([str(folder / "job.log")], SIGNATURES))


def entries(name: str) -> list[str]:
    text = re.sub(r"^# .*\n", "", (FOLDER / f"{name}.txt").read_text(), flags=re.MULTILINE)
    return [entry.strip("\n") for entry in text.split("\n\n") if entry.strip()]


def codes(tmp_path: Path, name: str, behind: str) -> dict[str, str]:
    return {one: judged(tmp_path, f"{BEGUN}{one}\n{behind}").code for one in entries(name)}


def test_the_sets_are_whole() -> None:
    assert len(entries("failing")) >= 150
    assert len(entries("healthy")) >= 150


def test_a_log_that_ends_with_a_failure_is_not_all_right(tmp_path: Path) -> None:
    assert [one for one, code in codes(tmp_path, "failing", "").items() if code == "SL498"] == []


@pytest.mark.parametrize("behind", ["", STEPS, "Training finished.\n"], ids=["at the end", "among steps", "finished"])
def test_a_log_that_ends_well_is_no_alarm(tmp_path: Path, behind: str) -> None:
    assert {one: code for one, code in codes(tmp_path, "healthy", behind).items() if code != "SL498"} == {}


def test_what_may_be_either_is_never_more_than_an_alarm(tmp_path: Path) -> None:
    assert set(codes(tmp_path, "ambiguous", "").values()) <= {"SL498", "SL499"}


@pytest.mark.parametrize(
    "end",
    [
        "cannot reach the store, retrying (5/5)",
        "Connection to node g18 lost, reconnecting, attempt 3",
        "errors: 0\njob FAILED",
        "failed rank: 0",
        "no heartbeat from rank: 0",
        "WARNING: preemption notice received",
    ],
)
def test_what_takes_a_failure_back_has_to_take_back_this_one(tmp_path: Path, end: str) -> None:
    """What is tried again is overcome only where more is said after it; a count of nothing stands for itself alone."""
    assert judged(tmp_path, f"{BEGUN}{end}\n").code != "SL498"


def test_a_connection_that_was_made_again_takes_back_one_loss(tmp_path: Path) -> None:
    lost = "connection to the cache was lost\n"

    assert judged(tmp_path, f"{STEPS}{lost}reconnected\n{STEPS}").code == "SL498"
    assert judged(tmp_path, f"{STEPS}{lost}reconnected\n{STEPS}{lost}").code == "SL499"


def test_a_loss_that_json_has_no_number_for_is_told(tmp_path: Path) -> None:
    steps = "".join(f'{{"step": {i}, "loss": {2 - i / 99:.3f}, "eval_loss": null}}\n' for i in range(80))

    assert judged(tmp_path, steps).code == "SL498"
    assert "loss is null" in judged(tmp_path, steps + '{"step": 80, "loss": null}\n').summary

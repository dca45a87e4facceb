"""Runs in which nothing is wrong end with 0 under the default profile: no verdict of a hang, and nobody is ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import FAULTS, Ended, busy, launch
from test_hang import debugged

HEALTHY = FAULTS / "healthy.py"
RUNS = int(os.environ.get("SAFELAUNCH_HEALTHY_RUNS", "3"))


@dataclass(frozen=True)
class Story:
    kind: str
    seconds: float = 0.0
    ranks: int = 4
    slow: bool = True


STORIES = (
    Story("steps", slow=False),
    Story("checkpoint", 3),
    Story("evaluate", 30),
    Story("checkpoint", 20),
    Story("first_step", 30),
    Story("slow_loader", 5),
    Story("accumulation"),
    Story("upload", 40),
    Story("stopped", 15),
    Story("generation", 60, ranks=2),
    Story("pipeline", 4, ranks=3),
    Story("async_save"),
)


def cases() -> list[object]:
    return [
        pytest.param(story, id=f"{story.kind}-{story.seconds:g}", marks=[pytest.mark.long] * story.slow)
        for story in STORIES
    ]


def nothing_was_wrong(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    result = ended.read("result.json")
    assert [verdict["kind"] for verdict in result["verdicts"] if verdict["kind"] != "slow"] == []
    exits = [worker["exit"]["code"] for attempt in result["attempts"] for worker in attempt["workers"]]
    assert len(result["attempts"]) == 1
    assert set(exits) == {0}
    assert "error[" not in ended.err


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", cases())
def test_patience(story: Story, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", story.ranks, HEALTHY, story.kind, story.seconds, cwd=tmp_path, timeout=240)

    print(ended.err)  # what was told meanwhile; shown with `-rP`
    nothing_was_wrong(ended)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_breakpoint_that_is_answered_after_a_minute(tmp_path: Path) -> None:
    ended = debugged(tmp_path, 60)

    nothing_was_wrong(ended)
    assert "without progress" not in ended.err


@pytest.fixture
def busy_machine() -> Iterator[None]:
    with busy(2):
        yield


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("busy_machine")
@pytest.mark.parametrize("_number", range(RUNS))
def test_a_busy_machine_is_no_hang(_number: int, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 4, HEALTHY, "timed_steps", 10, cwd=tmp_path, timeout=240)

    nothing_was_wrong(ended)
    assert "without progress" not in ended.err

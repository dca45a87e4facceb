"""What a rank does when its steps are to be recorded: the steps are counted by hand, the profiler is torch's own."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from safelaunch import black_box, black_box_reader, trace_words
from safelaunch.worker import bootstrap
from safelaunch.worker.tracing import Tracer

FIRST = 5


class Asked:
    """A rank with its slot, that is asked for a trace of `count` steps from step 5 on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 2, made: bool = True) -> None:
        self.traces = folder / "traces" / "7"
        rank_dir = folder / "attempt_0" / "rank_003"
        rank_dir.mkdir(parents=True)
        if made:
            self.traces.mkdir(parents=True, mode=0o700)
        monkeypatch.setenv("RANK", "3")
        path = str(folder / "black_box")
        black_box.create(path, 1)
        self.box = black_box.Writer(path, 0)
        bootstrap._arm_traces(self.box, str(rank_dir))
        self.reader = black_box_reader.Reader(path)
        self.words = self.reader.trace_words(0, os.getpid())
        self.words[trace_words.FIRST], self.words[trace_words.COUNT] = FIRST, count
        self.words[trace_words.BY] = trace_words.STEPS
        self.reader.trace(0, 7)

    def steps(self, count: int) -> int:
        """So many steps; returns how far the rank is with its trace then."""
        for _ in range(count):
            self.box.pulse.step()
        return trace_words.state(self.words, 7)

    def meta(self) -> Any:
        return json.loads((self.traces / "rank_003.meta").read_text())


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


@pytest.mark.usefixtures("torch")
def test_exactly_these_steps_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)

    assert rank.steps(FIRST - 2) == trace_words.NOTHING
    assert rank.steps(1) == trace_words.RECORDING
    assert rank.steps(1) == trace_words.RECORDING
    assert rank.steps(1) == trace_words.WRITTEN

    assert [mark[0] for mark in rank.meta()["steps"]] == [4, 5, 6]
    assert (rank.words[trace_words.BEGUN], rank.words[trace_words.ENDED]) == (4, 6)
    assert {path.name: path.stat().st_mode & 0o777 for path in rank.traces.iterdir()} == {
        "rank_003.json": 0o600, "rank_003.calls": 0o600, "rank_003.meta": 0o600,
    }  # fmt: skip
    rank.steps(20)
    assert len(list(rank.traces.iterdir())) == 3


@pytest.mark.usefixtures("torch")
def test_who_asks_no_more_gets_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch, count=100)
    assert rank.steps(FIRST + 1) == trace_words.RECORDING

    rank.words[trace_words.COUNT] = 0

    assert rank.steps(1) == trace_words.WRITTEN
    assert [mark[0] for mark in rank.meta()["steps"]] == [4, 5, 6, 7]


def test_a_rank_that_is_past_the_step_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)
    rank.reader.trace(0, 0)
    rank.steps(FIRST)
    rank.reader.trace(0, 7)

    assert rank.steps(1) == trace_words.MISSED


def test_steps_do_not_count_where_heartbeats_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)
    rank.words[trace_words.BY] = trace_words.MARKS

    assert rank.steps(20) == trace_words.NOTHING


def test_a_rank_without_torch_cannot_be_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    assert rank.steps(FIRST) == trace_words.FAILED
    assert rank.meta() == {"missing": "it has not imported torch"}


@pytest.mark.usefixtures("torch")
def test_heartbeats_of_a_thread_of_their_own_are_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)
    rank.words[trace_words.BY] = trace_words.MARKS

    thread = threading.Thread(target=lambda: [rank.box.pulse.mark(-1, -1) for _ in range(FIRST)])
    thread.start()
    thread.join()

    assert rank.steps(0) == trace_words.FAILED
    assert "its heartbeats come from a thread" in rank.meta()["missing"]


@pytest.mark.usefixtures("torch")
def test_nothing_is_written_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch, made=False)
    precious = tmp_path / "precious"
    (precious / "7").mkdir(parents=True)
    (tmp_path / "traces").symlink_to(precious)

    assert rank.steps(FIRST + 1) == trace_words.FAILED
    assert list((precious / "7").iterdir()) == []


def test_a_profiler_of_the_script_that_runs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    rank = Asked(tmp_path, monkeypatch)
    rank.steps(FIRST - 3)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert rank.steps(1) == trace_words.FAILED
        torch.ones(3).add(1)

    assert "its script has a profiler of its own" in rank.meta()["missing"]
    assert any(event.key == "aten::add" for event in profiler.key_averages())


def test_a_profiler_of_the_script_that_warms_up_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    rank = Asked(tmp_path, monkeypatch)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
        assert rank.steps(FIRST - 2) == trace_words.FAILED
        profiler.step()
        torch.ones(3).add(1)

    assert "which is about to begin" in rank.meta()["missing"]
    assert any(event.key == "aten::add" for event in profiler.key_averages())


def test_a_profiler_of_the_script_that_begins_is_given_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    rank = Asked(tmp_path, monkeypatch, count=50)
    assert rank.steps(FIRST) == trace_words.RECORDING

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(3).add(1)

    assert any(event.key == "aten::add" for event in profiler.key_averages())
    assert rank.steps(1) == trace_words.WRITTEN
    assert rank.meta()["interrupted"] is True


def test_a_fault_of_ours_is_not_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Asked(tmp_path, monkeypatch)

    def broken(*_: Any) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(Tracer, "_new", broken)
    assert rank.steps(FIRST + 5) == trace_words.FAILED

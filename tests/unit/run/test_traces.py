"""A trace from the supervisor's side: what it reads, what it tells, and what it writes into the slots."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from said import Said

from safelaunch import black_box, black_box_reader, files, trace_words
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.run import traces
from safelaunch.run.traces import Traces

PID = os.getpid()


class Node:
    """Two ranks, 4 and 5, that count steps, and their supervisor."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(traces, "PACE_S", 0.0)
        monkeypatch.setattr(traces, "TELL_S", 0.0)
        self.folder = folder
        path = str(folder / "black_box")
        black_box.create(path, 2)
        self.ranks = [black_box.Writer(path, index) for index in (0, 1)]
        self.reader = black_box_reader.Reader(path)
        plan, nodes = SimpleNamespace(run_dir=str(folder)), SimpleNamespace(link=None)
        self.console = Said()
        self.traces = Traces(cast(Any, plan), self.reader, cast(Any, self.console), cast(Any, nodes))
        workers = tuple(WorkerProcess(4 + index, index, PID, 0, "") for index in (0, 1))
        self.traces._group = WorkerGroup(0, 8, 2, workers)

    def ask(self, **more: Any) -> None:
        request = {"number": 1, "count": 3, "until": time.time() + 60, **more}
        (self.folder / traces.FILE).write_text(json.dumps(request))
        self.traces.turn()

    @property
    def answer(self) -> Any:
        return json.loads((self.folder / traces.ANSWER).read_text())

    @property
    def numbers(self) -> list[int]:
        return [rank.traced for rank in self.ranks]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_first_it_tells_how_far_the_ranks_are(node: Node) -> None:
    for _ in range(7):
        node.ranks[1].pulse.step()

    node.ask()

    assert {rank: one["steps"] for rank, one in node.answer["ranks"].items()} == {"4": 0, "5": 7}
    assert (node.numbers, node.answer["first"]) == ([0, 0], 0)
    assert (node.folder / "traces/1").stat().st_mode & 0o777 == 0o700


def test_the_ranks_that_are_chosen_are_told_of_the_step(node: Node) -> None:
    node.ask()

    node.ask(first=12, ranks=[5])

    assert node.numbers == [0, 1]
    assert list(node.ranks[1].trace[:3]) == [12, 3, trace_words.STEPS]
    assert list(node.answer["ranks"]) == ["5"]


def test_a_rank_that_is_through_looks_no_further(node: Node) -> None:
    node.ask()
    node.ask(first=12)
    node.ranks[0].trace[trace_words.STATE] = 1 << 8 | trace_words.WRITTEN

    node.traces.turn()

    assert node.numbers == [0, 1]
    assert [one["state"] for one in node.answer["ranks"].values()] == ["written", "waiting"]


def test_without_the_file_nobody_begins_and_who_records_ends(node: Node) -> None:
    node.ask()
    node.ask(first=12)
    node.ranks[0].trace[trace_words.STATE] = 1 << 8 | trace_words.RECORDING
    (node.folder / traces.FILE).unlink()

    node.traces.turn()

    assert node.numbers == [1, 0]
    assert [rank.trace[trace_words.COUNT] for rank in node.ranks] == [0, 0]
    node.ranks[0].trace[trace_words.STATE] = 1 << 8 | trace_words.WRITTEN
    node.traces.turn()
    assert node.numbers == [0, 0]


def test_a_request_ends_by_itself(node: Node) -> None:
    node.ask()
    node.ask(first=12)

    node.ask(first=12, until=time.time() - 1)

    assert node.numbers == [0, 0]


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 10**6}, {"number": "1"}, {"number": -1}, {"by": 3}, {"first": -1}]
)
def test_what_is_no_request_is_passed_over(wrong: dict[str, Any], node: Node) -> None:
    node.ask(**wrong)

    assert not (node.folder / traces.ANSWER).exists()
    assert node.console.lines == []


def test_a_rank_that_has_ended_is_told(node: Node) -> None:
    node.ask()
    group = node.traces._group
    assert group is not None
    node.traces._group = WorkerGroup(1, 8, 2, ())

    node.traces.turn()

    assert [one["state"] for one in node.answer["ranks"].values()] == ["ended", "ended"]


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    files.hold(str(tmp_path), os.open(tmp_path, os.O_RDONLY))  # as a run's supervisor does
    (tmp_path / "traces").symlink_to(tmp_path / "elsewhere")

    node.ask()

    assert list((tmp_path / "elsewhere").iterdir()) == []

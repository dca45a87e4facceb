"""How a rank has ended that is not our child, by what it has left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from safelaunch import black_box
from safelaunch.model import WorkerProcess
from safelaunch.run.exec.ends import inferred


@pytest.fixture
def worker(tmp_path: Path) -> WorkerProcess:
    black_box.create(str(tmp_path / "box"), 2)
    (tmp_path / "rank").mkdir()
    return WorkerProcess(0, 1, 4711, 1, str(tmp_path / "rank"), str(tmp_path / "box"))


def box(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> black_box.Writer:
    monkeypatch.setattr("os.getpid", lambda: worker.pid)
    return black_box.Writer(worker.black_box, worker.local_rank)


def test_nothing_is_inferred_from_nothing(worker: WorkerProcess) -> None:
    assert inferred(worker) is None


def test_a_fatal_signal_is_read_from_faulthandlers_words(worker: WorkerProcess) -> None:
    Path(worker.rank_dir, "fault-4711.txt").write_text("Fatal Python error: Segmentation fault\n\nThread 0x1:\n")

    assert inferred(worker) == -signal.SIGSEGV


def test_an_exception_is_a_failure(worker: WorkerProcess) -> None:
    Path(worker.rank_dir, "error-4711.json").write_text(json.dumps({}))

    assert inferred(worker) == 1


@pytest.mark.parametrize(("code", "expected"), [(3, 3), (0, 0), (-1, 255), (None, 0)])
def test_the_argument_of_exit_counts(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, code: object, expected: int
) -> None:
    box(worker, monkeypatch).exit_call("train.py", 7, "main", code)

    assert inferred(worker) == expected


@pytest.mark.parametrize(("raised", "expected"), [(False, 0), (True, 1)])
def test_a_program_that_has_come_to_its_end(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, raised: bool, expected: int
) -> None:
    box(worker, monkeypatch).shutting_down(raised)

    assert inferred(worker) == expected

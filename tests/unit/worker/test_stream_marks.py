"""How far a rank's GPU has come, by events that stand in its streams."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from safelaunch.worker import stream_marks
from safelaunch.worker.stream_marks import MOST, StreamMarks


class Event:
    """As torch.cuda's; which ones are outstanding, the test says."""

    pending: ClassVar[set[str]] = set()
    asked = threading.Event()

    def __init__(self) -> None:
        self.stream: Any = None

    def record(self, stream: Any) -> None:
        if stream.broken:
            raise RuntimeError(stream.broken)
        self.stream = stream

    def query(self) -> bool:
        Event.asked.wait()
        return self.stream.name not in Event.pending


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    Event.pending = set()
    Event.asked.set()
    module = SimpleNamespace(initialized=True, capturing=False, stream=SimpleNamespace(name="a", broken=""), device=0)
    module.taken = []
    module.is_initialized = lambda: module.initialized
    module.current_stream = lambda: module.stream
    module.runtime = SimpleNamespace(
        _cuda_isCurrentStreamCapturing=lambda: module.capturing,
        _cuda_setDevice=lambda device: module.taken.append((device, threading.current_thread().name)),
        _cuda_getCurrentStream=lambda _: (hash(module.stream.name), module.device, 1),
        _CudaEventBase=Event,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=module.runtime))
    monkeypatch.setattr(stream_marks, "may_ask_while_others_capture", lambda: True)
    yield module
    Event.asked.set()


def test_the_last_one_that_was_reached_and_the_first_that_was_not(cuda: SimpleNamespace) -> None:
    marks = StreamMarks(cuda)
    for name, line in (("a", 1), ("b", 2), ("b", 3)):
        cuda.stream = SimpleNamespace(name=name, broken="")
        marks.mark("all_reduce", ("train.py", line, "main"))
    Event.pending = {"b"}

    look = marks.look()

    assert look is not None
    assert (look["reached"]["location"]["line"], look["outstanding"]["location"]["line"]) == (1, 2)


@pytest.mark.parametrize("state", ["not initialized", "capturing"])
def test_nothing_is_enqueued_before_the_program_uses_cuda_or_while_it_captures(
    state: str, cuda: SimpleNamespace
) -> None:
    cuda.initialized, cuda.capturing = state != "not initialized", state == "capturing"
    marks = StreamMarks(cuda)
    marks.mark("all_reduce")

    assert marks.look() is None


def test_a_failed_gpu_is_the_program_s_to_tell(cuda: SimpleNamespace, capfd: pytest.CaptureFixture[str]) -> None:
    marks = StreamMarks(cuda)
    cuda.stream.broken = "CUDA error: an illegal memory access was encountered"
    marks.mark("all_reduce")

    assert marks.look() is None
    assert capfd.readouterr().err == ""


def test_a_driver_that_does_not_answer_is_asked_once(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = StreamMarks(cuda)
    marks.mark("all_reduce")
    monkeypatch.setattr(stream_marks, "LOOK_S", 0.01)
    Event.asked.clear()
    before = threading.active_count()

    assert marks.look() is None
    assert marks.look() is None
    assert threading.active_count() <= before + 1


def test_no_event_is_asked_for_where_that_could_spoil_a_capture(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_marks, "may_ask_while_others_capture", lambda: False)
    marks = StreamMarks(cuda)
    marks.mark("all_reduce")

    assert marks.look() is None


def test_events_are_used_again(cuda: SimpleNamespace) -> None:
    marks = StreamMarks(cuda)
    made: list[Event] = []

    def make() -> Event:
        made.append(Event())
        return made[-1]

    cuda.runtime._CudaEventBase = make
    for line in range(MOST + 10):
        marks.mark("all_reduce", ("train.py", line + 1, "main"))

    look = marks.look()

    assert look is not None
    assert (len(made), look["outstanding"], look["reached"]["location"]["line"]) == (MOST, None, MOST + 10)


def test_an_event_is_not_recorded_on_another_device_s_stream(cuda: SimpleNamespace) -> None:
    marks = StreamMarks(cuda)
    made: list[int] = []

    def make() -> Event:
        made.append(cuda.device)
        return Event()

    cuda.runtime._CudaEventBase = make
    for line in range(2 * MOST):
        cuda.device = int(line >= MOST)
        marks.mark("all_reduce")

    assert made == [0] * MOST + [1] * MOST


def test_a_torch_that_has_other_functions_is_told_once(
    cuda: SimpleNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    del cuda.runtime._cuda_isCurrentStreamCapturing
    marks = StreamMarks(cuda)
    marks.mark("all_reduce")
    marks.mark("all_reduce")

    assert capfd.readouterr().err.count("is off in this rank") == 1

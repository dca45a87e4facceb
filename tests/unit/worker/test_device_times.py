"""When a rank's GPU comes to its calls, by events that are asked for while somebody wants to know."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from safelaunch import black_box, black_box_reader
from safelaunch.evidence import device_times as evidence
from safelaunch.model import WorkerProcess
from safelaunch.worker import device_times, stream_marks
from safelaunch.worker.stream_marks import BEHIND, STEP, StreamMarks

PLACE = ("train.py", 88, "main")


class Event:
    """As torch's: it is reached when the test says so."""

    reached: ClassVar[set[int]] = set()
    made: ClassVar[int] = 0
    asked_on: ClassVar[list[int]] = []
    failure: ClassVar[str] = ""
    devices = threading.local()

    def record(self, stream: Any) -> None:  # noqa: ARG002
        Event.made += 1
        self.number = Event.made

    def query(self) -> bool:
        Event.asked_on.append(getattr(Event.devices, "now", 0))
        if Event.failure:
            raise RuntimeError(Event.failure)
        return self.number in Event.reached


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamMarks]:
    Event.reached, Event.made, Event.asked_on, Event.failure = set(), 0, [], ""
    cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: "stream")
    runtime = SimpleNamespace(
        _cuda_isCurrentStreamCapturing=lambda: False,
        _cuda_setDevice=lambda device: setattr(Event.devices, "now", device),
        _cuda_getCurrentStream=lambda _: (7, 3, 1),
        _CudaEventBase=Event,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=runtime))
    monkeypatch.setattr(stream_marks, "may_ask_while_others_capture", lambda: True)
    own = StreamMarks(cuda)
    monkeypatch.setattr(stream_marks, "MARKS", own)
    yield own
    Event.devices.__dict__.clear()


@pytest.fixture
def box(tmp_path: Path) -> black_box.Writer:
    black_box.create(str(tmp_path / "box"), 1)
    return black_box.Writer(str(tmp_path / "box"), 0)


def answer(box: black_box.Writer) -> evidence.DeviceTimes:
    return evidence.read(WorkerProcess(0, 0, os.getpid(), 0, "", black_box=box.path))


def follow(box: black_box.Writer, seconds: float = 0.2) -> threading.Thread:
    reader = black_box_reader.Reader(box.path)
    reader.follow(0, seconds, 0.001)
    wanted = box.pulse.to_follow()
    assert wanted == (seconds, 0.001)
    assert box.pulse.to_follow() is None
    return device_times.start(box, threading.Event(), *wanted)


def until(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_each_mark_has_its_time_when_it_was_enqueued_and_when_it_was_reached(
    marks: StreamMarks, box: black_box.Writer
) -> None:
    marks.mark("all_reduce", PLACE)  # before somebody follows: the stream is known
    thread = follow(box, 10.0)
    until(lambda: marks.followed is not None)
    marks.mark("all_reduce", PLACE)
    marks.past("all_reduce", PLACE)
    marks.past("a step of an optimizer", kind=STEP)
    Event.reached = {2}
    until(lambda: len(marks.followed.times) == 4)
    Event.reached = {2, 3, 4}
    until(lambda: len(marks.followed.times) == 12)
    thread._args[1].set()  # type: ignore[attr-defined]
    thread.join(10)

    found = answer(box)
    assert [mark[:4] for mark in found.marks] == [
        (0, "ahead", "all_reduce", ("train.py", 88)),
        (0, BEHIND, "all_reduce", ("train.py", 88)),
        (0, STEP, "a step of an optimizer", ("", 0)),
    ]
    assert all(found.begun <= enqueued <= reached <= found.ended for *_, enqueued, reached in found.marks)
    assert found.marks[0][5] <= found.marks[1][5]
    pulse = black_box_reader.Reader(box.path).pulse(0, os.getpid())
    assert pulse is not None
    assert (pulse.follow_asked, pulse.followed) == (1, 1)


def test_the_thread_takes_the_rank_s_gpu_before_it_asks(marks: StreamMarks, box: black_box.Writer) -> None:
    """CUDA would make a context on GPU 0 for a thread that has none, with half a gigabyte of each rank."""
    marks.mark("all_reduce", PLACE)
    thread = follow(box)
    until(lambda: marks.followed is not None)
    marks.mark("all_reduce", PLACE)
    thread.join(10)
    marks.look()

    assert set(Event.asked_on) == {3}


def test_behind_a_call_nothing_is_enqueued_while_nobody_follows(marks: StreamMarks) -> None:
    marks.mark("all_reduce", PLACE)
    marks.past("all_reduce", PLACE)

    assert Event.made == 1


def test_a_rank_without_a_mark_answers_without_asking_cuda(marks: StreamMarks, box: black_box.Writer) -> None:
    follow(box).join(10)

    assert (answer(box).marks, answer(box).missing, marks.followed) == ((), "", None)


def test_a_gpu_that_fails_meanwhile_is_said_to_be_unknown(marks: StreamMarks, box: black_box.Writer) -> None:
    marks.mark("all_reduce", PLACE)
    thread = follow(box, 10.0)
    until(lambda: marks.followed is not None)
    Event.failure = "CUDA error: an illegal memory access was encountered"
    marks.mark("all_reduce", PLACE)
    thread.join(10)

    assert "illegal memory access" in answer(box).missing
    assert marks.followed is None


def test_what_another_process_has_left_is_no_answer(marks: StreamMarks, box: black_box.Writer) -> None:  # noqa: ARG001
    follow(box).join(10)

    with pytest.raises(ValueError, match="another process"):
        evidence.read(WorkerProcess(0, 0, 1, 0, "", black_box=box.path))

"""Batches of messages whose recorder has them as completed: whether the GPU has passed them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import pytest

from safelaunch.worker import batches, stream_marks
from safelaunch.worker.batches import Batches

PLACE = ("halo.py", 20, "main")


class Event:
    reached: ClassVar[bool] = False
    failure: ClassVar[str] = ""

    def record(self, stream: object) -> None:
        pass

    def query(self) -> bool:
        if Event.failure:
            raise RuntimeError(Event.failure)
        return Event.reached


class Work:
    pass


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`torch.distributed` of a rank that uses a GPU."""
    Event.reached, Event.failure = False, ""
    runtime = SimpleNamespace(
        _cuda_isCurrentStreamCapturing=lambda: False,
        _cuda_setDevice=lambda _: None,
        _cuda_getCurrentStream=lambda _: (7, 0, 1),
        _CudaEventBase=Event,
    )
    cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: "stream")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=runtime))
    monkeypatch.setattr(stream_marks, "may_ask_while_others_capture", lambda: True)
    monkeypatch.setattr(stream_marks, "MARKS", stream_marks.StreamMarks(cuda))
    monkeypatch.setattr(batches, "EVERY_S", 0.001)
    return SimpleNamespace(batch_isend_irecv=lambda count: [Work() for _ in range(count)])


@pytest.fixture
def found(module: SimpleNamespace) -> Batches:
    own = Batches()
    own.remember(module, lambda _: PLACE)
    return own


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_batch_is_under_way_until_the_stream_has_passed_it(module: SimpleNamespace, found: Batches) -> None:
    stop = threading.Event()
    assert found.watch(stop) is None
    (work,) = module.batch_isend_irecv(1)
    found.waited(work)
    thread = found.watch(stop)
    assert thread is not None
    until(lambda: found.under_way)
    Event.reached = True
    until(lambda: not found.under_way)
    stop.set()
    thread.join(10)

    assert found.passed == 1
    assert stream_marks.MARKS.look() == {
        "reached": {"call": "a wait for messages", "t": pytest.approx(time.monotonic(), abs=60), "location": {
            "file": "halo.py", "line": 20, "function": "main"}},
        "outstanding": None,
    }  # fmt: skip


def test_other_work_is_none(module: SimpleNamespace, found: Batches) -> None:
    module.batch_isend_irecv(1)
    found.waited(Work())
    found.waited([])  # a program may call `Work.wait` with anything

    assert found.watch(threading.Event()) is None


def test_a_gpu_that_fails_has_nothing_under_way(module: SimpleNamespace, found: Batches) -> None:
    (work,) = module.batch_isend_irecv(1)
    Event.failure = "CUDA error: an illegal memory access was encountered"
    found.waited(work)
    thread = found.watch(threading.Event())
    assert thread is not None
    thread.join(10)

    assert not thread.is_alive()
    assert not found.under_way

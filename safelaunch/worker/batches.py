"""Runs in: workers. Which batches of messages the rank's GPU has passed.

The recorder of torch 2.15's nccl2 has the messages of `batch_isend_irecv` as completed when they are enqueued. So a
CUDA event stands where the stream has waited for them (`Work.wait`). A thread of its own asks for these events: a call
of CUDA may wait for a lock of the driver, and the beat must go on.
"""

from __future__ import annotations

import collections
import functools
import sys
import threading
import weakref
from typing import Any, Callable, Deque, Optional, Tuple

from safelaunch.worker import rank, stream_marks
from safelaunch.worker.after_import import off

EVERY_S = 0.2


class Batches:
    """The batches of a rank: `under_way` whether there is one that its GPU has not passed, `passed` how many it has."""

    def __init__(self) -> None:
        self.under_way = False
        self.passed = 0
        self._works: Any = weakref.WeakKeyDictionary()  # what stands for a batch -> where it was enqueued
        self._events: Deque[Tuple[Any, int]] = collections.deque(maxlen=stream_marks.MOST // 2)
        self._thread: Optional[threading.Thread] = None

    def remember(self, module: Any, place: Callable[[Any], Any]) -> None:
        """Wrap `batch_isend_irecv` of `torch.distributed`: `place` gives the user's line that called a frame."""
        function = getattr(module, "batch_isend_irecv", None)
        if function is None:
            return

        @functools.wraps(function)
        def batched(*args: Any, **kwargs: Any) -> Any:
            works = function(*args, **kwargs)
            if rank.here:
                try:
                    line = place(sys._getframe(1))
                    for work in works:
                        self._works[work] = line
                except Exception as error:
                    off("the record of batches of messages", error)
            return works

        module.batch_isend_irecv = batched

    def waited(self, work: Any) -> None:
        """The stream has been told to wait for this: where it stands for a batch, an event behind it tells its end."""
        try:
            place = self._works.get(work)
        except TypeError:
            return  # of a class of the program's own, which has no hash or no room for a reference
        if place is not None and rank.here:
            mark = stream_marks.MARKS.mark("a wait for messages", place, kind="")
            if mark is not None:
                self._events.append(mark[:2])

    def watch(self, stop: threading.Event) -> Optional[threading.Thread]:
        """The thread that asks, until `stop`; None before there is a batch."""
        if self._thread is None and self._events:
            self._thread = threading.Thread(target=self._run, args=(stop,), name="safelaunch-batches", daemon=True)
            self._thread.start()
        return self._thread

    def _run(self, stop: threading.Event) -> None:
        device = -1
        try:
            while not stop.is_set():
                while self._events:
                    event, its = self._events[0]
                    if its != device:
                        device = its
                        stream_marks.MARKS.take_device(device)
                        if not stream_marks.may_ask_while_others_capture():
                            return
                    if not event.query():
                        break
                    self._events.popleft()
                    self.passed += 1
                self.under_way = bool(self._events)
                stop.wait(EVERY_S)
        except Exception:
            self.under_way = False  # the GPU has failed, which is told by others


BATCHES = Batches()

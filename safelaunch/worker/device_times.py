"""Runs in: workers. When the rank's GPU came to its calls and was through with them, for some seconds, when the
supervisor asks: with NCCL neither the host nor the recorders know that.

Events that stand ahead of the calls and behind them (`stream_marks`) are asked for every few milliseconds by a thread
of its own, and only the oldest of each stream: 10 to 20 µs a look.
"""

from __future__ import annotations

import collections
import json
import os
import threading
import time
from array import array
from typing import Any, Deque, Dict, Tuple

from safelaunch import black_box
from safelaunch.worker import stream_marks

MOST = 30_000  # marks that are kept: 1 MB
_Mark = Tuple[Any, int, float]  # event, number of the call, when it was enqueued


class Followed:
    """What is seen of a GPU. Any thread may add; one asks.

    Args:
        marks: what knows the rank's streams.
    """

    def __init__(self, marks: stream_marks.StreamMarks) -> None:
        self.calls: Dict[Tuple[Any, ...], int] = {}  # kind, call, file, line, function -> its number
        self.times = array("d")  # of each mark: stream, call, when it was enqueued, when it was reached
        self._marks = marks
        self._streams: Dict[stream_marks.Stream, Tuple[int, Deque[_Mark]]] = {}
        self._asked = time.monotonic()
        self._device = -1  # of the thread that asks

    def add(self, event: Any, stream: stream_marks.Stream, kind: str, call: str, place: Tuple[Any, ...]) -> None:
        """An event has been enqueued in a stream: about 1 µs."""
        queue = self._streams.get(stream)
        if queue is None:
            queue = self._streams.setdefault(stream, (self._marks.number(stream), collections.deque()))
        number = self.calls.setdefault((kind, call, *place), len(self.calls))
        queue[1].append((event, number, time.monotonic()))

    def look(self) -> bool:
        """Ask how far the GPU has come; false where there is no room for more. It came to an event between this look
        and the one before: the middle counts."""
        before, self._asked = self._asked, time.monotonic()
        for (_, device, _), (number, queue) in list(self._streams.items()):
            if queue and device != self._device:
                self._device = device
                self._marks.take_device(device)
            while queue and queue[0][0].query():
                _, call, enqueued = queue.popleft()
                now = time.monotonic()
                self.times.extend((number, call, enqueued, (max(before, enqueued) + now) / 2))
        return len(self.times) < 4 * MOST


def start(box: Any, stop: threading.Event, seconds: float, every_s: float) -> threading.Thread:
    """Follow the GPU for some seconds, or until `stop`, and leave what was seen in a file beside the black box: a line
    of JSON, and behind it the times."""
    arguments = (box, stop, seconds, every_s)
    thread = threading.Thread(target=_run, args=arguments, name="safelaunch-device", daemon=True)
    thread.start()
    return thread


def _run(box: Any, stop: threading.Event, seconds: float, every_s: float) -> None:
    marks = stream_marks.MARKS
    begun = time.monotonic()
    followed = Followed(marks)
    said: Dict[str, Any] = {"pid": os.getpid(), "begun": begun, "missing": ""}
    try:
        device = marks.device()
        if device is not None:
            marks.take_device(device)
        if device is None:
            pass  # it has made no call that could be followed
        elif not stream_marks.may_ask_while_others_capture():
            said["missing"] = "the CUDA runtime could not be found"
        else:
            marks.followed = followed
            while not stop.wait(every_s) and time.monotonic() - begun < seconds and followed.look():
                pass
    except Exception as error:  # the GPU has failed, which is told by others
        said["missing"] = repr(error)
    marks.followed = None
    said["ended"] = time.monotonic()
    said["calls"] = [list(call) for call in followed.calls]
    path = black_box.beside(box.path, box.index, "stream")
    try:
        with open(path + ".partial", "wb") as file:
            file.write(json.dumps(said).encode() + b"\n" + followed.times.tobytes())
        os.replace(path + ".partial", path)
        box.pulse.followed()
    except OSError:
        pass  # no room for it: the supervisor waits no longer than it has said

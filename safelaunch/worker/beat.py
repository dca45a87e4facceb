"""Runs in: workers. A thread that beats five times a second, and tells when asked: what torch's Flight Recorders
hold, what the rank says of itself, and when its GPU comes to its calls.

Its silence means that no other thread can run Python: native code holds the GIL, or the process does not run. torch
has a server of its own for such dumps (`_WorkerServer`), which needs no GIL; but it prints two lines in every rank,
a process that ends while it runs aborts (5 of 24 ended so with torch 2.13), and its shutdown can hang.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any, Dict, List

from safelaunch import black_box
from safelaunch.worker import device_times, progress, rank, recorders, self_report
from safelaunch.worker.batches import BATCHES

EVERY_S = 0.2
NAME = "safelaunch-beat"
_STARTED: List[bool] = []
STOP_S = 0.5  # a thread in C++ while the interpreter shuts down could abort the process


def again() -> None:
    """This process has been forked from one with a beat thread, and may start one of its own."""
    _STARTED.clear()


def start(box: Any, bindings: Any) -> None:
    """Start the thread, once.

    Args:
        box: a `black_box.Writer`.
        bindings: `torch._C._distributed_c10d`, which dumps the Flight Recorders.
    """
    if _STARTED:
        return
    _STARTED.append(True)
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(stop, box, recorders.recorders(bindings)), name=NAME, daemon=True)
    thread.start()

    def end() -> None:
        if not rank.here:
            return  # a forked child has no such thread, and the event's lock may be in any state
        stop.set()
        thread.join(STOP_S)

    atexit.register(end)


def _run(stop: threading.Event, box: Any, dumps: Dict[str, recorders.Dump]) -> None:
    pulse = box.pulse
    devices = recorders.UnderWay(dump for name, dump in dumps.items() if name != recorders.GLOO)
    follower: threading.Thread | None = None
    while not stop.is_set():
        pulse.beat()
        progress.look_for_imports(pulse)
        wanted = pulse.to_follow()
        if wanted is not None and (follower is None or not follower.is_alive()):
            follower = device_times.start(box, stop, *wanted)
        if dumps:
            try:
                if recorders.GLOO in dumps:
                    pulse.counters(*recorders.totals(dumps[recorders.GLOO]))
                under_way, completed = devices.look()
                BATCHES.watch(stop)
                pulse.on_device(under_way + BATCHES.under_way, completed + BATCHES.passed)
                if pulse.asked():
                    self_report.write(box)
                    _write(black_box.beside(box.path, box.index, "recorder"), recorders.everything(dumps))
                    pulse.answer()
            except Exception:
                dumps = {}  # this torch has it otherwise; Python's own records remain
        stop.wait(EVERY_S)
    for thread in (follower, BATCHES.watch(stop)):
        if thread is not None:
            thread.join(STOP_S / 2)


def _write(path: str, data: bytes) -> None:
    partial = path + ".partial"
    with open(partial, "wb") as file:
        file.write(data)
    os.replace(partial, path)

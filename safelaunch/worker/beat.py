"""Runs in: workers. A thread that beats five times a second, and tells when asked: what torch's Flight Recorder
holds, and what the rank says of itself.

Its silence means that no other thread can run Python: native code holds the GIL, or the process does not run. torch
has a server of its own for such dumps (`_WorkerServer`), which needs no GIL; but it prints two lines in every rank,
a process that ends while it runs aborts (5 of 24 ended so with torch 2.13), and its shutdown can hang.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from typing import Any, Callable, List, Optional

from safelaunch import black_box
from safelaunch.worker import progress, rank, word

EVERY_S = 0.2
_STARTED: List[bool] = []
STOP_S = 0.5  # a thread in C++ while the interpreter shuts down could abort the process


def start(box: Any, bindings: Any) -> None:
    """Start the thread, once.

    Args:
        box: a `black_box.Writer`.
        bindings: `torch._C._distributed_c10d`, which dumps the Flight Recorder.
    """
    if _STARTED:
        return
    _STARTED.append(True)
    stop = threading.Event()
    counters = getattr(bindings, "_dump_fr_trace_json", None)
    thread = threading.Thread(target=_run, args=(stop, box, counters), name="safelaunch-beat", daemon=True)
    thread.start()

    def end() -> None:
        if not rank.here:
            return  # a forked child has no such thread, and the event's lock may be in any state
        stop.set()
        thread.join(STOP_S)

    atexit.register(end)


def _run(stop: threading.Event, box: Any, dump: Optional[Callable[..., bytes]]) -> None:
    pulse = box.pulse
    while not stop.is_set():
        pulse.beat()
        progress.look_for_imports(pulse)
        if dump is not None:
            try:
                pulse.counters(*_counters(dump))
                if pulse.asked():
                    word.write(box)
                    _write(black_box.beside(box.path, box.index, "recorder"), dump(True, False))
                    pulse.answer()
            except Exception:
                dump = None  # this torch has it otherwise; Python's own records remain
        stop.wait(EVERY_S)


def _counters(dump: Callable[..., bytes]):  # type: ignore[no-untyped-def]
    """Sums over all process groups: about 15 µs. The numbers only serve to see that something moves."""
    enqueued = completed = 0
    for status in (json.loads(dump(False, False)).get("pg_status") or {}).values():
        enqueued += max(0, int(status["last_enqueued_collective"]))
        completed += max(0, int(status["last_completed_collective"]))
    return enqueued, completed


def _write(path: str, data: bytes) -> None:
    partial = path + ".partial"
    with open(partial, "wb") as file:
        file.write(data)
    os.replace(partial, path)

"""Runs in: workers. What a rank says of itself when it is asked, in a file beside the black box: what DDP reduces, the
exception that its main thread is handling, the one that has ended a thread of it, and the keys that it has set in a
store, waits for and looks at there, the paths that it may be looking at, where its tasks of asyncio wait, and how far
its GPU has come.

A program that catches an exception hides it from everyone: it saves, uploads or enters a barrier in its `except` or
`finally`, while its peers wait for it elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Dict, Optional

from safelaunch import black_box
from safelaunch.worker import coroutines, errors, looks, progress, reducers, stream_marks


def write(box: Any) -> None:
    """Leave it in a file, whole or not at all."""
    path = black_box.beside(box.path, box.index, "self_report")
    said = {"pid": os.getpid(), "t": time.monotonic()}  # type: Dict[str, Any]
    said["reducers"] = _or_nothing(reducers.look, [])
    said["handling"] = _or_nothing(handling, None)
    said["lost_thread"] = errors.lost_thread()
    said["store_keys"] = _or_nothing(progress.keys_set, [])
    said["store_wants"] = _or_nothing(progress.keys_wanted, [])
    said["store_polls"] = _or_nothing(progress.keys_polled, None)  # not known is not none
    said["looks_at"] = _or_nothing(looks.at, [])
    said["stream"] = _or_nothing(stream_marks.MARKS.look, None)
    said["tasks"] = _or_nothing(coroutines.waiting, [])
    partial = path + ".partial"
    try:
        with open(partial, "w") as file:
            file.write(json.dumps(said))
        os.replace(partial, path)
    except OSError:
        pass  # no room for it: the Flight Recorder is still to be written


def document(said: Dict[str, Any]) -> bytes:
    """A JSON document, for modules of ours that come after the script, which may have a `json` of its own."""
    return json.dumps(said).encode()


def handling() -> Optional[Dict[str, Any]]:
    """The exception that the main thread is handling, in the shape of `model.PyError`: without its traceback, whose
    source lines may lie on a disk that does not answer. Python before 3.10 does not tell."""
    ask = getattr(sys, "_current_exceptions", None)
    active = ask().get(threading.main_thread().ident) if ask is not None else None
    error = active[1] if isinstance(active, tuple) else active  # an exception alone from 3.12 on
    return errors.described(error, "", time.monotonic()) if isinstance(error, Exception) else None


def _or_nothing(look: Any, nothing: Any) -> Any:
    try:
        return look()
    except Exception:
        return nothing  # the script may be making its model at this moment; the next time may be better

"""Runs in: workers. Tracebacks as they are under torchrun: without the frames of our wrappers."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any, Callable, Optional

from safelaunch.worker.user_code import OURS, STDLIB


def formatted(error: BaseException) -> str:
    """The text that Python shows for an uncaught exception."""
    report = _standard("traceback").TracebackException.from_exception(error)
    following = report
    while following is not None:
        following.stack[:] = [frame for frame in following.stack if not frame.filename.startswith(OURS)]
        following = following.__cause__ or following.__context__
    return "".join(report.format())


def hide_our_frames(error: Optional[BaseException]) -> Any:
    """Take our wrappers out of the tracebacks of an exception that ends the rank, and of what it was raised from: what
    the user sees is what torchrun shows. Returns the traceback of the first."""
    first, seen = error, set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        _hide_in(error.__traceback__)
        error = error.__cause__ or error.__context__
    return first.__traceback__ if first is not None else None


def _hide_in(trace: Any) -> None:
    while trace is not None:
        while _is_ours(trace.tb_next):
            trace.tb_next = trace.tb_next.tb_next
        trace = trace.tb_next


def hide_in_reports(module: Any) -> None:
    """Have `traceback` leave our wrappers out of what it formats, as in `except Exception: print(format_exc())`.

    Args:
        module: `traceback`, or what the script has of that name.
    """
    if not hasattr(module, "TracebackException"):
        return
    init = module.TracebackException.__init__

    @functools.wraps(init)
    def __init__(self, exc_type, exc_value, exc_traceback, **options):  # type: ignore[no-untyped-def]
        if options.get("_seen") is None:  # else it is the cause of one that was seen to
            hide_our_frames(exc_value)
        init(self, exc_type, exc_value, exc_traceback, **options)

    module.TracebackException.__init__ = __init__
    for name in ("walk_tb", "_walk_tb_with_full_positions"):  # Python 3.11
        if hasattr(module, name):
            setattr(module, name, _walking(getattr(module, name)))


def _walking(walk: Callable[[Any], Any]) -> Any:
    @functools.wraps(walk)
    def walk_tb(tb: Any) -> Any:
        _hide_in(tb)
        return walk(tb)

    return walk_tb


def _is_ours(trace: Any) -> bool:
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS)


def _standard(name: str) -> Any:
    """A module of Python's own, whatever the script has of that name."""
    theirs, path = sys.modules.get(name), sys.path[:]
    if theirs is not None and (getattr(theirs, "__file__", None) or "").startswith(STDLIB):
        return theirs
    sys.modules.pop(name, None)
    sys.path[:] = [entry for entry in path if (entry + os.sep).startswith(STDLIB)]
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
        if theirs is not None:
            sys.modules[name] = theirs

"""Runs in: workers. Records how the program ends: an uncaught exception, or a call of `sys.exit`/`os._exit`.

The exception is on disk before the interpreter shuts down, and so before peers can see a closed connection: its
time orders cause and consequence, where exit times do not.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from typing import Any, Callable, Optional

MAX_TRACEBACK = 16 * 1024


def install(rank_dir: str, box: Any) -> None:
    """Record uncaught exceptions to `rank_dir/error-PID.json`, and exit calls to the black box."""
    path = os.path.join(rank_dir, "error-%d.json" % os.getpid())
    owner = os.getpid()
    previous = sys.excepthook
    handled: list[tuple[BaseException, float]] = []

    def excepthook(kind, error, trace):  # type: ignore[no-untyped-def]
        if os.getpid() == owner:
            _try_record(path, error)
        previous(kind, error, trace)

    def at_exit() -> None:
        # A script may replace sys.excepthook without calling the former one. CPython keeps the exception here.
        error = _uncaught()
        if os.getpid() != owner:
            return
        if not os.path.exists(path):
            if error is not None:
                _try_record(path, error)
            elif handled:
                _try_record(path, *handled[-1])
        if box is not None:
            box.shutting_down(error is not None or bool(handled))

    def before_os_exit() -> None:
        # Nothing comes after os._exit; sys.exit may still be caught.
        if handled:
            _try_record(path, *handled[-1])
        box.shutting_down(bool(handled))

    sys.excepthook = excepthook
    atexit.register(at_exit)
    if box is not None:
        _note_caller(sys, "exit", box, owner, handled, lambda: None)
        _note_caller(os, "_exit", box, owner, handled, before_os_exit)


def _uncaught() -> Any:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _note_caller(
    module: Any, name: str, box: Any, owner: int, handled: list[tuple[BaseException, float]], last: Callable[[], None]
) -> None:
    """Wrap `module.name` so that the black box learns who called it. An exception that is being handled at that
    moment (`except ...: sys.exit(1)`), or that an excepthook was called with, goes to `handled`: it is the reason,
    and the program hides it from everyone but us."""
    import functools

    original = getattr(module, name)

    @functools.wraps(original)
    def noted(*args, **kwargs):  # type: ignore[no-untyped-def]
        try:
            if os.getpid() == owner:
                frame = sys._getframe(1)
                while frame.f_back is not None and not is_user_code(frame.f_code.co_filename):
                    frame = frame.f_back  # argparse and others call sys.exit for the program
                code = frame.f_code
                status = args[0] if args else None
                box.exit_call(code.co_filename, frame.f_lineno, code.co_name, status)
                reason = sys.exc_info()[1] or _uncaught()
                if isinstance(reason, Exception) and status not in (0, None):
                    handled.append((reason, time.monotonic()))
                last()
        except Exception:
            pass
        return original(*args, **kwargs)

    setattr(module, name, noted)


def _try_record(path: str, error: BaseException, t: Optional[float] = None) -> None:
    try:
        record(path, error, t)
    except Exception:
        pass


def record(path: str, error: BaseException, t: Optional[float] = None) -> None:
    """Write the exception to `path` in the shape of `model.PyError`, and to torch elastic's error file.

    Args:
        path: where to.
        error: the exception.
        t: CLOCK_MONOTONIC at which it became known, now by default.
    """
    now = time.monotonic() if t is None else t
    import traceback

    text = "".join(_without_our_frames(traceback.TracebackException.from_exception(error)).format())
    location = _location(error)
    data = {
        "type": _name(error),
        "message": _message(error),
        "traceback": text if len(text) <= MAX_TRACEBACK else text[:2000] + "\n  ...\n" + text[-MAX_TRACEBACK:],
        "t": now,
        "location": {"file": location[0], "line": location[1], "function": location[2]} if location else None,
        "chain": _chain(error),
    }
    _write(path, json.dumps(data))
    elastic = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if elastic and not os.path.exists(elastic):
        # The form of torch.distributed.elastic.multiprocessing.errors.ErrorHandler.record_exception.
        extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
        message = {"message": "%s: %s" % (_name(error), _message(error)), "extraInfo": extra}
        _write(elastic, json.dumps({"message": message}))


def _without_our_frames(report: Any) -> Any:
    following = report
    while following is not None:
        following.stack[:] = [frame for frame in following.stack if not frame.filename.startswith(_OURS)]
        following = following.__cause__ or following.__context__
    return report


def _write(path: str, text: str) -> None:
    # Whole or not at all: the supervisor may look at any moment.
    partial = "%s.%d" % (path, os.getpid())
    with open(partial, "w") as file:
        file.write(text)
    os.replace(partial, path)


def _name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "." + kind.__qualname__
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)[:4000]
    except Exception as second:
        return "<no message: %r>" % (second,)


def _chain(error: BaseException) -> list[str]:
    chain: list[str] = []
    seen = {id(error)}
    current = error
    while len(chain) < 10:
        # `raise ... from None` hides a context from readers, but the context still is what came before.
        following = current.__cause__ or current.__context__
        if following is None or id(following) in seen:
            break
        seen.add(id(following))
        chain.append("%s: %s" % (_name(following), _message(following)))
        current = following
    return chain


def _location(error: BaseException):  # type: ignore[no-untyped-def]
    """The innermost line of the user's own code, else the innermost line."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, "<module>"
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    for frame in reversed(frames):
        if is_user_code(frame[0]):
            return frame
    return frames[-1] if frames else None


def is_user_code(file: str) -> bool:
    """Whether a file is the user's own: not the standard library, not installed, not generated, not ours."""
    if file.startswith("<") or "/site-packages/" in file or "/dist-packages/" in file:
        return False
    return not file.startswith((_STDLIB, _OURS))


_STDLIB = os.path.dirname(os.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

"""Runs in: workers. Records how the program ends: an uncaught exception; what ends it without one is noted by `exits`.

The exception is on disk before the interpreter shuts down, and so before peers can see a closed connection: its
time orders cause and consequence, where exit times do not.
"""

from __future__ import annotations

import atexit
import builtins
import fcntl
import importlib
import json
import mmap
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from safelaunch import black_box
from safelaunch.shortened import without_middle
from safelaunch.worker import tracebacks
from safelaunch.worker.exits import Exits, uncaught
from safelaunch.worker.user_code import is_user_code

MAX_TRACEBACK = 16 * 1024  # characters that are kept of its end
HEAD = 2000  # ... and of its begin
LOOK_S = 2.0  # for what is looked at once the traceback is out; a disk may be dead (an estimate)
RESERVE_FROM = 60  # above the numbers that scripts may count on, below the limits that people set
OUTERMOST = ("<module>", "_run_module_as_main")  # functions of the outermost frame of a program; runpy's with -m
_RESERVE: List[int] = []
ROOM = 4 << 20  # bytes of address space, not of memory: for modules that are loaded, and what is written (an estimate)
_ROOM: List[mmap.mmap] = []
_LOST_THREADS: List[Dict[str, Any]] = []  # the latest alone
Written = Tuple[str, Dict[str, Any]]  # where to, and what


def install(rank_dir: str, box: Any) -> None:  # noqa: C901  it holds what must be there before anything else goes wrong
    """Record uncaught exceptions to `rank_dir/error-PID.json`, and exit calls to the black box."""
    owner = os.getpid()
    path = os.path.join(rank_dir, "error-%d.json" % owner)
    places = [path] if box is None else [path, black_box.beside(box.path, box.index, "error-%d.json" % owner)]
    previous = sys.excepthook
    handled: list[tuple[BaseException, float]] = []
    exits = Exits(box, owner, handled) if box is not None else None

    def excepthook(kind, error, trace):  # type: ignore[no-untyped-def]
        written = _try_record(places, error) if os.getpid() == owner else None
        if written is not None and box is not None and _is_at_the_end():
            box.pulse.program_raised()
        try:
            previous(kind, error, tracebacks.hide_our_frames(error) or trace)
        finally:
            _look_around(written, error)

    def program_ended() -> None:
        if os.getpid() != owner:
            return
        box.pulse.program_ended()
        error = uncaught()  # as in `at_exit`, which comes after all that may keep the process
        if error is not None and _ended_the_program(error):
            if not any(map(os.path.exists, places)):
                _try_record(places, error)
            box.pulse.program_raised()

    def at_exit() -> None:
        # A script may replace sys.excepthook without calling the former one. CPython keeps the exception here.
        error = uncaught()
        if os.getpid() != owner:
            return
        if not any(map(os.path.exists, places)):
            if error is not None:
                _look_around(_try_record(places, error), error)
            elif handled:
                _look_around(_try_record(places, *handled[-1]), handled[-1][0])
        if exits is not None:
            exits.program_ended()
            box.shutting_down(error is not None or bool(handled))

    def before_os_exit() -> None:
        # Nothing comes after os._exit; sys.exit may still be caught.
        if handled:
            _look_around(_try_record(places, *handled[-1]), handled[-1][0])
        box.shutting_down(bool(handled))

    sys.excepthook = excepthook
    _note_lost_threads(owner)
    atexit.register(at_exit)
    if exits is not None:
        _when_program_ends(program_ended)
        exits.note(sys, "exit")
        exits.note(os, "_exit", before_os_exit)
        quitter = type(getattr(builtins, "exit", None))  # `exit` and `quit`, where there is a `site`
        if quitter.__name__ == "Quitter":
            exits.note(quitter, "__call__", position=1)
    _reserve()


def _is_at_the_end() -> bool:
    """Whether Python itself has called `sys.excepthook`, since the program is over: programs call it too, for an
    exception that they survive, and so do consoles (`code.interact`) and C code that runs inside the program."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name not in OUTERMOST


def _ended_the_program(error: BaseException) -> bool:
    """Whether an exception has come out of the whole program: test runners and consoles keep those of its parts where
    Python keeps that one."""
    trace = error.__traceback__
    return trace is not None and trace.tb_frame.f_code.co_name in OUTERMOST


def _when_program_ends(told: Callable[[], Any]) -> None:
    """Call it once the main thread has left the program, and before the interpreter waits for other threads, for
    processes of multiprocessing and for what `atexit` calls. Python has it from 3.9 on, for its own thread pools."""
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(told)


def _note_lost_threads(owner: int) -> None:
    """Keep what ends a thread, as words: an exception kept as such would keep all that its frames hold, such as an open
    connection."""
    previous = threading.excepthook

    def excepthook(lost: Any) -> None:
        try:
            if os.getpid() == owner and isinstance(lost.exc_value, Exception):
                _LOST_THREADS[:] = [described(lost.exc_value, "", time.monotonic())]
        except Exception:
            pass
        previous(lost)

    threading.excepthook = excepthook


def lost_thread() -> Optional[Dict[str, Any]]:
    """The latest exception that has ended a thread, in the shape of `model.PyError` without its traceback."""
    return _LOST_THREADS[-1] if _LOST_THREADS else None


def _try_record(places: List[str], error: BaseException, t: Optional[float] = None) -> Optional[Written]:
    try:
        _release()
        return record(places, error, t)
    except Exception:
        return None


def _reserve() -> None:
    """Keep a descriptor, and room under a limit of address space, for `_release`."""
    try:
        _ROOM.append(mmap.mmap(-1, ROOM))
        low = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _RESERVE.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, RESERVE_FROM))
        finally:
            os.close(low)
    except OSError:
        pass  # none to be had: what is recorded then needs none either, or is lost


def _release() -> None:
    """Give back what was kept for this moment: where too many files are open, or memory was refused, no other can be
    had."""
    while _ROOM:
        _ROOM.pop().close()
    while _RESERVE:
        descriptor = _RESERVE.pop()
        try:
            # A script that has closed what it did not know may have a file of its own there, or nothing.
            if os.path.samestat(os.fstat(descriptor), os.stat(os.devnull)):
                os.close(descriptor)
        except OSError:
            pass


def record(places: List[str], error: BaseException, t: Optional[float] = None) -> Written:
    """Write the exception in the shape of `model.PyError`, and to torch elastic's error file. Returns what was written,
    and where.

    Args:
        places: where to; a later one where the disk of those before is full.
        error: the exception.
        t: CLOCK_MONOTONIC at which it became known, now by default.
    """
    now = time.monotonic() if t is None else t
    # Without its middle: all that reads it, and torch elastic posts it whole, is to take as long for a message of 50 MB
    # as for any other.
    text = without_middle(tracebacks.formatted(error), HEAD, MAX_TRACEBACK)
    data = described(error, text, now)
    place = _write_to_one(places, data)
    elastic = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if elastic and not os.path.exists(elastic):
        # The form of torch.distributed.elastic.multiprocessing.errors.ErrorHandler.record_exception.
        extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
        message = {"message": "%s: %s" % (_name(error), _message(error)), "extraInfo": extra}
        _write_to_one([elastic], {"message": message})  # where its disk is full, ours may have had a place
    return place, data


def described(error: BaseException, text: str, t: float) -> Dict[str, Any]:
    """An exception in the shape of `model.PyError`; `text` is its traceback, `t` CLOCK_MONOTONIC."""
    location = _location(error)
    return {
        "type": _name(error),
        "message": _message(error),
        "traceback": text,
        "t": t,
        "location": {"file": location[0], "line": location[1], "function": location[2]} if location else None,
        "chain": _chain(error),
    }


def _look_around(written: Optional[Written], error: BaseException) -> None:
    """Add what is seen of the rank now to its record. In a thread: a look may meet a disk that does not answer."""
    if written is None or not written[0]:
        return
    place, data = written
    found: Dict[str, Any] = {}

    def look() -> None:
        found["reducers"] = _found("reducers", "look", error)
        found["around"] = _found("surroundings", "of", error)

    try:
        thread = threading.Thread(target=look, name="safelaunch-look", daemon=True)
        try:
            thread.start()
            thread.join(LOOK_S)
        except RuntimeError:
            pass  # no room for its stack
        if not thread.is_alive() and not found.get("around"):  # what there was no room for: /proc needs little
            found["around"] = _found("surroundings", "of_memory", error)
        more = {key: value for key, value in list(found.items()) if value}
        if more:
            _write_to_one([place], {**data, **more})
    except (Exception, KeyboardInterrupt):
        pass  # the rank is at its end, and its record is written


def _write_to_one(places: List[str], data: Dict[str, Any]) -> str:
    for place in places:
        try:
            _write(place, json.dumps(data))
            return place
        except OSError:
            continue
    return ""


def _found(module: str, function: str, error: BaseException) -> Any:
    """What another module has to say; it is loaded now, since most ranks never need it."""
    try:
        return getattr(importlib.import_module("safelaunch.worker." + module), function)(error)
    except Exception:
        return None


def _write(path: str, text: str) -> None:
    # Whole or not at all: the supervisor may look at any moment.
    partial = "%s.%d" % (path, os.getpid())
    try:
        with open(partial, "x") as file:  # never through a link
            file.write(text)
        os.replace(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


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

"""Runs in: workers. Who calls `sys.exit`, `exit` or `os._exit`, and with what."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Set, Tuple

from safelaunch.worker.user_code import is_user_code


class Exits:
    """Has the black box learn who calls what ends a program, and with what.

    Args:
        box: the `black_box.Writer`.
        owner: the pid of the rank; those below it inherit its functions.
        handled: takes an exception that is being handled at that moment (`except ...: sys.exit(1)`), or that an
            excepthook was called with, and when that was: it is the reason, and the program hides it from everyone but
            us.
    """

    def __init__(self, box: Any, owner: int, handled: List[Tuple[BaseException, float]]) -> None:
        self._box, self._owner, self._handled = box, owner, handled
        self._called = False

    def note(self, where: Any, name: str, last: Callable[[], None] = lambda: None, position: int = 0) -> None:
        """Wrap `where.name`, whose argument at `position` is the exit code. `last` is called before it is."""
        original = getattr(where, name)

        @functools.wraps(original)
        def noted(*args, **kwargs):  # type: ignore[no-untyped-def]
            try:
                if os.getpid() == self._owner:
                    self._record(sys._getframe(1), args[position] if len(args) > position else None)
                    last()
            except Exception:
                pass
            return original(*args, **kwargs)

        setattr(where, name, noted)

    def _record(self, caller: Any, status: object) -> None:
        frame, said = _program_frame(caller)
        handled = signal_in_hand(caller)
        self._box.exit_call(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, status, said, handled)
        self._called = True
        reason = sys.exc_info()[1] or uncaught()
        if isinstance(reason, Exception) and status not in (0, None) and not said:
            self._handled.append((reason, time.monotonic()))

    def program_ended(self) -> None:
        """The program has come to its end. Where nothing was called, it may still have raised SystemExit itself, which
        leaves no trace: its file is noted, so that it can be looked through where the exit code tells of it."""
        try:
            file = getattr(sys.modules.get("__main__"), "__file__", None)
            if not self._called and file:
                self._box.exit_call(os.path.abspath(file), 0, "", "")
        except Exception:
            pass  # its directory may be gone


def _program_frame(frame: Any) -> Tuple[Any, str]:
    """The program's own frame in a call that a library made for it, and what argparse or click have told the person who
    has typed the arguments: there is no more to it than that, whatever exception it came with."""
    first, said = frame, _refusal(frame, sys.exc_info()[1])
    while not is_user_code(frame.f_code.co_filename):
        if frame.f_back is None:
            return first, said
        if frame.f_globals.get("__name__") == "argparse":
            first = frame.f_back
            if frame.f_code.co_name == "exit":
                said = str(frame.f_locals.get("message") or "").strip()
        frame = frame.f_back
    return frame, said


def _refusal(frame: Any, error: Any) -> str:
    """What a UsageError of click says; it may lie in a variable of the function that leaves."""
    if str(frame.f_globals.get("__name__")).endswith("click.core"):
        error = error or getattr(frame.f_locals.get("report"), "__self__", None)
    bases = ((kind.__module__, kind.__name__) for kind in type(error).__mro__)
    usage = any(name == "UsageError" and module.endswith("click.exceptions") for module, name in bases)
    return str(error.format_message()) if usage else ""


def signal_in_hand(frame: Any) -> str:
    """The signal whose handler of the program has led to this frame (`SIGTERM`), or nothing. Its function may be called
    without a signal as well: its first argument, which Python passes to a handler, must be the signal's number."""
    handlers: Dict[Any, Set[int]] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # of functools.partial
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if code is not None:
            handlers.setdefault(code, set()).add(int(number))
    while frame is not None:
        numbers = handlers.get(frame.f_code, ())
        found = [value for value in _arguments(frame) if isinstance(value, int) and value in numbers]
        if found:
            return signal.Signals(found[0]).name
        frame = frame.f_back
    return ""


def _arguments(frame: Any) -> List[Any]:
    """What a function was called with, as far as its variables still tell."""
    code = frame.f_code
    given: List[Any] = []
    for name in code.co_varnames[: code.co_argcount + 1]:  # the next one may be *args
        value = frame.f_locals.get(name)
        given += value if isinstance(value, tuple) else [value]
    return given


def uncaught() -> Any:
    """The exception that nobody has caught, where CPython has kept one."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)

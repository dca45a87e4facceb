"""Runs in: ranks that were forked. How such a rank ends: as ever, or quickly where nothing in it needs an end.

At the end of a process Python and torch's libraries take down all that was loaded. In a rank that was forked this
touches tens of thousands of pages that all ranks share, and the kernel copies each of them for memory that is given
back a moment later: up to a second of CPU a rank, where its script may only have printed a line.

What hangs on objects that the collector leaves alone since the fork (`gc.freeze`), and the globals of `__main__` are
among them, is deleted only where it is told to look at them again. That it does, unless nothing has been made since
whose deletion anybody could notice. The modules themselves are another matter: see `kept_modules`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import weakref
from typing import Any, Callable, FrozenSet, List, NamedTuple

from safelaunch.worker import kept_modules

PRELOADED = "/etc/ld.so.preload"  # ld.so(8)

_LETTING_GO: List[Callable[[], None]] = []
_CANARY: List[Any] = []  # its object is not listed any more where the script has called `gc.freeze`


class Loaded(NamedTuple):
    """What the fork server has loaded: its libraries, what torch is to do at the end (take the operators out of its
    tables that it has defined in Python), whether that is all of torch's and Python's own, and its modules."""

    libraries: FrozenSet[str]
    finalizers: List[Any]
    alone: bool
    shared: kept_modules.Shared


def prepare(preload: List[str]) -> None:
    """Arrange for the end of all ranks, in the fork server, once everything is loaded.

    Args:
        preload: the modules beside torch: they may have opened files, or want to be told of the end.
    """
    known = list(getattr(weakref.finalize, "_registry", ()))
    torch = [each for each in known if (getattr(each.peek()[1], "__module__", None) or "").startswith("torch.")]
    # A library that was put before all others may write down at the end what it has seen.
    alone = not (preload or "LD_PRELOAD" in os.environ or os.path.exists(PRELOADED))
    atexit.register(_end, Loaded(_libraries(), torch, alone, kept_modules.look()), os.getpid())
    gc.freeze()  # what the collector does not touch stays shared


def begin(let_go: Callable[[], None]) -> None:
    """Let the script begin, in the rank: what there is now is not its own.

    Args:
        let_go: to be called when its program is over.
    """
    _LETTING_GO.append(let_go)
    gc.freeze()
    _CANARY.append([])


def _end(loaded: Loaded, server: int) -> None:
    """Prepare the end of a process that comes from the fork server.

    Args:
        loaded: what the fork server had loaded.
        server: its pid.
    """
    plain = False
    for let_go in _LETTING_GO:
        let_go()
    try:
        made = gc.get_objects()
        # A library that has come since may have objects that the collector does not know.
        plain = (
            _is_the_end()
            and any(item is _CANARY[0] for item in made)
            and loaded.alone
            and _libraries() == loaded.libraries
            and not any(map(_is_told, made))
        )
        # A thread may hold the lock of a stream that is to be flushed.
        quick = plain and os.getppid() == server and len(os.listdir("/proc/self/task")) == 1
        if quick and _leave_out_destructors():
            for finalizer in loaded.finalizers:
                finalizer.atexit = False
            if kept_modules.may_stay(loaded.shared, made):
                sys.__interactivehook__ = kept_modules.Keeper(loaded.shared.modules)  # type: ignore[assignment]
    except Exception:
        pass  # what has been decided is right by itself
    if not plain:
        gc.unfreeze()


def _is_the_end() -> bool:
    """Whether Python's end has called `_end`, no script by `atexit._run_exitfuncs`, and nobody follows each call."""
    return sys._getframe(1).f_back is None and sys.gettrace() is None and sys.getprofile() is None


def _is_told(item: object) -> bool:
    """Whether an object is told of its deletion: files are, and generators."""
    return any("__del__" in vars(base) for base in type(item).__mro__)


def _leave_out_destructors() -> bool:
    """Have the process end after Python's own end, and before C's. Returns whether it will."""
    libc = ctypes.CDLL(None)
    try:
        # on_exit(3) calls `_exit` with the status first of all; before that, as what comes last is called first,
        # __cxa_atexit calls `fflush` with NULL, for what C code has printed.
        leave, flush = ctypes.cast(libc._exit, ctypes.c_void_p), ctypes.cast(libc.fflush, ctypes.c_void_p)
        return bool(libc.on_exit(leave, None) == 0) and bool(libc.__cxa_atexit(flush, None, None) == 0)
    except AttributeError:
        return False  # no glibc


def _libraries() -> FrozenSet[str]:
    """The files of the libraries of this process."""
    with open("/proc/self/maps") as file:
        return frozenset(line.split(None, 5)[5] for line in file if ".so" in line)

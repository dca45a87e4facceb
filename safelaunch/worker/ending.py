"""Runs in: ranks that were forked. How such a rank ends: as ever, but for what only costs time.

At the end of a process Python and torch's libraries take down all that was loaded. In a rank that was forked this
touches tens of thousands of pages that all ranks share, and the kernel copies each of them for memory that is given
back a moment later: up to a second of CPU a rank, where its script may only have printed a line. What of it nobody can
miss is left out. `atexit`, threads, `__del__`, buffers and the exit code stay what they are.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import types
from typing import FrozenSet

PRELOADED = "/etc/ld.so.preload"  # ld.so(8)


def prepare() -> None:
    """Arrange for it, in the fork server, once everything is loaded."""
    # A library that was put before all others may write down at the end what it has seen.
    quick = "LD_PRELOAD" not in os.environ and not os.path.exists(PRELOADED)
    atexit.register(_end, _libraries() if quick else frozenset(), os.getpid())
    gc.freeze()  # what the collector does not touch stays shared


def begin() -> None:
    """Let the script begin, in the rank. What there is now is not its own, and the collector leaves it alone."""
    gc.freeze()
    # The collector would never delete what is in a module that it leaves alone, and whose functions refer to it.
    main = types.ModuleType("__main__")
    main.__dict__.update(sys.modules["__main__"].__dict__)
    sys.modules["__main__"] = main


def _end(loaded: FrozenSet[str], server: int) -> None:
    """Prepare the end of a process that comes from the fork server.

    Args:
        loaded: the libraries that the fork server had loaded; none where C's end is to be as ever.
        server: its pid.
    """
    if any(hasattr(type(item), "__del__") for item in gc.get_objects()):
        gc.unfreeze()  # it may hang on what torch's modules hold, and is to be deleted with them
    # A library that has come since may count on its destructors (a profile, a coverage count).
    if os.getppid() == server and _libraries() == loaded:
        _leave_out_destructors()


def _leave_out_destructors() -> None:
    """Have the process end after Python's own end, and before C's."""
    libc = ctypes.CDLL(None)
    try:
        # on_exit(3) calls `_exit` with the status first of all; before that, as what comes last is called first,
        # __cxa_atexit calls `fflush` with NULL, for what C code has printed.
        address = ctypes.cast(libc._exit, ctypes.c_void_p), ctypes.cast(libc.fflush, ctypes.c_void_p)
        if libc.on_exit(address[0], None) == 0:
            libc.__cxa_atexit(address[1], None, None)
    except AttributeError:
        return  # no glibc
    _keep_definitions()


def _keep_definitions() -> None:
    """Let torch not take the operators out of its tables that it has defined in Python: nobody will look."""
    finalize = sys.modules["weakref"].finalize
    for finalizer in list(getattr(finalize, "_registry", ())):
        found = finalizer.peek()
        if found is not None and (getattr(found[1], "__module__", None) or "").startswith("torch."):
            finalizer.atexit = False


def _libraries() -> FrozenSet[str]:
    """The files of the libraries of this process."""
    with open("/proc/self/maps") as file:
        return frozenset(line.split(None, 5)[5] for line in file if ".so" in line)

"""Runs in: ranks that were forked. How such a rank ends: as ever, or quickly where nothing in it needs an end.

At the end of a process Python and torch's libraries take down all that was loaded. In a rank that was forked this
touches tens of thousands of pages that all ranks share, and the kernel copies each of them for memory that is given
back a moment later: up to a second of CPU a rank, where its script may only have printed a line.

What hangs on objects that the collector leaves alone since the fork (`gc.freeze`), and the globals of `__main__` are
among them, is deleted only where it is told to look at them again. That it does, unless nothing has been made since
whose deletion anybody could notice.

The modules that were there before the fork are not taken apart either, if nobody could notice that: see `Keeper`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import weakref
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple

PRELOADED = "/etc/ld.so.preload"  # ld.so(8)
HEAPTYPE, HAVE_GC = 1 << 9, 1 << 14  # Py_TPFLAGS_*, object.h

_FIRST: List[Any] = []  # the first object that the rank has made


class Loaded(NamedTuple):
    """What the fork server has loaded: its libraries, its modules, what torch is to do at the end (take the operators
    out of its tables that it has defined in Python), and whether that is all of torch's and Python's own. `unknown` are
    the types whose objects the collector does not know, with how many references they have: an object is one."""

    libraries: FrozenSet[str]
    modules: Dict[str, Any]
    finalizers: List[Any]
    alone: bool
    unknown: Dict[type, int]


def prepare(preload: List[str]) -> None:
    """Arrange for the end of all ranks, in the fork server, once everything is loaded.

    Args:
        preload: the modules beside torch: they may have opened files, or want to be told of the end.
    """
    known = list(getattr(weakref.finalize, "_registry", ()))
    torch = [each for each in known if (getattr(each.peek()[1], "__module__", None) or "").startswith("torch.")]
    # A library that was put before all others may write down at the end what it has seen.
    alone = not (preload or "LD_PRELOAD" in os.environ or os.path.exists(PRELOADED))
    loaded = Loaded(_libraries(), dict(sys.modules), torch, alone, _references(_unknown_types()))
    atexit.register(_end, loaded, os.getpid())
    gc.freeze()  # what the collector does not touch stays shared


def begin() -> None:
    """Let the script begin, in the rank: what there is now is not its own."""
    gc.freeze()
    _FIRST.append([])


def _end(loaded: Loaded, server: int) -> None:
    """Prepare the end of a process that comes from the fork server.

    Args:
        loaded: what the fork server had loaded.
        server: its pid.
    """
    plain = quick = unseen = False
    try:
        made = gc.get_objects()
        # Python's own end calls us, not the script (atexit._run_exitfuncs), and we see all that has been made.
        complete = sys._getframe().f_back is None and any(item is _FIRST[0] for item in made)
        # A library that has come since may have objects that the collector does not know.
        plain = complete and loaded.alone and _libraries() == loaded.libraries and not any(map(_is_told, made))
        # A thread may hold the lock of a stream that is to be flushed.
        quick = plain and os.getppid() == server and len(os.listdir("/proc/self/task")) == 1
        unseen = quick and not any(map(_tells, made)) and _references(loaded.unknown) == loaded.unknown
    except Exception:
        pass
    if not plain:
        gc.unfreeze()
    elif quick and _leave_out_destructors():
        for finalizer in loaded.finalizers:
            finalizer.atexit = False
        if unseen:
            sys.__interactivehook__ = Keeper(loaded.modules)  # type: ignore[assignment]


class Keeper:
    """Keeps modules from being taken apart: they are no longer in `sys.modules` when Python comes to that.

    Python deletes this object when nothing else is left to do: threads, `atexit`, the streams and the collector have
    had their time, and nothing can be imported any more (`finalize_modules_delete_special` of pylifecycle.c, Python 3.9
    to 3.13, sets `sys.__interactivehook__` to None, which nobody asks for by then). What would have been deleted with a
    module has to be such that nobody can tell: see `_end`.

    Args:
        modules: by their names in `sys.modules`.
    """

    def __init__(self, modules: Dict[str, Any]) -> None:
        self._modules = modules

    def __del__(self) -> None:
        if sys.path is not None or sys.flags.verbose:
            return
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._modules))  # they stay
        for name, module in self._modules.items():
            if name not in ("sys", "builtins", "__main__") and sys.modules.get(name) is module:
                del sys.modules[name]


def _is_told(item: object) -> bool:
    """Whether an object is told of its deletion: files are, and generators. Of a class whose objects the collector does
    not know: whether they are."""
    kind = type(item)
    if issubclass(kind, type) and not item.__flags__ & HAVE_GC:  # type: ignore[attr-defined]
        kind = item  # type: ignore[assignment]
    return any("__del__" in vars(base) for base in kind.__mro__)


def _tells(item: object) -> bool:
    """Whether an object tells of another one's deletion."""
    return issubclass(type(item), weakref.ref) and item.__callback__ is not None  # type: ignore[attr-defined]


def _unknown_types() -> List[type]:
    """The types whose objects the collector does not know, as it does not know those of C++ that torch makes."""
    kinds, left = {object}, [object]
    while left:
        new = set(type.__subclasses__(left.pop())) - kinds
        kinds |= new
        left += new
    return [kind for kind in kinds if kind.__flags__ & (HEAPTYPE | HAVE_GC) == HEAPTYPE]


def _references(kinds: Iterable[type]) -> Dict[type, int]:
    return {kind: sys.getrefcount(kind) for kind in kinds}


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

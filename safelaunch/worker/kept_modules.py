"""Runs in: the fork server, and ranks that were forked from it. Has Python leave the modules that all ranks share alone
at a rank's end, where nobody could tell.

Python takes its modules apart at its end, and with them all that hangs on them: most of what a rank of a few lines does
in its life, and each page that it touches is copied first.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, Set

HEAPTYPE, HAVE_GC = 1 << 9, 1 << 14  # Py_TPFLAGS_*, object.h
OTHERS = ("sys", "builtins", "__main__")  # Python's own end needs the first two


class Shared(NamedTuple):
    """What there is before the fork: the modules (their `id`, by their names in `sys.modules`), and the classes whose
    objects the collector does not list, those of C++ that torch makes among them. Each of these objects has a reference
    to its class: `counts` are the references of these classes."""

    modules: Dict[str, int]
    unlisted: List[type]
    counts: List[int]


def look() -> Shared:
    """What there is now."""
    modules = {name: id(module) for name, module in sys.modules.items() if name not in OTHERS}
    unlisted = _unlisted()
    return Shared(modules, unlisted, _references(unlisted))


def may_stay(shared: Shared, made: Iterable[object]) -> bool:
    """Whether nobody can tell that nothing is deleted of what hangs on the shared modules. (Who gives a `__del__` to a
    class of torch's or of Python's own could: to look for that costs as much as to delete them.)

    Args:
        shared: what there was before the fork.
        made: all objects that have been made since, none of which has a `__del__`.
    """
    return not any(map(_tells, made)) and _references(shared.unlisted) == shared.counts


class Keeper:
    """Takes modules out of `sys.modules` just before Python goes through that to take them apart.

    It has to be what `sys.__interactivehook__` is, which nobody asks for any more at the end. Python sets that to None
    when nothing but the modules is left: threads, `atexit`, the streams and the collector have had their time, and
    nothing can be imported (`finalize_modules_delete_special` of pylifecycle.c; held by a test for each Python that it
    runs with). Where it is deleted at another time it does nothing.

    Args:
        modules: their `id`, by their names in `sys.modules`.
    """

    def __init__(self, modules: Dict[str, int]) -> None:
        self._modules = modules
        self._kept: List[Any] = []
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kept))  # never to be deleted

    def __del__(self) -> None:
        if sys.path is not None or sys.flags.verbose:  # `python -v` tells of each module
            return
        for name, number in self._modules.items():
            module = sys.modules.get(name)
            if id(module) == number:
                self._kept.append(module)
                del sys.modules[name]


def _tells(item: object) -> bool:
    """Whether an object tells of the end of another one: it is a weak reference with a callback (that of a proxy cannot
    be seen), or a class with a `__del__`."""
    kind = type(item)
    if issubclass(kind, type):
        return hasattr(item, "__del__")
    if issubclass(kind, weakref.ref):
        return item.__callback__ is not None  # type: ignore[attr-defined]
    return issubclass(kind, weakref.ProxyTypes)


def _unlisted() -> List[type]:
    seen: Set[type] = {object}
    left: List[type] = [object]
    while left:
        new: Set[type] = set(type.__subclasses__(left.pop())) - seen
        seen |= new
        left += new
    return [kind for kind in seen if kind.__flags__ & (HEAPTYPE | HAVE_GC) == HEAPTYPE]


def _references(classes: List[type]) -> List[int]:
    return [sys.getrefcount(kind) for kind in classes]

"""Runs in: fork server and workers. What the imports at the start of a process did: which module needs which, what is
to be called at the end, which warnings are not to be shown.

A script that imports one of these modules later is to find that done then, and nothing of the others.
"""

from __future__ import annotations

import _frozen_importlib
import atexit
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Container, Dict, List, NamedTuple, Set, Tuple

WHOLE = "torch"  # what has state in C++ comes with all that has been loaded for it
THREAD_POOLS = "concurrent.futures.thread"  # the one module of Python that uses `threading._register_atexit`

_MACHINERY = vars(_frozen_importlib)

# Globals of who imports, name, what follows `import` in `from ... import`, and the level of a relative one.
Import = Tuple[Any, str, Any, int]


class Exit(NamedTuple):
    """A call of `atexit.register`, with the module that made it."""

    owner: str
    function: Callable[..., Any]
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]


class Needs(NamedTuple):
    """Which modules a module imports, in that order, and the top-level names that nobody could import."""

    of: Dict[str, List[str]]
    missing: Set[str]


def needs(imports: List[Import]) -> Needs:
    """Read the log of `inject/sitecustomize`. Torch's own modules count as one: they come together."""
    found: Dict[str, Dict[str, None]] = {}
    missing: Set[str] = set()
    modules = sys.modules
    for variables, name, names, level in imports:
        importer = variables.get("__name__", "") if variables else ""
        top = name.partition(".")[0]
        if level == 0 and top not in modules:
            missing.add(top)
        elif not importer.startswith(WHOLE) or (not level and not top.startswith(WHOLE)):
            known = found.setdefault(WHOLE if importer.startswith(WHOLE) else importer, {})
            if level:
                package = variables.get("__package__") or importer
                above = package.rsplit(".", level - 1)[0] if level > 1 else package
                name = above + "." + name if name else above
            known[name] = None
            for each in names or ():
                if name + "." + each in modules:
                    known[name + "." + each] = None
    return Needs({importer: list(known) for importer, known in found.items()}, missing)


class Recorder:
    """Notes, while modules are imported, what is to be called at the end and which filters of warnings are added."""

    def __init__(self) -> None:
        self._exits: List[Exit] = []
        self._filters: List[Tuple[str, Any]] = []
        self._finalizers: Dict[Any, Any] = {}
        self._known: List[Any] = []

    def __enter__(self) -> Recorder:
        self._replaced = [
            (atexit, "register", atexit.register, self._registering(atexit.register)),
            (warnings, "filterwarnings", warnings.filterwarnings, self._filtering(warnings.filterwarnings)),
            (warnings, "simplefilter", warnings.simplefilter, self._filtering(warnings.simplefilter)),
        ]
        self._known = list(warnings.filters)
        for module, name, _, ours in self._replaced:
            setattr(module, name, ours)
        return self

    def __exit__(self, *_: Any) -> None:
        theirs = {id(ours): original for _, _, original, ours in self._replaced}
        for module in list(sys.modules.values()):  # `from atexit import register`, too
            variables = getattr(module, "__dict__", {})
            for name in [name for name, value in variables.items() if id(value) in theirs]:
                variables[name] = theirs[id(variables[name])]

    def _registering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
            original(function, *args, **kwargs)
            caller = sys._getframe(1).f_globals
            owner = caller.get("__name__", "")
            # It was torch that made the first finalizer, and a module in C shows as the import itself.
            if function == weakref.finalize._exitfunc or caller is _MACHINERY:  # type: ignore[attr-defined]
                owner = WHOLE
            self._exits.append(Exit(owner, function, args, kwargs))
            return function

        return register

    def _filtering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def add_filter(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            owner = sys._getframe(1).f_globals.get("__name__", "")
            self._filters += [(owner, item) for item in warnings.filters if item not in self._known]
            self._known = list(warnings.filters)

        return add_filter

    def take_back(self) -> None:
        """Have nothing happen at the end for modules that the script has not imported, and warnings be shown as Python
        alone would."""
        for each in self._exits:
            atexit.unregister(each.function)
        self._filters = [(owner, item) for owner, item in self._filters if item in warnings.filters]
        theirs = [item for _, item in self._filters]  # without those that were for a moment only
        warnings.filters[:] = [item for item in warnings.filters if item not in theirs]  # type: ignore[index]
        _filters_changed()
        finalize: Any = weakref.finalize
        # As a whole: who writes into each finalizer has a copy of each page that one lies in.
        self._finalizers, finalize._registry = finalize._registry, {}
        finalize._registered_with_atexit = False
        ends = getattr(threading, "_threading_atexits", [])
        self._exits[:0] = [Exit(THREAD_POOLS, end, (), {}) for end in ends]
        del ends[:]

    def bring_back(self, names: Container[str]) -> None:
        """Do what the import of these modules has done. With torch comes all that is left."""
        everything = WHOLE in names
        exits, self._exits = self._exits, []
        finalize: Any = weakref.finalize
        for each in exits:
            if not everything and each.owner not in names:
                self._exits.append(each)
            elif each.owner == THREAD_POOLS:
                threading._threading_atexits.append(each.function)  # type: ignore[attr-defined]
            elif each.function != finalize._exitfunc or not finalize._registered_with_atexit:
                atexit.register(each.function, *each.args, **each.kwargs)
        fresh = [item for owner, item in self._filters if everything or owner in names]
        self._filters = [(owner, item) for owner, item in self._filters if item not in fresh]
        if fresh:
            warnings.filters[:0] = reversed(fresh)  # type: ignore[index]
            _filters_changed()
        if everything:
            self._finalizers.update(finalize._registry)
            finalize._registry = self._finalizers
            finalize._registered_with_atexit = True


def _filters_changed() -> None:
    """Have Python look at `warnings.filters` again."""
    changed = getattr(warnings, "_filters_mutated", None)
    if changed is not None:
        changed()
    else:  # Python 3.14
        with warnings._lock:  # type: ignore[attr-defined]
            warnings._filters_mutated_lock_held()  # type: ignore[attr-defined]

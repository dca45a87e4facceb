"""Runs in: workers. Calls us back when the script has imported a module; we import none of torch ourselves."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, List, Optional, Sequence

from safelaunch.worker import import_hooks


def call_after_import(name: str, patch: Callable[[Any], None]) -> None:
    """Call `patch(module)` once, when the named module has been executed, or now if it has been already. A patch that
    fails is left out, with one warning: the script must not notice."""
    if name in sys.modules:
        attempt(patch, sys.modules[name])
        return
    if not _PATCHES:
        import_hooks.add(_find_spec)
    _PATCHES.setdefault(name, []).append(patch)


def attempt(function: Callable, *args: Any) -> Any:  # type: ignore[type-arg]
    """Call a part of ours that may be missing from this torch; its failure is told once and costs nothing else."""
    try:
        return function(*args)
    except Exception as error:
        off(getattr(function, "func", function).__name__, error)  # a partial has no name of its own
        return None


def off(what: str, error: object) -> None:
    """Tell, once for each `what`, that a part of the watching is off in this rank."""
    if what not in _TOLD and all(map(os.path.isdir, _WITHOUT)):
        _TOLD.append(what)
        try:
            sys.stderr.write("safelaunch: warning[SL902]: %s is off in this rank: %r\n" % (what, error))
        except Exception:
            pass  # the script may have closed it


def silent_without(folder: str) -> None:
    """Tell nothing once that folder is gone, and whoever watched: the program lives on for itself."""
    _WITHOUT.append(folder)


_TOLD: List[str] = []
_WITHOUT: List[str] = []


_PATCHES: Dict[str, List[Callable[[Any], None]]] = {}
_LOOKS: List[Callable[[], None]] = []


def call_at_imports(look: Callable[[], None]) -> None:
    """Call `look()` whenever a module is looked for, as long as we wait for one: before torch is there no thread of
    ours is."""
    _LOOKS.append(look)


def _find_spec(name: str, path: Optional[Sequence[str]], target: Any) -> Optional[ModuleSpec]:
    for look in _LOOKS:
        look()
    patches = _PATCHES.pop(name, None)
    if patches is None:
        return None
    if not _PATCHES:
        import_hooks.remove(_find_spec)
    spec = import_hooks.ordinary(name, path, target)
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        for patch in patches:
            attempt(patch, module)

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec

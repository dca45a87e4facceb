"""Runs in: workers. Asks us before Python looks for a module.

`sys.meta_path` stays what it is without us, since scripts print it, change it and count in it: what is asked is the
finder of built-in modules, the first one that Python has of its own, behind those of the environment and of the script.
"""

from __future__ import annotations

import sys
from importlib.machinery import BuiltinImporter, ModuleSpec
from typing import Any, Callable, List, Optional, Sequence

# Takes name, path and target, as `find_spec` of a finder does, and gives a spec, or None to have others asked.
Hook = Callable[[str, Optional[Sequence[str]], Any], Optional[ModuleSpec]]

_HOOKS: List[Hook] = []
_ORIGINAL = vars(BuiltinImporter)["find_spec"]
_find_built_in = BuiltinImporter.find_spec


def add(hook: Hook) -> None:
    """Have a hook asked from now on, before those that were there."""
    if not _HOOKS:
        BuiltinImporter.find_spec = staticmethod(_find_spec)  # type: ignore[method-assign, assignment]
    _HOOKS.insert(0, hook)


def remove(hook: Hook) -> None:
    """Ask it no more."""
    if hook in _HOOKS:
        _HOOKS.remove(hook)
    if not _HOOKS:
        BuiltinImporter.find_spec = _ORIGINAL  # type: ignore[method-assign]


def ordinary(name: str, path: Optional[Sequence[str]], target: Any) -> Optional[ModuleSpec]:
    """What is found without us from here on; the finders before that have been asked."""
    found = _find_built_in(name, path, target)
    rest = list(sys.meta_path)
    if BuiltinImporter in rest:
        del rest[: rest.index(BuiltinImporter) + 1]
    for finder in rest:
        if found is not None:
            break
        found = finder.find_spec(name, path, target)
    return found


def _find_spec(name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Optional[ModuleSpec]:
    for hook in list(_HOOKS):
        found = hook(name, path, target)
        if found is not None:
            return found
    return _find_built_in(name, path, target)

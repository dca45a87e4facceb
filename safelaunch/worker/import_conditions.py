"""Runs in: ranks that were forked. What an import looks at beside the files of its modules, and whether the script has
changed it since the fork: then what was imported before is not what the script would have got.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import sys
from importlib.machinery import all_suffixes
from typing import Any, Container, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from safelaunch import import_variables
from safelaunch.worker import import_log, loggers
from safelaunch.worker.cold_rank import Beginning
from safelaunch.worker.import_log import WHOLE

AT_HAND = ("os", "io", "abc", "codecs")  # what every script has, and libraries take functions from
SUFFIXES = tuple(all_suffixes())
HOOKS = ("excepthook", "showwarning", "formatwarning")  # made to be replaced, and looked up whenever they are called


MADE_BY_CYTHON = ("cython_runtime", "_cython_")  # by each extension of Cython, of whatever package: nobody imports it
ENTRY_POINTS = "[torch.backends]"  # of packages that torch calls when it is imported

STANDARD = frozenset(getattr(sys, "stdlib_module_names", ()))


class Forked(NamedTuple):
    """What a rank has from its fork server.

    `needs` and `recorder` are what the imports there have done, `more` is whether more than torch was asked for.
    `beginning` is for a rank that starts again.
    """

    needs: import_log.Needs
    recorder: import_log.Recorder
    more: bool
    beginning: Beginning


class Conditions:
    """What the imports have looked at, as it was when the script began.

    Args:
        forked: from the fork server.
        modules: what it had imported.
        packages: those among their names that are of packages of others.
        hidden: the loggers and handlers that they have made.
    """

    def __init__(
        self, forked: Forked, modules: Dict[str, Any], packages: Sequence[str], hidden: loggers.Hidden
    ) -> None:
        self.forked = forked
        self._modules = modules
        self._environ = _environ()
        self._cpus = os.sched_getaffinity(0)
        self._finders = [*sys.meta_path, *sys.path_hooks]
        self._path = list(sys.path)
        self._flags = sys.getdlopenflags()
        self._depth = sys.getrecursionlimit()
        self._streams = sys.stdin, sys.stdout, sys.stderr
        # Packages read variables that begin with their own names.
        self._packages = tuple(name.upper() + "_" for name in packages if not name.startswith(WHOLE))
        self._import = builtins.__import__
        self._functions: Dict[str, Dict[str, Any]] = {}
        self._methods: Dict[str, Tuple[Any, Dict[str, Any]]] = {}  # of classes
        self._loggers = hidden
        self.given(AT_HAND)

    def given(self, names: Sequence[str]) -> None:
        """These modules are the script's from now on."""
        packages = {name.partition(".")[0] for name in names}
        loggers.show(self._loggers, None if WHOLE in packages else packages)
        for name in names if WHOLE not in names else ():  # nothing is compared after torch
            self._functions[name] = _functions(getattr(sys.modules[name], "__dict__", {}))
            for key, value in self._functions[name].items():
                if isinstance(value, type) and value.__module__ == name:
                    self._methods[name + "." + key] = value, _functions(vars(value))

    def changed(self, names: Sequence[str]) -> str:
        """What the script has changed that matters to the import of these modules; empty where nothing was.

        Args:
            names: all that are to come.
        """
        for found in (self._variables(), self._process(), self._search(names), self._replaced(names)):
            for what in found:
                return what
        return ""

    def _variables(self) -> Iterator[str]:
        now = _environ()
        for name in sorted({*now, *self._environ}):
            read = name.startswith(self._packages) or import_variables.is_read(name, self.forked.more)
            if read and now.get(name) != self._environ.get(name):
                yield "sets %s" % name if name in now else "deletes %s" % name

    def _process(self) -> Iterator[str]:
        if os.sched_getaffinity(0) != self._cpus:
            yield "sets the CPUs of its process"
        if any(a is not b for a, b in zip(self._streams, (sys.stdin, sys.stdout, sys.stderr))):  # noqa: B905
            yield "replaces sys.stdin, sys.stdout or sys.stderr"
        if self.forked.beginning.is_audited():
            yield "adds an audit hook"
        if sys.getrecursionlimit() < self._depth:
            yield "lowers the recursion limit"
        if sys.getdlopenflags() != self._flags:
            yield "calls sys.setdlopenflags"
        if sys.gettrace() is not None or sys.getprofile() is not None:
            yield "starts a tracer or a profiler"
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is not None and any(map(monitoring.get_tool, range(6))):
            yield "starts a tracer or a profiler"

    def _search(self, names: Sequence[str]) -> Iterator[str]:
        finders = [*sys.meta_path, *sys.path_hooks]
        if list(map(id, finders)) != list(map(id, self._finders)):
            yield "changes sys.meta_path or sys.path_hooks"
        if builtins.__import__ is not self._import:
            yield "replaces __import__"
        known = [entry for entry in sys.path if entry in self._path]
        if known != self._path:
            yield "takes folders out of sys.path"
        wanted = {name.partition(".")[0] for name in names} | self.forked.needs.missing
        first = sys.path.index(self._path[0]) if self._path else 0
        for place, entry in enumerate(sys.path):
            if entry not in self._path:
                # What nobody could import, torch finds in any place.
                missing = self.forked.needs.missing
                own = own_module(entry or os.getcwd(), wanted if place < first else missing, missing)
                if own:
                    yield "has a module %s of its own in %s" % (own, entry or os.getcwd())
                plugin = own_plugin(entry or os.getcwd()) if WHOLE in wanted else ""
                if plugin:
                    yield "puts the plugin of torch %s into sys.path" % plugin

    def _replaced(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            if name in sys.modules and sys.modules[name] is not self._modules[name]:
                if name.startswith(MADE_BY_CYTHON):
                    continue
                yield "puts another module %s into sys.modules" % name
        for name in self.forked.needs.missing:
            if name in sys.modules and not name.startswith(MADE_BY_CYTHON):
                yield "puts a module %s into sys.modules" % name
        for name, functions in self._functions.items():
            variables = getattr(sys.modules.get(name), "__dict__", {})
            for key, value in functions.items():
                if variables.get(key) is not value:
                    yield "replaces %s.%s" % (name, key)
        for name, (kind, methods) in self._methods.items():
            for key, value in methods.items():
                if vars(kind).get(key) is not value:
                    yield "replaces %s.%s" % (name, key)
        if getattr(sys.modules.get("typing"), "TYPE_CHECKING", False):
            yield "sets typing.TYPE_CHECKING"
        made = loggers.made(self._loggers)
        if made and WHOLE in names:
            yield "makes the logger %s" % made


def _functions(variables: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in variables.items() if callable(value) and key not in HOOKS}


def _environ() -> Dict[str, Tuple[Optional[str], Optional[str]]]:
    """The variables as C sees them, and as Python does: `os.putenv` says nothing to `os.environ`, and code in C reads
    only the first."""
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found: Dict[str, str] = {}
    number = 0
    while environ and environ[number] is not None:
        name, _, value = os.fsdecode(environ[number]).partition("=")
        found.setdefault(name, value)
        number += 1
    return {name: (found.get(name), os.environ.get(name)) for name in {*found, *os.environ}}


def own_plugin(folder: str) -> str:
    """The package that `pip` has noted down in a folder of `sys.path`, and that torch calls when it is imported; "" for
    none."""
    try:
        packages = [entry for entry in sorted(os.listdir(folder)) if entry.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return ""  # no folder
    for package in packages:
        try:
            with open(os.path.join(folder, package, "entry_points.txt"), errors="replace") as file:
                if ENTRY_POINTS in file.read():
                    return package
        except OSError:
            pass
    return ""


def own_module(folder: str, names: Container[str], namespaces: Container[str] = ()) -> str:
    """The first of these modules that an import finds in a folder; "" for none.

    Args:
        folder: an entry of `sys.path`.
        names: of top-level modules.
        namespaces: names for which a folder without `__init__.py` will do, since no other place has them.
    """
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return ""  # no folder
    for entry in entries:
        name = entry.partition(".")[0]
        if name not in names:
            continue
        path = os.path.join(folder, entry)
        if entry.endswith(SUFFIXES) or (entry == name and os.path.isfile(os.path.join(path, "__init__.py"))):
            return name
        if entry == name and name in namespaces and os.path.isdir(path):
            return name
    return ""

"""Runs in: ranks, before the script. Modules that are in memory already, and that the script finds only where it
imports them: in `sys.modules`, and in their packages.

So a script cannot tell that its rank was forked from a process that had imported torch, and what we use ourselves does
not come before a module of the script's own that has the same name. A module comes with those that it needs; torch,
which has state in C++, brings all that was loaded for it. Before anything from outside of Python's own library comes,
`import_conditions` compares: where the script has changed what an import looks at, the rank starts again without a
fork, or one line is told (`cold_rank`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from safelaunch.worker import import_hooks, import_log, loggers, progress, registries
from safelaunch.worker.after_import import attempt
from safelaunch.worker.import_conditions import STANDARD, Conditions, Forked
from safelaunch.worker.import_log import WHOLE

OURS = "safelaunch"
MAIN_OF_CHILDREN = "__mp_main__"  # another name of `__main__`, which multiprocessing gives to it


def hide(before: FrozenSet[str], imports: List[import_log.Import]) -> None:
    """Take the modules out of `sys.modules` that came after `before`, in a rank that has started by itself.

    Args:
        before: the names of the modules that Python had loaded by itself.
        imports: the log of the imports since then.
    """
    Deferred(before, import_log.needs(imports)).hide()


class Deferred:
    """Modules that wait for their import.

    What is looked at, and taken out, before the ranks are forked is memory that they go on to share.

    Args:
        before: the names of the modules that Python had loaded by itself, which stay.
        needs: what the imports since then have done.
        ours: in a fork server, the modules that it had imported for itself before all others; all the others come with
            torch.
    """

    def __init__(self, before: FrozenSet[str], needs: import_log.Needs, ours: Optional[FrozenSet[str]] = None) -> None:
        if getattr(sys.modules.get("tempfile"), "tempdir", None) is not None:
            _ASKED_FOR_TEMPORARY.append(True)
        stay = {*before, "__main__", "sitecustomize", MAIN_OF_CHILDREN}
        self._needs = needs.of
        self._forked: Optional[Forked] = None
        self._conditions: Optional[Conditions] = None
        # The names are made anew, side by side: a rank that takes the modules writes into fewer pages.
        names = [name.encode().decode() for name in sys.modules if name not in stay]
        self._modules = {name: sys.modules[name] for name in names}
        # Never to be deleted: what the script does not import is not its own to take apart at its end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._modules))
        self._packages = [name for name in names if "." not in name and not is_standard(name)]
        self._aliases = self._find_aliases()
        self._attributes = dict(self._find_attributes())
        main = sys.modules["__main__"]
        self._holding_main = [
            (name, variable)
            for name, module in self._modules.items()
            for variable, value in getattr(module, "__dict__", {}).items()
            if value is main
        ]
        self._loggers = loggers.Hidden({}, [])
        self._registries: registries.Hidden = {}
        self._early = False  # whether a module was imported before the script began, by us
        self._whole: Optional[List[str]] = None
        if ours is not None:
            needed = set(self._with_needs(WHOLE))
            self._whole = [name for name in names if name in needed or name not in ours]

    def hide(self) -> None:
        """Take them out of `sys.modules`, and out of packages that they have been imported into by others; from here on
        each is given where it is imported."""
        self._take_out()
        import_hooks.add(self.find_spec)
        if self._whole is not None:
            self._loggers = loggers.hide()
            self._registries = registries.hide()

    def bring_back(self) -> None:
        """Undo `hide`, in a process of the fork server's that is to be no rank."""
        import_hooks.remove(self.find_spec)
        loggers.show(self._loggers)
        registries.show(self._registries)
        sys.modules.update(self._modules)
        for package, name, module in self._attributes.values():
            setattr(package, name, module)

    def begin(self, forked: Forked) -> None:
        """Let the script of a rank begin that was forked.

        Args:
            forked: what the fork server has found when it imported the modules.
        """
        if self._early:
            self._take_out()
        self._forked = forked
        self._conditions = Conditions(forked, self._modules, self._packages, self._loggers)

    def let_go(self) -> None:
        """Let the script's own module be deleted at its end, where what it has not imported refers to it (dill does):
        else Python empties the modules first that its objects need to finish their files."""
        for name, variable in self._holding_main:
            if name in self._modules:
                vars(self._modules[name]).pop(variable, None)

    def _take_out(self) -> None:
        sys.modules.pop(MAIN_OF_CHILDREN, None)
        for package, name, _ in self._attributes.values():
            vars(package).pop(name, None)
        for name in self._modules:
            if name in sys.modules:
                del sys.modules[name]
        progress.count_modules()

    def _find_aliases(self) -> Dict[str, List[str]]:
        """Names that no import asks for: a module gives them to others, or to what is no module."""
        found: Dict[str, List[str]] = {}
        for name, module in self._modules.items():
            spec = getattr(module, "__spec__", None)
            if spec is None or spec.name != name:
                found.setdefault(name.rpartition(".")[0], []).append(name)
        return found

    def _find_attributes(self) -> Iterator[Tuple[str, Tuple[Any, str, Any]]]:
        """What stands for modules, by their names, in their packages, which the import of the package alone has not put
        there."""
        for name in filter(is_standard, self._modules):
            package, _, last = name.rpartition(".")
            # A package may itself use those that come with it, and functions of it are in use already.
            comes_later = name not in self._needs.get(package, ()) and name not in self._aliases.get(package, ())
            above = sys.modules.get(package)
            if comes_later and getattr(above, last, None) is self._modules[name]:
                yield name, (above, last, self._modules[name])

    # ------------------------------------------------------------------------------------------- finding

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any) -> Optional[ModuleSpec]:
        """The spec of a module that waits, as it is found without us, but with what we have behind its loader."""
        module = self._modules.get(name)
        if module is None or name in sys.modules:  # reloaded
            return None
        kept = getattr(module, "__spec__", None)
        spec = import_hooks.ordinary(name, path, target)
        if spec is None and name.partition(".")[0] == OURS:
            spec = kept  # not installed where this Python looks
        if spec is None:
            return None  # the script has it not be found, for now: nothing in C may be loaded twice
        execute = spec.loader.exec_module if spec.loader is not None else None
        if kept is None or spec.origin != kept.origin:
            return self._another(name, spec, execute)
        loader: Any = _Loader() if spec.loader is None or isinstance(spec.loader, type) else _copy(spec.loader)
        loader.create_module = lambda _: module
        loader.exec_module = lambda made: self._execute(name, module, made, kept, execute)
        found: ModuleSpec = _copy(spec)
        found.loader = loader
        return found

    def _another(self, name: str, spec: ModuleSpec, execute: Optional[Callable[[Any], None]]) -> ModuleSpec:
        """The spec of a module of the script's own, which comes in the place of one that waits."""
        if is_standard(name) or self._forked is None:
            self._forget(name)
            return spec
        beginning = self._forked.beginning

        def exec_module(made: Any) -> None:
            beginning.start_over("puts a module %s of its own in front" % name, name)
            self._forget(name)
            if execute is not None:
                execute(made)

        found: ModuleSpec = _copy(spec)
        loader: Any = _Loader() if spec.loader is None else _copy(spec.loader)
        loader.exec_module = exec_module
        found.loader = loader
        return found

    def _forget(self, name: str) -> None:
        """The script has a module of that name: what needs it is to be imported anew."""
        gone, latest = {name}, {name}
        while latest:
            latest = {each for each in self._modules if each not in gone and self._rests_on(each, gone)}
            gone |= latest
        for each in gone:
            self._modules.pop(each, None)

    def _rests_on(self, name: str, gone: Set[str]) -> bool:
        # Torch cannot be loaded twice: whether it may be given is for the conditions to say.
        needs = not name.startswith(WHOLE) and not gone.isdisjoint(self._needs.get(name, ()))
        return needs or name.rpartition(".")[0] in gone

    def _execute(
        self, name: str, module: Any, made: Any, kept: ModuleSpec, execute: Optional[Callable[[Any], None]]
    ) -> None:
        if made is not module:  # somebody loads a copy by hand
            if execute is not None:
                execute(made)
            return
        module.__spec__ = kept
        if name not in self._modules or sys.modules.get(name) is not module:  # the same by hand
            return
        names = self._with_needs(name)
        if self._conditions is not None and not all(map(is_standard, names)):
            changed = attempt(self._conditions.changed, names)
            if changed:
                self._forked.beginning.start_over(changed, name)  # type: ignore[union-attr]
        self._give(names)

    # -------------------------------------------------------------------------------------------- giving

    def _with_needs(self, name: str) -> List[str]:
        """The modules that come with this one, in the order in which Python has done with them."""
        if name == WHOLE and self._whole is not None:
            return [each for each in self._whole if each in self._modules]
        order: List[str] = []
        seen = set()

        def visit(name: str) -> None:
            if name not in self._modules or name in seen:
                return
            seen.add(name)
            visit(name.rpartition(".")[0])
            for need in self._needs.get(name, ()):
                visit(need)
            for alias in self._aliases.get(name, ()):
                visit(alias)
            order.append(name)

        visit(name)
        if WHOLE in order and self._whole is not None:
            return [each for each in self._modules if each in seen or each in self._whole]
        return order

    def _give(self, names: List[str]) -> None:
        if self._whole is not None and self._forked is None:  # not to the script, and only until it begins
            sys.modules.update((name, self._modules[name]) for name in names)
            self._early = True
            return
        for name in names:
            module = self._modules.pop(name, None)
            if module is not None:  # else another thread was faster
                sys.modules.setdefault(name, module)
        for name in names:
            if name in self._attributes:
                package, last, module = self._attributes[name]
                if package is sys.modules.get(name.rpartition(".")[0]) and not hasattr(package, last):
                    setattr(package, last, module)
        given = frozenset(names)
        if "multiprocessing" in given:
            sys.modules[MAIN_OF_CHILDREN] = sys.modules["__main__"]
        if self._conditions is not None and self._forked is not None:
            packages = {name.partition(".")[0] for name in names}
            attempt(registries.show, self._registries, None if WHOLE in packages else packages)
            attempt(self._forked.recorder.bring_back, given)
            attempt(self._conditions.given, names)
            if WHOLE in given:
                self._forked.beginning.is_over()
                self._conditions = None  # what is left is Python's own
        for name, renew in _RENEWED.items():
            if name in given and sys.modules[name] is not None:  # the script may have had it not be found
                attempt(renew, sys.modules[name])
        if not self._modules:
            import_hooks.remove(self.find_spec)


class _Loader:
    """Stands where Python has a class, or nothing: in built-in and frozen modules, and in namespaces."""

    exec_module: Any

    def create_module(self, spec: ModuleSpec) -> Any:
        """None: Python makes it."""


def _copy(thing: Any) -> Any:
    made = object.__new__(type(thing))  # the module `copy` may itself be waiting
    vars(made).update(vars(thing))
    return made


def is_standard(name: str) -> bool:
    """Whether a module is one of Python's own, or of ours: its import looks at nothing that the script may change."""
    top = name.partition(".")[0]
    return top in STANDARD or top == OURS


# ------------------------------------------------------------------- what a process draws for itself at an import


def _logging(module: Any) -> None:
    module._startTime = time.time_ns() if isinstance(module._startTime, int) else time.time()  # Python 3.13


def _tempfile(module: Any) -> None:
    module.tempdir = None  # asked for again, of the TMPDIR of now
    module._name_sequence = None


def _process(module: Any) -> None:
    module.current_process().authkey = os.urandom(32)
    module.ORIGINAL_DIR = os.path.abspath(os.getcwd())


def _numpy(module: Any) -> None:
    module.seed()


def _torch(module: Any) -> None:
    module.default_generator.seed()
    # Whether its import asks, and so has the answer kept, depends on what else is installed.
    if _ASKED_FOR_TEMPORARY:
        sys.modules["tempfile"].gettempdir()


_ASKED_FOR_TEMPORARY: List[bool] = []
_RENEWED: Dict[str, Callable[[Any], None]] = {
    "logging": _logging,
    "tempfile": _tempfile,
    "multiprocessing.process": _process,
    "numpy.random": _numpy,
    "torch": _torch,
}

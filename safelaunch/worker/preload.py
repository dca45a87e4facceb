"""Runs in: the fork server. Imports what the ranks are to find in memory, and looks for what a rank would notice."""

from __future__ import annotations

import _frozen_importlib
import gc
import importlib
import importlib.machinery
import os
import re
import sys
from types import ModuleType
from typing import Any, Callable, FrozenSet, Iterator, Sequence

from safelaunch.worker.import_conditions import own_module, own_plugin

DEVICE = re.compile(r"/dev/(?:nvidia|kfd|dri/|accel)")
# cuDeviceGetCount's answer before cuInit (CUDA Driver API, CUDA_ERROR_NOT_INITIALIZED): asking does not initialise.
NOT_INITIALIZED = 3
OF_DISTRIBUTION = re.compile(r"/usr/lib(?:64)?/python|/etc/python")  # Debian's reports crashes of its own packages
MODULES = 1500  # torch 2.13 has 1,069, with all that it imports
QUOTED = 300  # bytes of what an import prints


class Cold(BaseException):
    """Why ranks cannot be forked from here without anybody noticing. No text: somebody else will tell."""


def possible() -> None:
    """Look for what speaks against a fork server before anything is imported.

    Raises:
        Cold: where the system has not what it needs (Linux before 5.3, a sandbox that forbids it, a Python built for an
            old libc), or the environment has a program of its own to run first.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("safelaunch"))
    except (AttributeError, OSError) as error:
        raise Cold("this system has no pidfd_open or memfd_create: %s" % error) from error
    asked = [name for name in ("PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE", "PYTHONTRACEMALLOC") if os.environ.get(name)]
    if asked or sys.flags.verbose or {"importtime", "tracemalloc"}.intersection(sys._xoptions):
        raise Cold("Python is to tell of its imports (%s)" % (asked[0] if asked else "-X or -v"))
    site = customized()
    if site:
        raise Cold("%s is to be run before torch is imported" % site)


def load(names: Sequence[str]) -> FrozenSet[str]:
    """Import modules; returns the top-level names that have come with them.

    Args:
        names: of the modules; the first one is torch.

    Raises:
        Cold: where one cannot be imported, or prints something: that is for the ranks to do.
    """
    before, environ = set(sys.modules), dict(os.environ)
    streams = os.dup(1), os.dup(2)
    said = os.memfd_create("safelaunch")
    name = ""
    metadata = importlib.import_module("importlib.metadata")  # which torch imports, too
    load, metadata.EntryPoint.load = metadata.EntryPoint.load, _is_foreign
    machinery: Any = _frozen_importlib
    new_module, machinery._new_module = machinery._new_module, _side_by_side()
    try:
        for descriptor in (1, 2):
            os.dup2(said, descriptor)
        gc.disable()  # of what torch makes while it is imported, next to nothing is garbage
        for name in names:
            importlib.import_module(name)
            if uses_gpu():
                raise Cold("importing %s uses a GPU, which processes that are forked then cannot" % name)
            if name == names[0]:
                gc.freeze()  # else the next object that is made has the collector look at all of these
                gc.enable()
    except Cold:
        raise
    except BaseException as error:
        # That torch is not there is for the agent to say.
        raise Cold("" if name == names[0] else "%s cannot be imported: %r" % (name, error)) from error
    finally:
        metadata.EntryPoint.load = load
        machinery._new_module = new_module
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for descriptor, kept in enumerate(streams, 1):
            os.dup2(kept, descriptor)
            os.close(kept)
        text = os.pread(said, QUOTED, 0).decode("utf-8", "replace").strip()
        os.close(said)
    if text:
        raise Cold("importing %s prints: %s" % (" and ".join(names), text.splitlines()[0]))
    changed = sorted(name for name in {*environ, *os.environ} if environ.get(name) != os.environ.get(name))
    if changed:
        raise Cold("importing %s sets %s" % (" and ".join(names), ", ".join(changed)))
    return frozenset(module.partition(".")[0] for module in set(sys.modules) - before)


def _side_by_side() -> Callable[[str], ModuleType]:
    """Makes modules as Python's own import does, but beforehand, so that they lie together in memory: a rank that
    imports torch writes a count into each, and has a copy of each page that it writes into."""
    made = [ModuleType.__new__(ModuleType) for _ in range(MODULES)]

    def new_module(name: str) -> ModuleType:
        module = made.pop() if made else ModuleType.__new__(ModuleType)
        module.__init__(name)  # type: ignore[misc]
        return module

    return new_module


def _is_foreign(entry: Any) -> Any:
    """Stands for the way in which torch loads backends that others have installed."""
    raise Cold("torch is to import %s of another package" % entry.value)


def check(beside: str, names: FrozenSet[str]) -> None:
    """Look for what a rank would notice, and for what a fork breaks.

    Args:
        beside: the folder that comes first on the script's `sys.path`.
        names: top-level modules that have been imported without it.

    Raises:
        Cold: where there is such a thing.
    """
    own = shadow(beside, names)
    if own:
        raise Cold("the script has a module %s of its own" % own)
    plugin = own_plugin(beside)
    if plugin:
        raise Cold("torch is to import the plugin %s in the script's folder" % plugin)
    if sys.gettrace() is not None or sys.getprofile() is not None:
        raise Cold("a tracer or a profiler is at work")
    if threads() > 1:
        # OpenBLAS ends its threads before a fork (pthread_atfork), and starts others when it has work for them.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    if threads() > 1:
        raise Cold("%d threads are alive after the imports" % threads())


def uses_gpu() -> bool:
    """Whether this process has used a GPU's driver: has one of its devices open, has initialised CUDA's driver, or has
    told torch to refuse a GPU to what is forked. A program that calls `torch.cuda.is_available()` does so, but where
    PYTORCH_NVML_BASED_CUDA_CHECK is set."""
    if any(map(DEVICE.match, _open_files())):
        return True
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return True
    with open("/proc/self/maps") as maps:
        drivers = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/libcuda.so" in line}
    import ctypes  # as torch has done

    for path in drivers:
        count = getattr(ctypes.CDLL(path), "cuDeviceGetCount", None)
        if count is None or count(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED:
            return True
    return False


def customized() -> str:
    """The file of a sitecustomize or usercustomize of the environment's own, which may set what torch reads; "" for
    none but that of a Linux distribution."""
    names = ["sitecustomize"]
    if sys.modules["site"].ENABLE_USER_SITE:
        names.append("usercustomize")
    for name in names:
        spec = importlib.machinery.PathFinder.find_spec(name, sys.path)
        if spec is not None and spec.origin and not OF_DISTRIBUTION.match(spec.origin):
            return spec.origin
    return ""


def _open_files() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink("/proc/self/fd/" + descriptor)
        except OSError:
            pass  # that of the listing itself


def shadow(beside: str, names: FrozenSet[str]) -> str:
    """A module of the user's that a cold start would import in place of one that has been imported; "" for none."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in names}
    others = {name for name in names if os.path.dirname(files[name]) not in (beside, os.path.join(beside, name))}
    return own_module(beside, others)


def threads() -> int:
    """How many threads this process has, those of libraries among them."""
    return len(os.listdir("/proc/self/task"))

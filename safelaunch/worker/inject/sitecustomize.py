"""Python imports this module at start-up because the agent puts this folder on PYTHONPATH of every worker.

The command line of a worker stays the user's own (`python -u train.py`), so `__main__`, `sys.argv`, `sys.path`,
pickling and `ps` are exactly as under torchrun. This folder leaves PYTHONPATH and `sys.path` again before the
script runs, and a sitecustomize of the environment that it hides is run in its place.
"""

import os
import sys


def _arm():  # type: ignore[no-untyped-def]
    """Arm this process. Returns what is to be called at the end, if anything: a process that was started as a fork
    server comes back as a rank, or as the agent."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    _leave_path(here)
    forked = "SAFELAUNCH_FORK_SERVER" in os.environ
    program = None
    if forked:
        program = _from(root, "fork_server").serve(os.environ.pop("SAFELAUNCH_FORK_SERVER"))
        _leave_path(here)
    if "SAFELAUNCH_RANK_DIR" in os.environ:
        _from(root, "bootstrap").arm()
        if forked:
            _from(root, "ending").begin()
    return program


def _leave_path(here: str) -> None:
    # We are its first entry. An empty entry means the current directory, so the rest must stay letter for letter.
    first, separator, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == here:
        if separator:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]


def _from(root: str, name: str):  # type: ignore[no-untyped-def]
    sys.path.insert(0, root)
    try:
        import importlib

        return importlib.import_module("safelaunch.worker." + name)
    finally:
        sys.path.remove(root)


def _chain() -> None:
    """Run the sitecustomize that the environment would have had without us."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_program = None
try:
    _program = _arm()  # type: ignore[no-untyped-call]
except Exception as error:  # a worker must start whatever happens to us
    if os.environ.get("SAFELAUNCH_DEBUG"):
        sys.stderr.write("safelaunch: this worker runs unwatched: %r\n" % (error,))
_chain()
if _program is not None:
    _program()

"""Python imports this module at start-up because the agent puts this folder on PYTHONPATH of every worker.

The command line of a worker stays the user's own (`python -u train.py`), so `__main__`, `sys.argv`, `sys.path`,
pickling and `ps` are exactly as under torchrun. This folder leaves PYTHONPATH and `sys.path` again before the
script runs, a sitecustomize of the environment that it hides is run in its place, and what we have imported leaves
`sys.modules` until the script imports it itself.

Below `safelaunch exec` every Python comes here, of any version: this file is read by Python 2 as well. There the folder
stays on PYTHONPATH, for what is started further down, and nothing is loaded before the program imports torch.
"""

import os
import sys

_OLD = sys.version_info < (3, 8)  # nothing of ours runs there
if not _OLD:
    import _frozen_importlib
    import _frozen_importlib_external
    import builtins

    _BEFORE = frozenset(sys.modules)  # what Python itself has loaded by now
    _IMPORTS = []  # type: ignore[var-annotated]  # who imported what, from here on: see `import_log`
    _MACHINERY = vars(_frozen_importlib)
    _import = builtins.__import__


def _noted(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
    if globals is _MACHINERY:  # a module written in C imports
        _IMPORTS.append((_of_c(sys._getframe(1)), name, fromlist, level))  # type: ignore[no-untyped-call]
    elif globals and getattr(globals.get("__spec__"), "_initializing", False):  # what its functions import comes later
        _IMPORTS.append((globals, name, fromlist, level))
    return _import(name, globals, locals, fromlist, level)


def _of_c(frame):  # type: ignore[no-untyped-def]
    """The name of the module that is being loaded, in the shape of its globals."""
    while frame is not None and frame.f_globals is _MACHINERY:
        frame = frame.f_back
    variables = frame.f_locals if frame is not None else {}
    return {"__name__": getattr(variables.get("spec"), "name", "") or getattr(variables.get("module"), "__name__", "")}


def _arm():  # type: ignore[no-untyped-def]
    """Arm this process. Returns what is to be called at the end, if anything: a process that was started as a fork
    server comes back as a rank, or as the agent."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    program = begin = None
    launched = "SAFELAUNCH_FORK_SERVER" in os.environ or "SAFELAUNCH_RANK_DIR" in os.environ
    if "SAFELAUNCH_EXEC" in os.environ and not launched:
        _wait_for_torch(root, os.environ["SAFELAUNCH_EXEC"])  # type: ignore[no-untyped-call]
    else:
        _leave_path(here)  # type: ignore[no-untyped-call]
    if "SAFELAUNCH_FORK_SERVER" in os.environ:
        server = _from(root, "fork_server")  # type: ignore[no-untyped-call]
        program, begin = server.serve(os.environ.pop("SAFELAUNCH_FORK_SERVER"), _BEFORE, _IMPORTS)
        _leave_path(here)  # type: ignore[no-untyped-call]
    if begin is not None:
        builtins.__import__ = _import
        begin()
    elif "SAFELAUNCH_RANK_DIR" in os.environ:
        _from(root, "bootstrap").arm()  # type: ignore[no-untyped-call]
        deferred = _from(root, "deferred")  # type: ignore[no-untyped-call]
        builtins.__import__ = _import
        deferred.hide(_BEFORE, _IMPORTS)
    for entry in {here, root}.difference(sys.path):
        sys.path_importer_cache.pop(entry, None)
    return program


def _wait_for_torch(root, folder):  # type: ignore[no-untyped-def]
    """Below `safelaunch exec`: have the hooks made once the program imports torch, and not before. `sys.meta_path`
    stays what it is (see `import_hooks`)."""
    importer = _frozen_importlib.BuiltinImporter
    original, find, known = vars(importer)["find_spec"], importer.find_spec, list(sys.path)
    sign = os.path.join(folder, "armed")
    if os.path.isdir(folder) and not os.path.exists(sign):
        os.close(os.open(sign, os.O_WRONLY | os.O_CREAT, 0o600))

    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return find(name, path, target)
        importer.find_spec = original  # type: ignore[method-assign]
        before = list(sys.path)
        try:
            sys.path[:] = known  # a module of the program's own is not to come in the place of one that we need
            _from(root, "joining").prepare(folder)  # type: ignore[no-untyped-call]
        except Exception as error:
            _tell(error)  # type: ignore[no-untyped-call]
        finally:
            sys.path[:] = before
        return importer.find_spec(name, path, target)

    importer.find_spec = staticmethod(find_spec)  # type: ignore[method-assign, assignment]


def _leave_path(here):  # type: ignore[no-untyped-def]
    # We are its first entry. An empty entry means the current directory, so the rest must stay letter for letter.
    first, separator, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == here:
        if separator:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]


def _from(root, name):  # type: ignore[no-untyped-def]
    sys.path.insert(0, root)
    try:
        import importlib

        return importlib.import_module("safelaunch.worker." + name)
    finally:
        sys.path.remove(root)


def _chain():  # type: ignore[no-untyped-def]
    """Run the sitecustomize that the environment would have had without us; whether there is one."""
    # `importlib` itself is for the script to load.
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return False
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)
    return True


def _tell(error):  # type: ignore[no-untyped-def]
    if os.environ.get("SAFELAUNCH_DEBUG"):
        sys.stderr.write("safelaunch: this worker runs unwatched: %r\n" % (error,))


def _run():  # type: ignore[no-untyped-def]
    program = None
    builtins.__import__ = _noted
    try:
        program = _arm()  # type: ignore[no-untyped-call]
    except Exception as error:  # a worker must start whatever happens to us
        _tell(error)  # type: ignore[no-untyped-call]
    finally:
        builtins.__import__ = _import
    chained = _chain()  # type: ignore[no-untyped-call]
    if program is not None:
        program()
    if not chained:
        raise ImportError(name="sitecustomize")  # as without us: `site` takes this for "there is none"


def _step_aside():  # type: ignore[no-untyped-def]
    """The same for a Python that is too old for us: the other sitecustomize, or the error that there is none."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    __import__("sitecustomize")
    return own  # Python 2 empties a module that nobody holds any more


if _OLD:
    _step_aside()  # type: ignore[no-untyped-call]
else:
    _run()  # type: ignore[no-untyped-call]

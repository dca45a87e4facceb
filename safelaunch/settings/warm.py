"""Whether the ranks may be forked from a process that has imported torch, as far as it can be known before the start.

It is to be invisible to the script: what the import reads of the environment must be what a cold start would find.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping

from safelaunch import import_variables, regular
from safelaunch.model import RUN_PATH, Settings, WarmStart
from safelaunch.settings import cold_scripts, syntax

# Profilers of GPUs, by what they set for the processes that they follow. Nsight Systems records none that was forked
# and has called no exec, unless it is told to (`nsys profile --trace-fork-before-exec`).
PROFILER = re.compile(r"(?:CUDA|NVTX)_INJECTION64_PATH$|NSYS_|QUADD_|ROCP_TOOL_LIBRARIES$")
PROFILER_LIBRARY = re.compile(r"injection|nsight|rocprof", re.IGNORECASE)

MOST_FILES = 200  # of the user's own that are looked at
SETS = ("environ", "putenv")
# Drivers of which we cannot tell whether an import has used them: AMD's, and others that torch has a backend for. With
# NVIDIA's a process may be forked until it calls cuInit (CUDA C++ Programming Guide; torch's notes on multiprocessing),
# and `worker.preload.uses_gpu` asks for that.
UNKNOWN_DRIVERS = ("/dev/kfd", "/dev/accel")


def start(settings: Settings, environ: Mapping[str, str]) -> WarmStart | str:
    """How to start the fork server, or why the start is cold (empty where nobody would expect a warm one).

    Unless it is asked for, a start is warm where the node has NVIDIA's GPUs or none; the fork server then looks whether
    an import has used a GPU.

    Args:
        settings: of the launch.
        environ: of the launch, in which the ranks are to run.
    """
    asked = settings["warm_start"]
    if not (asked if asked is not None else not any(map(os.path.exists, UNKNOWN_DRIVERS))):
        return ""
    words = command(settings, environ)
    if not words:
        return ""
    if settings["numa_binding"]:
        return "--numa-binding sets the CPUs of each rank before its Python starts"
    if any("${" in word for word in words):
        return "the arguments differ between ranks"
    profiler = _profiler(environ)
    if profiler:
        return f"a profiler is at work ({profiler}), and may not follow processes that are forked"
    module = bool(settings["module"])
    program = str(settings["training_script"])
    beside = os.getcwd() if module or settings["run_path"] else os.path.dirname(os.path.realpath(program))
    if os.path.isdir(program) and not module:
        beside = os.path.abspath(program)
    preload = tuple(settings.launch["preload"].value) if "preload" in settings.launch else ()
    first = syntax.files(program) if module else (program,)
    fixed_hashes = environ.get("PYTHONHASHSEED", "random") != "random"
    reason = _shown_by_text(first, beside, bool(preload), fixed_hashes)
    if reason:
        return reason
    changed = cold_scripts.remembered(first[0], environ) if asked is None else ""
    if changed:
        return f"the script {changed} before an import, as its last run has shown"
    given = "OMP_NUM_THREADS" in environ or "OMP_NUM_THREADS" in settings.unset
    threads = {} if _ranks(settings) == 1 or given else {"OMP_NUM_THREADS": "1"}
    return WarmStart(words, threads, preload, beside)


def command(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of the ranks, as `torch.distributed.run.config_from_args` makes it; empty where their Python
    need not be ours."""
    if settings["no_python"] or environ.get("PYTHON_EXEC", sys.executable) != sys.executable:
        return ()
    script = str(settings["training_script"])
    arguments = tuple(settings["training_script_args"])
    if settings["run_path"]:
        return (sys.executable, "-u", "-c", RUN_PATH, script, *arguments)
    return (sys.executable, "-u", *(("-m",) if settings["module"] else ()), script, *arguments)


def _profiler(environ: Mapping[str, str]) -> str:
    """The variable by which a profiler follows the processes of this launch; "" for none."""
    preloads = PROFILER_LIBRARY.search(environ.get("LD_PRELOAD", ""))
    return "LD_PRELOAD" if preloads else next(filter(PROFILER.match, sorted(environ)), "")


def _ranks(settings: Settings) -> int:
    """How many ranks this node will have, as far as that tells whether torch elastic sets OMP_NUM_THREADS."""
    asked = str(settings["nproc_per_node"])
    if asked.isdecimal():
        return int(asked)
    if asked == "cpu":
        return os.cpu_count() or 1
    try:
        gpus = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        gpus = 0
    return gpus or (os.cpu_count() or 1)  # where this is wrong, the fork server sees it and the start is cold


def _shown_by_text(first: tuple[str, ...], beside: str, preload: bool, fixed_hashes: bool) -> str:
    """Why what the text of the script, or of a module of its own, shows needs a cold start."""
    todo = list(first)
    seen: set[str] = set()
    while todo and len(seen) < MOST_FILES:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        text = regular.text(path, syntax.LONGEST)
        if text is None:
            continue
        tree = syntax.parse(text)
        if tree is None:
            continue
        if any(word in text for word in SETS):
            for name, line in _names(tree):
                if name is None:
                    return f"{path}:{line} sets variables whose names are not in its text"
                if import_variables.is_read(name, preload):
                    return f"{path}:{line} sets {name}, which is read when torch is imported"
        line = _asks_for_hashes(tree) if "hash(" in text and not fixed_hashes else 0
        if line:
            return f"{path}:{line} calls hash(), which gives each process a number of its own"
        todo += _own_modules(tree, beside)
    return ""


def _asks_for_hashes(tree: ast.Module) -> int:
    """The line where a program calls `hash` for anything but the hash of an object of its own; 0 for none. Processes
    that are forked share the secret that the hashes of strings begin with."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__":
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
            return node.lineno
        todo += ast.iter_child_nodes(node)
    return 0


def _names(tree: ast.Module) -> Iterator[tuple[str | None, int]]:
    """The names of the variables that a program sets, None for those that are computed."""
    for node in ast.walk(tree):
        for name, _, _ in syntax.of_node(node):
            constant = name.value if isinstance(name, ast.Constant) else None
            yield (constant if isinstance(constant, str) else None), name.lineno
        updates = isinstance(node, ast.Call) and syntax.dotted(node.func) in ("os.environ.update", "environ.update")
        if isinstance(node, ast.Call) and updates and any(not isinstance(item, ast.Dict) for item in node.args):
            yield None, node.lineno


def _own_modules(tree: ast.Module, beside: str) -> Iterator[str]:
    """The files of the modules beside the script that it imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            path = os.path.join(beside, *name.split("."))
            yield from (file for file in (f"{path}.py", os.path.join(path, "__init__.py")) if os.path.isfile(file))

"""Whether the ranks may be forked from a process that has imported torch, as far as it can be known before the start.

It is to be invisible to the script: what the import reads of the environment must be what a cold start would find.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping

from safelaunch import regular
from safelaunch.model import RUN_PATH, Settings, WarmStart
from safelaunch.settings import syntax

MOST_FILES = 200  # of the user's own that are looked at
SETS = ("environ", "putenv")
GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/kfd", "/dev/accel")  # NVIDIA, AMD, and others that torch has a backend for

# Variables that are read when torch and what it loads are imported: the catalogue's `read = "load"`, and whole
# namespaces of libraries that read theirs when they are loaded. What comes after `?!` is read later.
AT_IMPORT = re.compile(
    r"(?:OMP|GOMP|KMP|MKL|OPENBLAS|GOTO|BLIS|LD|ATEN|DNNL|ONEDNN)_|PYTHON"
    r"|TORCH_(?!NCCL_|DISTRIBUTED_|FR_|ELASTIC_|CUDA_ARCH_LIST|EXTENSIONS_DIR|HOME|COMPILE_|SYMMMEM)"
    r"|PYTORCH_(?!CUDA_ALLOC_CONF|ALLOC_CONF|HIP_ALLOC_CONF|NVML_BASED_CUDA_CHECK|NO_CUDA_MEMORY_CACHING)"
)
# With modules beside torch nobody knows what they read; these belong to the start of a rank, or to what comes later.
NEVER_AT_IMPORT = re.compile(
    r"(?:NCCL|GLOO|TORCH_NCCL|TORCH_DISTRIBUTED|TORCH_FR)_|MASTER_(?:ADDR|PORT)$|(?:LOCAL_)?RANK$|WORLD_SIZE$"
)


def start(settings: Settings, environ: Mapping[str, str]) -> WarmStart | str:
    """How to start the fork server, or why the start is cold (empty where nobody would expect a warm one).

    Unless it is asked for, a start is warm where the node has no GPU: which library of which driver has threads, or
    descriptors, after the import of a torch for GPUs is not known to us for all of them.

    Args:
        settings: of the launch.
        environ: of the launch, in which the ranks are to run.
    """
    asked = settings["warm_start"]
    if not (asked if asked is not None else not any(map(os.path.exists, GPU_DRIVERS))):
        return ""
    words = command(settings, environ)
    if not words:
        return ""
    if settings["numa_binding"]:
        return "--numa-binding sets the CPUs of each rank before its Python starts"
    if any("${" in word for word in words):
        return "the arguments differ between ranks"
    module = bool(settings["module"])
    program = str(settings["training_script"])
    beside = os.getcwd() if module or settings["run_path"] else os.path.dirname(os.path.realpath(program))
    if os.path.isdir(program) and not module:
        beside = os.path.abspath(program)
    preload = tuple(settings.launch["preload"].value) if "preload" in settings.launch else ()
    first = syntax.files(program) if module else (program,)
    reason = _set_by_script(first, beside, bool(preload))
    if reason:
        return reason
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


def _ranks(settings: Settings) -> int:
    """How many ranks this node will have, as far as that tells whether torch elastic sets OMP_NUM_THREADS."""
    asked = str(settings["nproc_per_node"])
    if asked.isdigit():
        return int(asked)
    if asked == "cpu":
        return os.cpu_count() or 1
    try:
        gpus = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        gpus = 0
    return gpus or (os.cpu_count() or 1)  # where this is wrong, the fork server sees it and the start is cold


def _set_by_script(first: tuple[str, ...], beside: str, preload: bool) -> str:
    """Why what the script, or a module of its own, sets in its environment needs a cold start."""
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
                if AT_IMPORT.match(name) or (preload and not NEVER_AT_IMPORT.match(name)):
                    return f"{path}:{line} sets {name}, which is read when torch is imported"
        todo += _own_modules(tree, beside)
    return ""


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

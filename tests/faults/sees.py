"""Writes all that a script can see of its own process as JSON to the file named by its first argument, per rank."""

import atexit
import faulthandler
import gc
import inspect
import io
import json
import logging
import multiprocessing
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings

BEFORE = list(sys.modules)


class Own:
    """To be pickled by name."""


def double(number: int) -> int:
    return 2 * number


def stream(file: object) -> dict[str, object]:
    return {
        "type": str(type(file)),
        "buffer": str(type(file.buffer)),
        "raw": str(type(getattr(file.buffer, "raw", None))),
        "encoding": file.encoding,
        "errors": file.errors,
        "newlines": repr(file.newlines),
        "line_buffering": file.line_buffering,
        "write_through": file.write_through,
        "mode": file.mode,
        "name": file.name,
        "fileno": file.fileno(),
        "isatty": file.isatty(),
        "seekable": file.seekable(),
        "closed": file.closed,
    }


def status(*names: str) -> dict[str, str]:
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {name: lines[name] for name in names if name in lines}


def descriptors() -> dict[str, str]:
    found = {}
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}").split(":")[0]
        except OSError:
            pass
    return found


def children() -> dict[str, object]:
    answers = {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            answers[method] = pool.map(double, [21])
    return answers


def main() -> None:
    with open("/proc/self/cmdline") as file:
        command_line = file.read()
    with open("/proc/self/environ") as file:
        shown = dict(item.split("=", 1) for item in file.read().split("\0") if item)
    main_module = sys.modules["__main__"]
    seen = {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "flags": str(sys.flags),
        "path": sys.path,
        "executable": sys.executable,
        "warnoptions": sys.warnoptions,
        "xoptions": str(sys._xoptions),
        "main": {k: str(v) for k, v in vars(main_module).items() if k.startswith("__") and k != "__builtins__"},
        "stack": [(frame.filename, frame.function) for frame in inspect.stack()],
        "extracted": [frame.filename for frame in traceback.extract_stack()],
        "modules_before": BEFORE,
        "environ": dict(os.environ),
        "environ_shown": shown,
        "command_line": command_line,
        "comm": open("/proc/self/comm").read(),
        "exe": os.readlink("/proc/self/exe"),
        "cwd": os.getcwd(),
        "umask": oct(os.umask(0o22)),
        "signals": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
        "status": status(
            "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Groups", "Uid", "Threads"
        ),
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "session": os.getsid(0) == os.getpid(),
        "process_group": os.getpgrp() == os.getpid(),
        "stdin": stream(sys.stdin) if sys.stdin else None,
        "stdout": stream(sys.stdout),
        "stderr": stream(sys.stderr),
        "same_streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "descriptors": descriptors(),
        "main_thread": [
            threading.current_thread() is threading.main_thread(),
            threading.main_thread().ident == threading.get_ident(),
            threading.main_thread().native_id == os.getpid(),
            threading.active_count(),
        ],
        "daemon": multiprocessing.current_process().daemon,
        "process_name": multiprocessing.current_process().name,
        "parent_process": str(multiprocessing.parent_process()),
        "start_method": multiprocessing.get_start_method(allow_none=True),
        "pickle": pickle.dumps(Own()).hex(),
        "children": children(),
        "young": time.process_time() < 60,
        "cuda": "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized(),
        "faulthandler": faulthandler.is_enabled(),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.garbage],
        "hooks": [sys.excepthook.__module__, sys.displayhook.__name__, str(sys.gettrace()), str(sys.getprofile())],
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "logging": [logging.root.level, [str(h) for h in logging.root.handlers], logging.lastResort is not None],
        "logging_young": abs(time.time() - logging._startTime) < 100,
        "encoding": [sys.getdefaultencoding(), sys.getfilesystemencoding(), io.text_encoding(None)],
        "python_child": subprocess.run(
            [sys.executable, "-c", "import sys, os; print(sys.path, sorted(os.environ))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout,
        "meta_path": [str(type(item)) + str(getattr(item, "__name__", "")) for item in sys.meta_path],
        "path_hooks": [str(item) for item in sys.path_hooks][:1],
        "own_random": random.random(),
        "own_authkey": bytes(multiprocessing.current_process().authkey).hex(),
        "own_pid": os.getpid(),
        "own_parent": open(f"/proc/{os.getppid()}/cmdline").read(),
        "filters_before": [str(item) for item in warnings.filters],
        "loggers_before": sorted(logging.root.manager.loggerDict),
        "next_thread": threading.Thread().name,
    }
    import torch

    seen["modules_with_torch"] = list(sys.modules)
    seen["loggers"] = sorted(logging.root.manager.loggerDict)
    seen["torch"] = {
        "threads": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "matmul": torch.mm(torch.ones(300, 300), torch.ones(300, 300)).sum().item(),
    }
    seen["own_seed"] = torch.initial_seed()
    seen["own_tensor"] = torch.rand(3).tolist()
    seen["own_order"] = list(torch.utils.data.RandomSampler(range(1000)))
    import numpy

    seen["filters"] = [str(item) for item in warnings.filters]
    seen["own_numpy"] = numpy.random.random()
    seen["numpy_sum"] = float(numpy.dot(numpy.ones((300, 300)), numpy.ones((300, 300))).sum())
    with open(sys.argv[1] + os.environ["RANK"], "w") as file:
        json.dump(seen, file)
    atexit.register(print, "left in order", flush=True)


if __name__ == "__main__":
    main()

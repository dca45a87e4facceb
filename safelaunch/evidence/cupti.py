"""Whether torch's profiler can record kernels of ranks of this node. CUPTI crashes where it does not get on with the
driver, and would take a rank with it: so a child process tries it first.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

from safelaunch.evidence import programs

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cupti_probe.py")
LIMIT_S = 20.0  # eight GPUs take some seconds without the persistence daemon
LIBRARY = re.compile(r"^/.*/(libcuda\.so[.\d]*|libcupti\.so[.\d]*)$")
NOT_LOADED = "no rank has loaded NVIDIA's driver (libcuda)"


def missing(pids: Iterable[int], limit_s: float = LIMIT_S) -> str:
    """Why no kernels can be recorded of these ranks; empty where they can.

    Args:
        pids: of ranks of this node, with the same libraries.
        limit_s: seconds to wait for the child process.
    """
    found = next(filter(None, map(_libraries, pids)), {})
    cuda = next((path for name, path in found.items() if name.startswith("libcuda.")), "")
    cupti = next((path for name, path in found.items() if name.startswith("libcupti.")), "")
    if not cuda:
        return NOT_LOADED
    said = programs.answers([sys.executable, "-I", "-S", PROGRAM, cuda, cupti], None, limit_s)
    return str(said[0]) if said else "a process that tried CUPTI crashed, or did not come to its end"


def _libraries(pid: int) -> dict[str, str]:
    """The libraries of CUDA that a process has loaded, where libcuda is one of them: by name, with their paths."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.split(None, 5)[5].rstrip("\n") for line in file if "/libcu" in line}
    except (OSError, IndexError):
        return {}
    found = {os.path.basename(path): path for path in paths if LIBRARY.match(path)}
    return found if any(name.startswith("libcuda.") for name in found) else {}

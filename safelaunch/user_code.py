"""Which code is the user's own: one answer for workers, evidence, diagnosis and report.

The path of a file is all that a stack from another process, another machine or a bundle tells, so the path decides.
"""

from __future__ import annotations

import re

# What makes a path a library's. The standard library lies below lib or lib64 (RHEL, SLES) in a folder of Python's major
# and minor version, free-threaded builds with a `t` (sysconfig's "posix_prefix" scheme), or in pythonXY.zip (PEP 273).
_LIBRARY = re.compile(
    r"^$|^<|^\?\?"  # code that was generated or frozen; a frame that a debugger could not name
    r"|/(?:site|dist)-packages/"  # installed; the latter is Debian's
    r"|/lib(?:64)?/(?:python|pypy)\d+(?:\.\d+)?t?/|/python\d+\.zip/"
    r"|/torch/(?:distributed|autograd|nn|utils|optim|cuda|multiprocessing|_\w+)/"  # torch, built where its source lies
    r"|/safelaunch/(?:worker/|[a-z_]+\.py$)"  # what of ours runs in workers, likewise
    r"|\.(?:so|c|cc|cpp|cxx|cu|h|hpp|cuh)(?:\.[\d.]+)?$"  # a native frame
)


def is_user_code(file: str) -> bool:
    """Whether a file is of the user's own Python code: not of the standard library, not installed, not generated, not
    native, not torch's, not ours.

    Args:
        file: its path as a frame says it (`co_filename`), possibly of another machine. An editable install, a zipapp
            and a script count as the user's.
    """
    return not _LIBRARY.search(file)

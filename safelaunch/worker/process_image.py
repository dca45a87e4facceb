"""Runs in: fork server, ranks and agent. What the kernel shows of a process: its command line and its environment.

A forked process shows those of the process that it came from. PR_SET_MM_MAP (prctl(2), Linux 3.18, with
CONFIG_CHECKPOINT_RESTORE, which the distributions have) points the kernel to others, and needs no privilege.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Dict, List, Optional, Tuple

PR_SET_MM, PR_SET_MM_MAP = 35, 14
_MAP = struct.Struct("<12QIi")  # struct prctl_mm_map of linux/prctl.h

# The fields of /proc/PID/stat, by their numbers in proc(5), in the order of that struct.
_CODE_AND_DATA = (26, 27, 45, 46, 47)
_STACK = 28
_ARGUMENTS, _ENVIRON = (48, 49), (50, 51)

_KEPT: List[Any] = []  # the kernel reads them whenever somebody looks

Bounds = Tuple[int, int]


def arguments() -> Bounds:
    """Where the command line of this process begins and ends in its memory."""
    fields = _fields()
    return fields[_ARGUMENTS[0]], fields[_ARGUMENTS[1]]


def show(
    command: Optional[List[str]] = None, environ: Optional[Dict[str, str]] = None, at: Optional[Bounds] = None
) -> bool:
    """Show another command line, or another environment. Returns whether the kernel takes it.

    Args:
        command: the words of the command line; None leaves what is shown.
        environ: the variables; None leaves what is shown.
        at: instead of `command`, where a command line is in memory already.
    """
    import os

    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    fields = _fields()
    words, variables = arguments(), (fields[_ENVIRON[0]], fields[_ENVIRON[1]])
    if at is not None:
        words = at
    elif command is not None:
        words = _keep(os.fsencode(word) for word in command)
    if environ is not None:
        variables = _keep(os.fsencode("%s=%s" % item) for item in environ.items())
    areas = [fields[number] for number in _CODE_AND_DATA]
    data = _MAP.pack(*areas, libc.sbrk(0), fields[_STACK], *words, *variables, 0, 0, -1)
    memory = ctypes.create_string_buffer(data, len(data))
    return bool(libc.prctl(PR_SET_MM, PR_SET_MM_MAP, memory, ctypes.c_ulong(len(data)), 0) == 0)


def _keep(texts: Any) -> Bounds:
    data = b"".join(text + b"\0" for text in texts)
    memory = ctypes.create_string_buffer(data, len(data))
    _KEPT.append(memory)
    start = ctypes.addressof(memory)
    return start, start + len(data)


def _fields() -> Dict[int, int]:
    with open("/proc/self/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return {number: int(word) for number, word in enumerate(words, 3) if word.lstrip("-").isdecimal()}

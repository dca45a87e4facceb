"""Which files of a folder are logs, by their names and their first bytes, and which of those cannot be read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from safelaunch.evidence.logs import error_file
from safelaunch.evidence.logs.coding import BYTE_ORDER, is_binary

DEPTH = 16  # folders below the one that was named
_HEAD = 4096
PROGRAM = b"\x7fELF"
# Names that say it: `train.log`, `stderr`, `slurm-7.out.gz`, what PBS and SGE write (`NAME.o4711`, `NAME.pe4711.2`),
# HTCondor and others (`job.4711`).
_LOG = re.compile(
    r"(?:^|[._-])(?:logs?|out|err|stdout|stderr)(?:[._-]|\d|$)|\.txt(?:\.\d+)?(?:\.\w{2,4})?$"
    r"|\.p?[oe]\d+(?:[.-]\d+)?$|^job\.\d+$",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"^[^.]*$|log", re.IGNORECASE)
_OTHER = re.compile(
    r"\.(?:py|json|jsonl|toml|ya?ml|pt|pth|pkl|pickle|bin|safetensors|csv|md|html|svg|png|so|npz?|pyc|sh|c|cc|cpp|cu|h"
    r"|cfg|ini|lock|gif|jpe?g|pdf)$|tfevents"
)
# What some collectors of logs write: the second ending says how, the first one what.
_OTHER_FORM = re.compile(r"\.(?:log|out|err|stdout|stderr)\.(?:json|jsonl|md|csv|html)$", re.IGNORECASE)

Kind = Literal["log", "maybe", "other", "unknown"]


@dataclass(frozen=True)
class Found:
    """A file below a folder. `unread` says why it cannot be read, where it is a log; `unknown` that its name says
    nothing of what it is: it is not read."""

    path: str
    unread: str = ""
    unknown: bool = False


def find(path: str) -> Iterator[Found]:
    """The logs that a path is, or holds, and what may be one."""
    if path == "-" or not os.path.isdir(path):
        yield Found(path)
        return
    deepest = path.rstrip(os.sep).count(os.sep) + DEPTH
    closed: list[OSError] = []
    for folder, below, names in os.walk(path, onerror=closed.append):
        below.sort()
        for link in [name for name in below if os.path.islink(os.path.join(folder, name))]:
            yield Found(os.path.join(folder, link), "a link to a folder is not followed: name that folder itself")
            below.remove(link)
        if below and folder.count(os.sep) >= deepest:
            yield Found(os.path.join(folder, below[0]), f"folders are read {DEPTH} deep")
            below.clear()
        hidden = folder != path and any(part.startswith(".") for part in os.path.relpath(folder, path).split(os.sep))
        for name in sorted(names):
            full, kind = os.path.join(folder, name), _kind(name)
            if kind == "log" and (why_not := _unread(full)) is not None:
                yield Found(full, why_not)
            elif kind == "maybe" and _is_text(full):
                yield Found(full)
            elif kind == "unknown" and not hidden and not name.startswith("."):
                yield Found(full, unknown=True)
    yield from (Found(str(error.filename), error.strerror or str(error)) for error in closed)


def _kind(name: str) -> Kind:
    if _OTHER_FORM.search(name) or name == error_file.NAME:
        return "log"
    if _OTHER.search(name):
        return "other"
    return "log" if _LOG.search(name) else "maybe" if _MAYBE.search(name) else "unknown"


def _unread(path: str) -> str | None:
    """Why a log cannot be read, empty where it can; None for a program: compilers call theirs `a.out`."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return "it is a link that leads nowhere" if os.path.islink(path) else error.strerror or str(error)
    if not stat.S_ISREG(mode):
        return "it is no file, but a pipe, a socket or a device"
    return None if _beginning(path).startswith(PROGRAM) else ""


def _is_text(path: str) -> bool:
    """Whether a file whose name does not say that it is a log may be one."""
    if not os.path.isfile(path):
        return False
    head = _beginning(path)
    packed = head[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", *BYTE_ORDER)
    return packed or not head.strip(b"\0") or not (head.startswith(PROGRAM) or is_binary(head))


def _beginning(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""  # named in the facts as what could not be read

"""The list of bad nodes that the users of a cluster keep: a line a node, with its name, since when, and why.

    node-b  2026-11-26  SL428: GPU 3 failed: Xid 79 (GPU has fallen off the bus)

People write it, too: the name comes first, all else is free, and `#` begins a comment. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from safelaunch import open_folder, regular

MOST = 1 << 20  # bytes of a list
MOST_LINKS = 8
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
LONGEST = 300  # characters of a reason

# Who gives a node another name than the one its programs see: Slurm, Beaker, and what pods get by convention from
# Kubernetes (spec.nodeName).
NAMES = ("SLURMD_NODENAME", "BEAKER_NODE_HOSTNAME", "NODE_NAME")


@dataclass(frozen=True)
class Listed:
    """A line of the list."""

    host: str
    why: str
    line: int


def read(path: str) -> tuple[Listed, ...]:
    """The lines of a list; nothing where there is no such file yet.

    Raises:
        OSError: it cannot be read, or is no list.
    """
    try:
        return _lines(regular.read(path, MOST))
    except FileNotFoundError:
        return ()


def _lines(data: bytes) -> tuple[Listed, ...]:
    if _BINARY.search(data):
        raise OSError(errno.EINVAL, "it is no text")
    text = data.decode("utf-8", "replace")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            found.append(Listed(words[0], " ".join(words[1:])[: 2 * LONGEST], number))
    return tuple(found)


def own_names(host: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What this node is called: by its programs, then by schedulers."""
    return tuple(dict.fromkeys(filter(None, [host, *(environ.get(name, "") for name in NAMES)])))


def same(one: str, other: str) -> bool:
    """Whether two names are of one node: of one of them the domain may be missing."""
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    if one == other:
        return True
    both = "." in one and "." in other
    return not both and not _is_address(one + other) and one.partition(".")[0] == other.partition(".")[0]


def _is_address(name: str) -> bool:
    return re.fullmatch(r"[\d.:]+", name) is not None


def find(names: Iterable[str], listed: Iterable[Listed]) -> Listed | None:
    """The line that names a node, by any of its names."""
    known = tuple(names)
    return next((one for one in listed if any(same(one.host, name) for name in known)), None)


def add(path: str, host: str, why: str) -> bool:
    """Write a node on the list, unless it stands there; returns whether it was written.

    Args:
        path: of the list, which is made where there is none.
        host: a name as it may stand in a file: no blanks.
        why: the code and the reason, in a line.

    Raises:
        OSError: it cannot be written.
    """
    reason = "".join(char if char.isprintable() else " " for char in why).replace("#", "no. ")
    line = f"{host}  {time.strftime('%Y-%m-%d')}  {' '.join(reason.split())[:LONGEST]}\n"
    descriptor = _opened(path)
    with open(descriptor, "r+b", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise OSError(errno.EINVAL, "it is no file, or one with a second name", path)
        regular.lock(descriptor)
        if find((host,), _lines(file.read(MOST))) is not None:
            return False
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(line.encode())
    return True


def _opened(path: str) -> int:
    """A descriptor to read the list and to write behind its end. Links may lead there that are ours or root's: whoever
    else owns one would choose the file that we write."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    for _ in range(MOST_LINKS):
        above, name = os.path.split(path)
        folder = open_folder.reached(above)
        try:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    if found.st_uid not in (0, os.geteuid()):
                        raise PermissionError(errno.EPERM, "it is another user's link", path)
                    path = os.path.join(above, os.readlink(name, dir_fd=folder))
                    continue
            with contextlib.suppress(FileNotFoundError):
                return os.open(name, flags, dir_fd=folder)
            with contextlib.suppress(FileExistsError):  # another node has made it meanwhile: it is looked at anew
                return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        finally:
            os.close(folder)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

"""Which version of the program a run has started: the content of its script, and the commit that it lies in."""

from __future__ import annotations

import hashlib
import os

from safelaunch import regular

MOST = 4 << 20  # bytes of a script
DEEP = 32  # folders above it that may be those of a repository
LONGEST = 1 << 20  # bytes of packed-refs


def digest(script: str) -> str | None:
    """SHA-256 of a script; None where it cannot be read, or is none."""
    try:
        return hashlib.sha256(regular.read(script, MOST)).hexdigest()
    except OSError:
        return None


def commit(script: str) -> str | None:
    """The commit that is checked out where a script lies (gitrepository-layout(5)); None where there is none. git is
    not asked: it is slow on network file systems, and may not be there."""
    folder = os.path.dirname(os.path.realpath(script))
    for _ in range(DEEP):
        git = os.path.join(folder, ".git")
        if os.path.lexists(git):
            try:
                return _head(git)
            except OSError:
                return None
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            break
    return None


def _head(git: str) -> str | None:
    if os.path.isfile(git):  # a worktree, or a submodule
        git = os.path.join(os.path.dirname(git), _text(git).removeprefix("gitdir: "))
    head = _text(os.path.join(git, "HEAD"))
    if not head.startswith("ref: "):
        return _commit(head)
    name = head.removeprefix("ref: ")
    try:
        common = os.path.join(git, _text(os.path.join(git, "commondir")))
    except OSError:
        common = git
    for place in (git, common):
        try:
            return _commit(_text(os.path.join(place, name)))
        except OSError:
            continue
    rows = _text(os.path.join(common, "packed-refs")).splitlines()
    return next((_commit(row.split()[0]) for row in rows if row.endswith(f" {name}")), None)


def _text(path: str) -> str:
    return regular.read(path, LONGEST).decode("utf-8", "replace").strip()


def _commit(text: str) -> str | None:
    return text if len(text) in (40, 64) and all(char in "0123456789abcdef" for char in text) else None

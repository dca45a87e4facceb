"""Which files of a tree are those of jobs: by their names, and by what is in them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from safelaunch import regular
from safelaunch.settings.lint.extract import INTEREST, decoded
from safelaunch.settings.lint.extract.kinds import kind_by_name, kind_of_stranger

MOST_BYTES = 64 << 20  # of a file that somebody has named
MOST_IN_TREE = 4 << 20  # of one that is found: what is larger is data
HEAD = 512  # bytes by which a file without a telling name is known
SKIPPED = frozenset({
    "node_modules", "__pycache__", "site-packages", "venv", "env", "build", "dist", "wandb", "mlruns",
    "safelaunch_runs", "third_party",
})  # fmt: skip
DOTTED = frozenset({".github", ".circleci", ".gitlab", ".devcontainer", ".buildkite", ".sky"})  # that are looked into

_INTEREST = tuple(word.encode() for word in INTEREST)
# In these are programs and data of other kinds; a Markdown text is no job's file unless somebody names it.
_OTHERS = frozenset({"markdown", "lua"})
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Missed(NamedTuple):
    """What lies below a folder and cannot be looked at, and why."""

    path: str
    why: str


def found(paths: Sequence[str], missed: Callable[[Missed], object]) -> Iterator[str]:
    """The files to look at: those that were named, and below folders those that are files of jobs by their names.

    Args:
        paths: of files and folders.
        missed: takes what cannot be looked at: silence about it would be praise.
    """
    seen: set[str] = set()
    for path in paths:
        for file in _below(path, missed) if os.path.isdir(path) else (path,):
            if file not in seen:
                seen.add(file)
                yield file


def _below(folder: str, missed: Callable[[Missed], object]) -> Iterator[str]:
    todo = [folder]
    while todo:
        this = todo.pop()
        try:
            entries = sorted(os.scandir(this), key=lambda entry: entry.name)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or this == folder:  # one that has gone holds nothing
                missed(Missed(this, error.strerror or str(error)))
            continue
        folders = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                hidden = entry.name.startswith(".") and entry.name not in DOTTED
                if not hidden and entry.name not in SKIPPED:
                    folders.append(entry.path)
            elif _is_file(entry):
                path = os.path.normpath(entry.path) if folder == "." else entry.path
                why = _why_unreadable(path)
                if why:
                    missed(Missed(path, why))
                else:
                    yield path
        todo += reversed(folders)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to where we may not look
        return True


def _why_unreadable(path: str) -> str:
    """Why a file cannot be read that is one of a job by its name; nothing for all others, which may be anything."""
    kind = kind_by_name(os.path.basename(path))
    if not kind or kind in _OTHERS or os.access(path, os.R_OK):
        return ""
    try:
        os.close(regular.descriptor(path))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def content(path: str, *, named: bool) -> str | None:
    """The text of a file to lint; None for one that nobody has named and that is no job's file.

    Args:
        path: of the file.
        named: whether somebody has named it, rather than a folder above it.

    Raises:
        OSError: a file that somebody has named cannot be read, or is no text.
    """
    if not named:
        try:
            data = _of_a_job(path)
        except OSError:
            return None
        return None if data is None else decoded(data)
    with open(regular.given(path), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", path)
    if b"\0" in data[:8192] and not data.startswith(_UTF_16):
        raise OSError(errno.EINVAL, "it is no text", path)
    return decoded(data)


def _of_a_job(path: str) -> bytes | None:
    name = os.path.basename(path)
    kind = kind_by_name(name)
    if kind in _OTHERS or (not kind and not _may_be(path)):
        return None
    data = regular.read(path, MOST_IN_TREE)
    if data.startswith(_UTF_16):
        return data
    if b"\0" in data[:8192] or not any(word in data for word in _INTEREST):
        return None
    if kind == "python" and not re.search(rb"environ|putenv", data):
        return None
    if kind == "json" and b"NCCL_" not in data and b"TORCH" not in data:
        return None
    return data


def _may_be(path: str) -> bool:
    """Whether a file whose name says nothing begins as a script, a job or an image does."""
    return bool(kind_of_stranger(regular.beginning(path, HEAD).decode("utf-8", "replace")))

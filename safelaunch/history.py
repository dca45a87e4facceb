"""What ran here before: a line a run in the user's state folder, written at its end. Standard library only.

    {"at": 1764133200.0, "script": "/work/train.py", "steps": 1842, "exit_code": 1, "code": "SL301", ...}

Several runs may end at the same time, on several nodes that share the folder: a line is written behind a lock.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from safelaunch import regular, user_files
from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.shortened import shortened

MOST = 1 << 20  # bytes of the file: some 2,000 runs. The older half goes when it is full
LONGEST = 400  # characters of a text


@dataclass(frozen=True)
class Entry:
    """One run, as the node saw it that spoke for the job. `at` is its end in seconds since the epoch. `steps` are
    optimizer steps of the rank that had made the most; `hosts` the nodes that it had met, itself with them. What
    follows them is of the verdict with which it ended badly, and empty where there was none."""

    at: float
    run_id: str
    run_dir: str
    script: str
    arguments: str
    hosts: tuple[str, ...]
    world_size: int
    elapsed_s: float
    exit_code: int
    steps: int | None = None
    code: str = ""
    summary: str = ""
    host: str = ""
    culprit_ranks: tuple[int, ...] = ()
    operation: str = ""
    place: str = ""


def path(environ: Mapping[str, str]) -> str:
    """Where the lines are kept; "" where the user has no state folder."""
    folder = user_files.state(environ)
    return os.path.join(folder, "safelaunch", "runs.jsonl") if folder else ""


def read(environ: Mapping[str, str]) -> list[Entry]:
    """All runs that are remembered, the oldest first. A line that is none costs itself alone.

    Raises:
        OSError: it cannot be read, or belongs to another user.
    """
    file = path(environ)
    if not file:
        return []
    try:
        text = regular.read(file, 2 * MOST, os.geteuid()).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return list(_entries(text))


def _entries(text: str) -> Iterator[Entry]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError, ShapeError, RecursionError):
            yield checked(Entry, json.loads(line))


def add(environ: Mapping[str, str], entry: Entry) -> None:
    """Write a run down.

    Raises:
        OSError: that is not possible.
    """
    file = path(environ)
    if not file:
        return
    values = to_json(entry).items()
    short = {key: shortened(value, LONGEST) if isinstance(value, str) else value for key, value in values}
    line = json.dumps(short).encode() + b"\n"
    user_files.make_folder(os.path.dirname(file))
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        regular.lock(descriptor)
        _make_room(descriptor, len(line))
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _make_room(descriptor: int, wanted: int) -> None:
    """Where the file is full its older half goes. Who reads it meanwhile may see a part, and no line twice."""
    if os.fstat(descriptor).st_size + wanted <= MOST:
        return
    kept = os.pread(descriptor, 2 * MOST, 0)[-MOST // 2 :].partition(b"\n")[2]
    os.ftruncate(descriptor, 0)
    os.write(descriptor, kept)

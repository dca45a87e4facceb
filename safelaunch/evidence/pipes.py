"""Flight Recorder dumps of NCCL that ranks write when they are asked through torch's own pipe.

With TORCH_NCCL_DEBUG_INFO_PIPE_FILE=STEM a rank has a FIFO `STEM<rank>.pipe`, which the monitor thread of its default
group looks at each second (TORCH_NCCL_COORD_CHECK_MILSEC); a byte in it makes it write a dump, and nothing else
(c10d/ProcessGroupNCCL.cpp, DumpPipe). The file is `TORCH_FR_DUMP_TEMP_FILE<rank>`, before torch 2.9
`TORCH_NCCL_DEBUG_INFO_TEMP_FILE<rank>`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from safelaunch import regular
from safelaunch.evidence.ranks import RankProcess
from safelaunch.evidence.source_probe import resolved

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
OPEN_S = 1.0  # a pipe on a dead file system must not hold us
POLL_S = 0.05
SETTLED_S = 0.2  # a dump that has not grown for so long is whole; two thousand entries take 20 ms to write


@dataclass(frozen=True)
class Asked:
    """A rank that was asked for a dump. `before` are the (mtime, size) of the files that it may write; `reason` says
    why it could not be asked."""

    rank: int
    files: tuple[str, ...] = ()
    before: Mapping[str, tuple[int, int]] | None = None
    reason: str = ""


def stem(rank: RankProcess) -> str:
    """What a rank's pipe is called, without its rank; nothing where it has none."""
    return rank.text(PIPE)


def ask(ranks: Iterable[RankProcess]) -> list[Asked]:
    """Ask all ranks that have a pipe and read it. Not later than `OPEN_S`."""
    asked: dict[int, Asked] = {}
    threads = []
    for rank in ranks:
        if stem(rank):
            asked[rank.rank] = Asked(rank.rank, reason="its pipe could not be opened in time")
            threads.append(threading.Thread(target=_ask, args=(rank, asked), daemon=True))
            threads[-1].start()
    until = time.monotonic() + OPEN_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(asked.values())


class NotItsPipeError(OSError):
    """Something else lies where a rank's pipe would be."""


def answers(asked: Iterable[Asked], until: float) -> dict[int, str]:
    """The dumps that have been written since, by rank; waits until then (CLOCK_MONOTONIC) at most."""
    waiting = [one for one in asked if one.before is not None]
    found: dict[int, str] = {}
    thread = threading.Thread(target=_collect, args=(waiting, found, until), daemon=True)
    thread.start()
    thread.join(max(0.0, until - time.monotonic()) + OPEN_S)
    return dict(found)


def lying(ranks: Iterable[RankProcess]) -> dict[int, str]:
    """The dumps that ranks have written at any time of their lives, by rank: torch writes one when a call times out."""
    found: dict[int, str] = {}

    def search() -> None:
        for rank in ranks:
            root, begun = f"/proc/{rank.seen.pid}/root", _begun(rank)
            files = [(_stamp(file), file) for file in _below(root, _written(rank))]
            latest = max(((stamp, file) for stamp, file in files if stamp[1] and stamp[0] / 1e9 >= begun), default=None)
            if latest is not None:
                found[rank.rank] = latest[1]

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(OPEN_S)
    return dict(found)


def _begun(rank: RankProcess) -> float:
    """When a rank was started, by the wall clock."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - rank.seen.process.start / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _ask(rank: RankProcess, asked: dict[int, Asked]) -> None:
    root = f"/proc/{rank.seen.pid}/root"
    path = _inside(rank, f"{stem(rank)}{rank.rank}.pipe")

    def rank_owns(found: os.stat_result) -> None:
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != rank.owner():
            raise NotItsPipeError

    try:
        files = tuple(_below(root, _written(rank)))
        before = {file: _stamp(file) for file in files}
        descriptor = regular.opened(resolved(root, path), os.O_WRONLY | os.O_NOFOLLOW, rank_owns)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
        asked[rank.rank] = Asked(rank.rank, files, before)
    except NotItsPipeError:
        asked[rank.rank] = Asked(rank.rank, reason=f"{path} is no pipe of its own")
    except FileNotFoundError:
        asked[rank.rank] = Asked(rank.rank, reason=f"it has no pipe {path}: torch's nccl2 (2.15) makes none")
    except OSError as error:  # ENXIO: nobody reads it
        asked[rank.rank] = Asked(rank.rank, reason=f"its pipe {path} cannot be written to: {error.strerror}")


def _collect(asked: list[Asked], found: dict[int, str], until: float) -> None:
    sizes: dict[str, tuple[tuple[int, int], float]] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        for one in asked:
            for file in one.files if one.rank not in found else ():
                stamp = _stamp(file)
                if one.before is None or stamp == one.before[file] or not stamp[1]:
                    continue
                last, since = sizes.setdefault(file, (stamp, time.monotonic()))
                if last != stamp:
                    sizes[file] = (stamp, time.monotonic())
                elif time.monotonic() - since > SETTLED_S:
                    found[one.rank] = file
        time.sleep(POLL_S)


def _written(rank: RankProcess) -> list[str]:
    """Where a rank may write its dump."""
    named = [rank.text(name) for name in FILES if rank.text(name)]
    home = rank.text("XDG_CACHE_HOME") or os.path.join(rank.text("HOME") or "/root", ".cache")
    default = ["/tmp/nccl_trace_rank_", os.path.join(home, "torch", "comm_lib_trace_rank_")]
    return [_inside(rank, f"{path}{rank.rank}") for path in named[:1] or default]


def _inside(rank: RankProcess, path: str) -> str:
    """A path as the rank sees it, made absolute."""
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/{rank.seen.pid}/cwd"), path)
    except OSError:
        return os.path.join("/", path)


def _below(root: str, paths: Iterable[str]) -> Iterator[str]:
    """The files of a container as they are seen from here: its links lead nowhere else."""
    for path in paths:
        with contextlib.suppress(OSError):
            yield resolved(root, path)


def _stamp(file: str) -> tuple[int, int]:
    """When a regular file was written, and its size; zeros where there is none."""
    try:
        status = os.lstat(file)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else (0, 0)

"""Flight Recorder dumps of NCCL that ranks write when they are asked through torch's own pipe.

With TORCH_NCCL_DEBUG_INFO_PIPE_FILE=STEM a rank has a FIFO `STEM<rank>.pipe`, which the monitor thread of its default
group looks at each second (TORCH_NCCL_COORD_CHECK_MILSEC); a byte in it makes it write a dump, and nothing else
(c10d/ProcessGroupNCCL.cpp, DumpPipe). The file is `TORCH_FR_DUMP_TEMP_FILE<rank>`, before torch 2.9
`TORCH_NCCL_DEBUG_INFO_TEMP_FILE<rank>`.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from safelaunch.evidence.ranks import RankProcess

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


def answers(asked: Iterable[Asked], until: float) -> dict[int, str]:
    """The dumps that have been written since, by rank; waits until then (CLOCK_MONOTONIC) at most."""
    waiting = [one for one in asked if one.before is not None]
    found: dict[int, str] = {}
    thread = threading.Thread(target=_collect, args=(waiting, found, until), daemon=True)
    thread.start()
    thread.join(max(0.0, until - time.monotonic()) + OPEN_S)
    return dict(found)


def _ask(rank: RankProcess, asked: dict[int, Asked]) -> None:
    root = f"/proc/{rank.seen.pid}/root"
    path = _inside(rank, f"{stem(rank)}{rank.rank}.pipe")
    try:
        files = tuple(root + path for path in _written(rank))
        before = {file: _stamp(file) for file in files}
        descriptor = os.open(root + path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                asked[rank.rank] = Asked(rank.rank, reason=f"{path} is no pipe")
                return
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
        asked[rank.rank] = Asked(rank.rank, files, before)
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


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)

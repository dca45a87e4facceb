"""Which files are Flight Recorder dumps, of which rank, and reading them all within bounds."""

from __future__ import annotations

import gc
import json
import os
import re
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch import regular
from safelaunch.evidence.offline import dump, restricted_pickle
from safelaunch.evidence.offline.dump import Dump, UnreadableError

MAX_BYTES = 64 << 20  # a full ring of 2000 entries with frames is about 1 MB
ROOM_BYTES = 1 << 30  # address space for one reader beyond what it has; a hostile pickle may ask for 64 GiB
SNIFF_BYTES = 4096
DEPTH = 4
PER_TASK = 8  # files that a reader takes at once

# torch: `nccl_trace_rank_3` (to 2.8), `comm_lib_trace_rank_3` (from 2.9), or any stem (TORCH_FR_DUMP_TEMP_FILE).
RANK = re.compile(r"(?:^|[^\d])(\d{1,7})(?:\.[A-Za-z_]\w{0,9})*$")
NAMED = re.compile(r"(?:rank|trace|dump)[_\-.]?(\d{1,7})(?:\D|$)", re.IGNORECASE)
KEYS = re.compile(rb'"(?:entries|pg_config|pg_status|comm_lib_version|nccl_version)"')
PICKLED = re.compile(rb"^\x80[\x02-\x05].*?(?:pg_config|entries|pg_status|comm_lib_version|nccl_version|version)", re.S)


@dataclass(frozen=True)
class Found:
    """A file that is a dump, or would be one if it were whole. `owner` is the user whose file alone counts, None where
    somebody has named the file."""

    path: str
    rank: int
    owner: int | None = None


def rank_of(path: str) -> int | None:
    """The rank that a file's name tells: dumps do not hold it."""
    name = os.path.basename(path)
    found = NAMED.search(name) or RANK.search(name)
    return int(found[1]) if found is not None else None


def is_dump(path: str) -> bool:
    """Whether a file is a dump by its first bytes, or an empty one by its name."""
    try:
        if not os.path.isfile(path):  # a FIFO would be waited for, such as torch's own `<stem><rank>.pipe`
            return False
        with open(path, "rb") as file:
            head = file.read(SNIFF_BYTES)
    except OSError:
        return False
    name = os.path.basename(path)
    if not head:
        return bool(re.search(r"rank[_-]?\d+(?!.*\.(?:log|txt|out|err)$)", name))
    if rank_of(path) is None:
        return False
    return bool(PICKLED.match(head) or (head.lstrip()[:1] == b"{" and KEYS.search(head)))


def find(paths: Iterable[str]) -> tuple[list[Found], int]:
    """All dumps at or below `paths`, and how many other files lie beside them."""
    found: dict[str, Found] = {}
    others = 0
    for path in paths:
        for file in _files(path):
            rank = rank_of(file)
            if rank is not None and is_dump(file):
                found.setdefault(os.path.realpath(file), Found(file, rank))
            else:
                others += 1
    return sorted(found.values(), key=lambda one: (one.rank, one.path)), others


def _files(path: str) -> Iterable[str]:
    if not os.path.isdir(path):
        yield path
        return
    depth = path.rstrip(os.sep).count(os.sep) + DEPTH
    for folder, below, names in os.walk(path):
        below.sort()
        if folder.count(os.sep) >= depth:
            below.clear()
        yield from (os.path.join(folder, name) for name in sorted(names))


def read_all(found: Sequence[Found]) -> list[Dump]:
    """Read dumps, several at a time, each in a process with a limit of memory.

    What cannot be read says so in `unreadable`; a damaged or hostile file costs its own dump and no other.
    """
    tasks = [found[start : start + PER_TASK] for start in range(0, len(found), PER_TASK)]
    dumps: list[Dump] = []
    for task, read in zip(tasks, _in_processes(tasks), strict=True):
        # A reader that died has taken what was with it along: each of them alone, then.
        dumps += read if read is not None else [_alone(one) for one in task]
    return dumps


def _alone(one: Found) -> Dump:
    (read,) = _in_processes([[one]])
    return read[0] if read else Dump(one.rank, one.path, unreadable="its reader died of it")


def _in_processes(tasks: Sequence[Sequence[Found]]) -> list[list[Dump] | None]:
    # A run that reads the dumps of its own ranks needs none of these.
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    workers = min(len(tasks), len(os.sched_getaffinity(0)), 8)
    if not workers:
        return []
    results: list[list[Dump] | None] = []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _limit) as pool:
        pending: list[Future[list[Dump]]] = []
        for task in tasks:
            try:
                pending.append(pool.submit(_read_task, task))
            except BrokenProcessPool:
                break
        for future in pending:
            try:
                results.append(future.result())
            except (BrokenProcessPool, MemoryError):
                results.append(None)
    return results + [None] * (len(tasks) - len(results))


def _limit() -> None:
    """A reader must not take the machine's memory, whatever a file asks for."""
    gc.disable()  # a document is a tree: nothing to collect, and much to look through
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = now + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))
    except (OSError, ValueError):
        pass


def _read_task(task: Sequence[Found]) -> list[Dump]:
    return [_read(one) for one in task]


def _read(one: Found) -> Dump:
    nothing = Dump(one.rank, one.path)
    try:
        return replace(dump.read(document(one.path, one.owner), one.rank, one.path), written=os.path.getmtime(one.path))
    except UnreadableError as error:
        return replace(nothing, unreadable=str(error))
    except restricted_pickle.RefusedError as error:
        return replace(nothing, unreadable=f"the pickle is refused: {error}")
    except OSError as error:
        return replace(nothing, unreadable=error.strerror or "it cannot be read")
    except MemoryError:
        return replace(nothing, unreadable="reading it would take too much memory")
    except Exception as error:  # a damaged file may end in any of the unpickler's errors
        return replace(nothing, unreadable=f"it is damaged or cut off ({type(error).__name__})")


def document(path: str, owner: int | None) -> Any:
    """What a file holds.

    Raises:
        OSError: when it cannot be read, or is not a regular file of `owner`.
        Exception: whatever the unpickler makes of damaged data.
    """
    with open(regular.descriptor(path, owner), "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if not data:
        raise UnreadableError("it is empty")
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"it is larger than {MAX_BYTES >> 20} MiB")
    if data[:1] == b"\x80":
        return restricted_pickle.loads(data)
    return json.loads(data.decode("utf-8", errors="replace"))

"""Which files are Flight Recorder dumps, of which rank, and reading them all within bounds."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch import limits, regular
from safelaunch.evidence.offline import dump, restricted_pickle
from safelaunch.evidence.offline.dump import Dump, UnreadableError

MAX_BYTES = 64 << 20  # a full ring of 2000 entries with frames is about 1 MB
ROOM, ROOM_PER_BYTE = 192 << 20, 40  # address space of one reader beyond what it has; a pickle may ask for 64 GiB
CPU_S, CPU_S_PER_MIB = 1.0, 2.0  # of one file: a ring of 2,000 entries takes 0.05 s
# Of all files together, so that those which were not read can be named within the time that the command has (`limits`):
# a core takes 0.05 s for each MiB.
TOTAL_S, TOTAL_S_PER_MIB = 5.0, 1.0
ENDS_S = 1.0  # for the readers to be gone; one that the kernel holds is left to it
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
        head = regular.beginning(
            path, SNIFF_BYTES
        )  # a FIFO would be waited for, such as torch's own `<stem><rank>.pipe`
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
    # The memory of all readers together is bounded as well: one is enough for small files.
    mib = limits.size_of((one.path for one in found), 0) >> 20
    most = min(len(os.sched_getaffinity(0)), 8, 1 + mib)
    seconds = TOTAL_S + TOTAL_S_PER_MIB * mib
    until = time.monotonic() + seconds
    dumps: dict[Found, Dump] = {}
    left: list[Found] = []
    for task, read in zip(tasks, _in_processes(tasks, most, until), strict=True):
        if read is None:
            left += task  # a reader that died has taken what was with it along
        else:
            dumps.update(zip(task, read, strict=True))
    dumps.update(_one_by_one(left, until, f"it was not read: all files together took longer than {seconds:.0f} s"))
    return [dumps[one] for one in found]


def _one_by_one(found: Sequence[Found], until: float, late: str) -> dict[Found, Dump]:
    """Files of which at least one ends its reader: the first that has no answer is the one."""
    dumps: dict[Found, Dump] = {}
    left = list(found)
    while left:
        answers = _in_processes([[one] for one in left], 1, until) if time.monotonic() < until else []
        whole = next((at for at, answer in enumerate(answers) if answer is None), len(answers))
        dumps.update((one, answer[0]) for one, answer in zip(left, answers[:whole], strict=False) if answer)
        if time.monotonic() >= until:
            return dumps | {one: Dump(one.rank, one.path, unreadable=late) for one in left[whole:]}
        for one in left[whole : whole + 1]:
            why = f"reading it takes more than {_cpu_s(one.path):.0f} s, the limit for its size, or ends the reader"
            dumps[one] = Dump(one.rank, one.path, unreadable=why)
        left = left[whole + 1 :]
    return dumps


def _in_processes(tasks: Sequence[Sequence[Found]], most: int, until: float) -> list[list[Dump] | None]:
    """What each task has read; None for those that ended their reader, or had not come back at the moment `until`."""
    # A run that reads the dumps of its own ranks needs none of these.
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures import TimeoutError as LateError  # which is the built-in one from Python 3.11
    from concurrent.futures.process import BrokenProcessPool

    workers = min(len(tasks), most)
    if not workers:
        return []
    results: list[list[Dump] | None] = []
    pending: list[Future[list[Dump]]] = []
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), limit)
    try:
        for task in tasks:
            try:
                pending.append(pool.submit(_read_task, task))
            except BrokenProcessPool:
                break
        for future in pending:
            try:
                results.append(future.result(max(0.0, until - time.monotonic())))
            except (BrokenProcessPool, LateError, MemoryError):
                results.append(None)
    finally:
        # Not `with`: that waits for every task, whatever has been raised here.
        readers = list((pool._processes or {}).values())
        manager: Any = getattr(pool, "_executor_manager_thread", None)
        pool.shutdown(wait=False, cancel_futures=True)
        for reader in readers:
            reader.kill()
        if manager is not None:  # at the end of the interpreter it would close what another thread writes to
            manager.join(ENDS_S)
    return results + [None] * (len(tasks) - len(results))


def limit() -> None:
    """Prepare a process that is to read dumps, `bounded`, and may end over one."""
    gc.disable()  # a document is a tree: nothing to collect, and much to look through
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever C it is in


def _read_task(task: Sequence[Found]) -> list[Dump]:
    dumps = []
    for one in task:
        with bounded(one.path):
            dumps.append(_read(one))
    return dumps


@contextlib.contextmanager
def bounded(path: str) -> Iterator[None]:
    """Reading a file takes neither the machine's memory nor its time, whatever the file asks for."""
    with contextlib.suppress(OSError, ValueError):
        limits.take(ROOM + ROOM_PER_BYTE * min(os.stat(path).st_size, MAX_BYTES))
    signal.setitimer(signal.ITIMER_PROF, _cpu_s(path))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _cpu_s(path: str) -> float:
    try:
        return CPU_S + CPU_S_PER_MIB * (min(os.stat(path).st_size, MAX_BYTES) >> 20)
    except OSError:
        return CPU_S


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

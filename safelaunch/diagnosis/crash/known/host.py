"""Exceptions that come of the host: its memory, files, disks, ports, and the processes that load data. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.diagnosis.frames import first_of_user, user_frame
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Case, Location, Port, PyError, RankFacts, Share, Space
from safelaunch.sizes import plural, size

SHM = "/dev/shm"
NEARLY = 0.9  # of a limit: of descriptors, of memory, of the size of a file
ROOM = 0.1  # the part of /dev/shm that is free from which on a Bus error may have had another reason; an estimate
TOO_LARGE = re.compile(r"File too large")
QUOTA = re.compile(r"Disk quota exceeded")
SURE = re.compile(r"No space left on device|Disk quota exceeded")
# torch/utils/data/_utils/signal_handling.py and dataloader.py.
WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)(?: is killed by signal: ([\w ]+))?")
IN_WORKER = re.compile(r"in DataLoader worker process (\d+)")
SIGNALS = {(signal.strsignal(number) or "").lower(): number for number in range(1, 32)}


def no_memory(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:  # noqa: ARG001
    """The host refused memory, or a limit of the process's own did."""
    because = (
        (f"the memory cgroup counts {plural(case.oom_kills, 'OOM kill')} during this run",) if case.oom_kills else ()
    )
    found = error.around.memory if error.around is not None else None
    if found is None:
        return ExceptionDetail("SL404", f"got no memory from the host: {_said(error)}", because, _remedy(error))
    if found.limit is not None and found.limit - found.mapped < found.available:
        left = size(max(found.limit - found.mapped, 0))
        what = f"got no memory: it may map {size(found.limit)} (ulimit -v), of which {left} were left"
        remedy = "raise or lift that limit (ulimit -v, RLIMIT_AS), or use less memory"
        return ExceptionDetail("SL404", what, (_said(error), *because), remedy)
    had = f"it had used {size(found.resident)}, and the host had {size(found.available)} available"
    return ExceptionDetail("SL404", f"got no memory from the host: {_said(error)}", (had, *because), _remedy(error))


def open_files(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:  # noqa: ARG001
    """A rank has as many files open as it may.

    Example:
        error[SL422]: rank 1 had too many files open: 1024 of 1024

    How it was concluded: the rank's exception says so (`Too many open files`, `received 0 items of ancdata`). At that
    moment the rank counts its descriptors, and says what most of them are. Those of functions that had failed are
    closed by then, so that fewer may be counted.

    What to do: raise the limit (`ulimit -n`, or `nofile` in [limits] of a profile), or close what is not needed. Where
    shared memory holds most of them, use `torch.multiprocessing.set_sharing_strategy('file_system')`. Where the whole
    host has too many open, raise `fs.file-max`.

    What it is not: a full disk (SL423).
    """
    found = error.around.open_files if error.around is not None else None
    worker = IN_WORKER.search(error.message)
    remedy = "raise the limit (ulimit -n, or `nofile` in [limits] of a profile), or close what is not needed"
    if "open files in system" in error.message:
        return ExceptionDetail(
            "SL422", "could open no file: the whole host has too many open", (), "raise fs.file-max (sysctl)"
        )
    if worker:
        what = f"had too many files open in its DataLoader worker {worker[1]}"
        lines = (f"the rank itself had {found.count} open; a process may have {found.limit}",) if found else ()
        return ExceptionDetail("SL422", what, lines, remedy)
    if found is None:
        return ExceptionDetail("SL422", "had too many files open", (), remedy)
    if any(share.name == "shared memory" for share in found.kinds[:1]):
        remedy = "torch.multiprocessing.set_sharing_strategy('file_system'), or raise the limit (ulimit -n)"
    # What its innermost functions had opened is closed by the time at which it is counted.
    all_there = found.count >= NEARLY * found.limit
    what = f"had too many files open: {found.count} of {found.limit}"
    left = "most of them" if all_there else f"{found.count} are still open, after the failing functions were left"
    return ExceptionDetail(
        "SL422",
        what if all_there else f"had too many files open: a process may have {found.limit}",
        (f"{left}: {_kinds(found.kinds)}",) if found.kinds else (),
        remedy,
    )


def disk(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail | None:
    """A rank could not write a file: its disk, its quota, or a limit of the size of files was reached.

    Example:
        error[SL423]: rank 1 could not write /ckpt/step-10.pt: the disk is full

    How it was concluded: the rank's exception says so (`No space left on device`, `Disk quota exceeded`, `File too
    large`). At that moment the rank looks at the disk: how much of it is free, and whether it can hold more files
    (inodes). torch.save fails for other reasons in the same words: there the disk must be full as well (1 % free at
    most, or no inode left).

    What to do: make room, or write checkpoints and caches somewhere else. Where a limit of the process was reached
    (`ulimit -f`), raise it.

    What it is not: /dev/shm, whose disk is memory (SL421). Where the disk has room, it may be a quota, or room was made
    since; the reasons say so.
    """
    said = "\n".join((error.message, *error.chain))
    space = error.around.disk if error.around is not None else None
    if space is not None and space.path.startswith(SHM):
        return shared_memory(case, ranks, error)
    return _file_too_large(space, said) or _disk_full(space, said, _remedy(error))


def _file_too_large(space: Space | None, said: str) -> ExceptionDetail | None:
    """Not the disk was full: the file was larger than one may be."""
    if space is not None and space.file_limit is not None and space.file_size > NEARLY * space.file_limit:
        what = f"could not write {space.file}: its files may have {size(space.file_limit)} each (ulimit -f)"
        return ExceptionDetail("SL423", what, _space(space), "raise or lift that limit (ulimit -f, RLIMIT_FSIZE)")
    if not TOO_LARGE.search(said):
        return None
    what = f"could not write {space.file}" if space is not None and space.file else "could not write a file"
    remedy = "see what the file system, and `ulimit -f`, allow for one file"
    return ExceptionDetail(
        "SL423", f"{what}: it is too large for its file system or for a limit", _space(space), remedy
    )


def _disk_full(space: Space | None, said: str, remedy: str) -> ExceptionDetail | None:
    """The disk, its inodes or a quota; None where neither the words nor the disk say so."""
    if not SURE.search(said) and (space is None or not space.full):
        return None  # torch.save fails for other reasons too, and in the same words
    file = f" {space.file}" if space is not None and space.file else ""
    if QUOTA.search(said):
        return ExceptionDetail("SL423", f"could not write{file}: its disk quota is used up", _space(space), remedy)
    what = f"could not write{file}: the disk is full" if file else "could not write: a disk is full"
    if space is not None and space.files_free == 0:
        what = f"could not write{file}: the file system can hold no more files (inodes)"
    because = _space(space) or ("which disk it was is not known",)
    if space is not None and not space.full:
        because = (f"{because[0]} now: room was made since, or it is a quota, or no file on that disk (a device)",)
    return ExceptionDetail("SL423", what, because, remedy)


def shared_memory(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:  # noqa: ARG001
    """/dev/shm was full. Loader workers hand over their batches in it.

    Example:
        error[SL421]: rank 1 lost a DataLoader worker (pid 5117) that found no room in /dev/shm

    How it was concluded: one of these holds:
    - an exception says so (`unable to allocate shared memory`, or `No space left on device` for a file there);
    - a loader worker died of a Bus error, as its rank's exception says;
    - a rank died of SIGBUS itself, and /dev/shm had 1 % free at most (medium confidence).

    The reasons show how large it is and what fills it. What a process had there is gone when it ends. So confidence is
    lower where the message is no proof and 10 % or more were free by then.

    What to do: give the container more (`--shm-size`, an emptyDir of medium Memory), or use fewer loader workers.

    What it is not: a worker that another signal ended (SL429), or the host's memory (SL404).
    """
    around = error.around
    space = around.shm or around.disk if around is not None else None
    remedy = "give the container more (--shm-size, an emptyDir of medium Memory), or use fewer loader workers"
    what = "found no room in /dev/shm"
    worker = WORKER.search("\n".join((error.message, *error.chain)))
    if worker:
        what = f"lost a DataLoader worker (pid {worker[1].strip()}) that found no room in /dev/shm"
    if space is None:
        return ExceptionDetail("SL421", what, (), remedy)
    full = space.free < ROOM * space.total
    certain = full or "No space left" in error.message
    line = f"/dev/shm has {size(space.free)} of {size(space.total)} free"
    if not full:  # what a process had there is gone when it ends
        line = f"/dev/shm has a size of {size(space.total)}, of which {size(space.free)} are free again"
    lines = [line if certain else f"{line}: it may have been something else"]
    if space.holds and full:
        lines.append(f"what fills it: {', '.join(f'{share.name} {size(share.count)}' for share in space.holds[:3])}")
    return ExceptionDetail("SL421", what, tuple(lines), remedy, doubt=not certain)


def port(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """A rank could not listen on a port, since it is taken. In logs it may also be the launcher.

    Example:
        error[SL424]: rank 2 could not listen on port 29500: rank 0 of this job holds it

    How it was concluded: the exception says so (`Address already in use`, `EADDRINUSE`). At that moment the rank looks
    up who listens there. Processes of other users or containers cannot be seen.

    What to do: end the process that is named (`ss -ltnp` shows it), or choose another port (`--master-port`,
    `--rdzv-endpoint=HOST:0`). Where a rank of this job holds it, give each rank a port of its own, or let one rank
    alone listen.

    What it is not: an endpoint that nobody answers at. That is SL602.
    """
    found = error.around.port if error.around is not None else None
    if found is None:
        return ExceptionDetail("SL424", "could not listen on a port: it is taken", (_said(error),), _remedy(error))
    holder, remedy = _holder(case, ranks, found)
    because = (f"its command: {found.command}",) if found.command else ()
    return ExceptionDetail(
        "SL424", f"could not listen on port {found.number}: {holder}", because, remedy or _remedy(error)
    )


def _holder(case: Case, ranks: Sequence[RankFacts], found: Port) -> tuple[str, str]:
    if not found.held:
        return "it is taken, and nobody listens there that can be seen", "choose another port"
    if found.pid is None:
        return "it is taken by a process that cannot be seen from here (of another user or container)", ""
    owner = case.of_pid(found.pid, ranks[0].node)
    if owner is None:
        return f"pid {found.pid} holds it", f"end pid {found.pid}, or choose another port"
    if owner.rank in {facts.rank for facts in ranks}:
        return f"rank {owner.rank} itself holds it already", "listen once, or on a port of its own for each use"
    return f"rank {owner.rank} of this job holds it", "give each rank a port of its own, or let one rank alone listen"


def loader_worker(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """A DataLoader worker of a rank died, and the rank raised an exception for it.

    Example:
        error[SL429]: rank 1 lost a DataLoader worker (pid 5117) to the kernel's OOM killer

    How it was concluded: the rank's exception names the worker, and mostly the signal that ended it. Of SIGKILL, the
    memory cgroup's counter tells whether it was the OOM killer. Of other signals, the worker's own stack by
    faulthandler is shown, where there is one.

    What to do: after an OOM kill use fewer workers, less prefetch (`prefetch_factor`) and smaller samples, or ask for
    more memory. After a segmentation fault look at the libraries of the data pipeline.

    What it is not: a worker that found no room in /dev/shm (Bus error, SL421), or an exception in the data set (SL401).
    One that does not answer is SL307.
    """
    pid, number = _dead_worker(error)
    lost = "lost a DataLoader worker" + (f" (pid {pid})" if pid else "")
    stack = ranks[0].fault
    place = user_frame(stack)
    if number == signal.SIGKILL and case.oom_kills:
        what = f"{lost} to the kernel's OOM killer"
        because = f"the memory cgroup counts {plural(case.oom_kills, 'OOM kill')} during this run"
        remedy = "use fewer loader workers, less prefetch (prefetch_factor) and smaller samples, or ask for more memory"
        return ExceptionDetail("SL429", what, (because,), remedy, location=place)
    what = f"{lost}: it was ended by {signal.Signals(number).name}" if number else lost
    if number == signal.SIGKILL:
        counted = (
            "no OOM kill was counted during this run" if case.oom_kills == 0 else "OOM kills cannot be counted here"
        )
        because = f"{counted}: somebody else may have sent it"
        remedy = "look at the kernel log for who sent it; if it was memory, use fewer loader workers"
        return ExceptionDetail("SL429", what, (because,), remedy, location=place)
    inner = next(iter(stack.frames), None) if stack is not None else None
    lines = (f"its innermost Python frame: {inner.function} ({inner.file}:{inner.line})",) if inner else ()
    return ExceptionDetail("SL429", what, lines, _remedy(error), location=place)


def _dead_worker(error: PyError) -> tuple[str, int]:
    """The pid of the worker and the signal that ended it, as far as the exception says (empty, 0)."""
    found = [match for text in (*reversed(error.chain), error.message) for match in WORKER.finditer(text)]
    match = next((one for one in found if one[2]), found[0] if found else None)
    if match is None:
        return "", 0
    return match[1].strip(), SIGNALS.get((match[2] or "").strip().lower(), 0)


# ------------------------------------------------------------------------------------------------ wording


def _space(space: Space | None) -> tuple[str, ...]:
    if space is None:
        return ()
    return (f"the file system {space.path} has {size(space.free)} of {size(space.total)} free",)


def _kinds(kinds: Iterable[Share]) -> str:
    return ", ".join(f"{share.count} {share.name}" for share in list(kinds)[:3])


def _said(error: PyError) -> str:
    return f"{error.type}: {one_line(error.message, 120)}".rstrip(": ")


def _remedy(error: PyError) -> str:
    return error.known.remedy if error.known is not None else ""


ORIGINAL = re.compile(r"^Original Traceback \(most recent call last\):", re.MULTILINE)
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}), in (\S+)', re.MULTILINE)


def worker_place(error: PyError) -> Location | None:
    """The innermost line of the user's program in a DataLoader worker whose exception the rank raised again."""
    begin = ORIGINAL.search(error.message)
    if begin is None:
        return None
    frames = [
        Location(file, int(line), function) for file, line, function in FRAME.findall(error.message[begin.end() :])
    ]
    return first_of_user(reversed(frames))

"""Runs in: workers. What an exception's message speaks of, looked at where the rank still is what it was: its open
files, the disk, /dev/shm, its memory, who holds a port.

The exception is on disk, and its traceback is out, before anything is looked at here; nothing is looked at that it does
not speak of. Any of it may take for ever: it is called in a thread that nobody waits for long.
"""

from __future__ import annotations

import errno
import io
import linecache
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

LOOK_S = 0.3  # at the processes of this node, and at the files in /dev/shm: the rank's end is waited for
SHOWN = 4
COMMAND = 80  # characters, and three words: what comes later on a command line may be secret
PROC = "/proc"
SHM = "/dev/shm"

OPEN_FILES = re.compile(r"Too many open files|received 0 items of ancdata")
DISK = re.compile(r"No space left on device|Disk quota exceeded|File too large|PytorchStreamWriter|unexpected pos")
MEMORY = re.compile(r"allocate memory|not enough memory|std::bad_alloc")
SHARED = re.compile(r"shared memory|\bshm\b|Bus error")
TAKEN = re.compile(r"EADDRINUSE|ddress already in use")

# c10d's TCPStore; asyncio's create_server; c10d before 2.6, gloo and others that write host:port just before the words
# (a time of day and a line of a source file look nearly like one).
PORT = re.compile(
    r"\bport:? (\d+)|on address \('[^']*', (\d+)"
    r"|(?<![\w.:])(?!\w+\.(?:cpp|cc|c|hpp|h|py|go|rs):)(?:\[[\w:.%]*\]|\*|[\w-]+(?:\.[\w-]+)+|[A-Za-z][\w-]*):(\d{1,5})"
    r"[:;,.]?\s?(?:- |bind: )?\(?(?:errno:? ?\d+ - |\[Errno \d+\] )?[aA]ddress already in use"
)
BIND = re.compile(r"\b(?:bind|create_server|\w+Server)\(\s*\(\s*[^,()]*,\s*([A-Za-z_][\w.]*|\d+)\s*\)")


def of(error: BaseException) -> Dict[str, Any]:
    """What there is to say, in the shape of `model.Surroundings`; empty for most exceptions."""
    chain = list(_chain(error))
    said = "\n".join(_text(one) for one in chain)
    numbers = {getattr(one, "errno", None) for one in chain}
    found: Dict[str, Any] = {}
    shared = bool(SHARED.search(said))
    if OPEN_FILES.search(said) or numbers & {errno.EMFILE, errno.ENFILE}:
        found["open_files"] = _attempt(open_files)
    if shared:
        found["shm"] = _attempt(shared_memory)
    elif DISK.search(said) or numbers & {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        found["disk"] = _attempt(lambda: disk(chain))
    found.update(of_memory(error))
    if TAKEN.search(said) or errno.EADDRINUSE in numbers:
        found["port"] = _attempt(lambda: port(chain, said))
    return {name: value for name, value in found.items() if value is not None}


def of_memory(error: BaseException) -> Dict[str, Any]:
    """What there is to say of an exception that speaks of the host's memory, and of no other."""
    for one in _chain(error):
        if isinstance(one, MemoryError) or MEMORY.search(_text(one)) or getattr(one, "errno", None) == errno.ENOMEM:
            return {"memory": _attempt(memory)}
    return {}


def _attempt(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except Exception:
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: List[int] = []
    current: Optional[BaseException] = error
    while current is not None and id(current) not in seen and len(seen) < 10:
        seen.append(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _text(error: BaseException) -> str:
    try:
        return str(error)[:4000]
    except Exception:
        return ""


# ------------------------------------------------------------------------------------------------ descriptors


def open_files() -> Dict[str, Any]:
    """This process's descriptors, and what most of them are, but for the three that it was started with."""
    kinds: Dict[str, int] = {}
    names = os.listdir(PROC + "/self/fd")
    for name in names:
        if name in ("0", "1", "2"):
            continue
        try:
            kind = _kind(os.readlink("%s/self/fd/%s" % (PROC, name)))
        except OSError:
            continue  # the one that the list itself needed
        kinds[kind] = kinds.get(kind, 0) + 1
    return {"limit": os.sysconf("SC_OPEN_MAX"), "count": len(names) - 1, "kinds": _shares(kinds)}


def _kind(target: str) -> str:
    """What stands behind a descriptor, the same for those that are alike."""
    if target.startswith((SHM + "/", "/memfd:")):
        return "shared memory"
    if not target.startswith("/"):
        kind = target.partition(":")[2] if target.startswith("anon_inode:") else target.partition(":")[0]
        return {"socket": "sockets", "pipe": "pipes"}.get(kind, kind.strip("[]"))
    folder, name = os.path.split(target.replace(" (deleted)", ""))
    return os.path.join(folder, re.sub(r"\d+", "*", name))


def _shares(counts: Dict[str, int]) -> List[Dict[str, Any]]:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "count": count} for name, count in most[:SHOWN]]


# ------------------------------------------------------------------------------------------------ file systems


def shared_memory(root: str = SHM) -> Dict[str, Any]:
    """How full /dev/shm is, and what fills it. Tensors of torch have no names there any more."""
    found = _space(root)
    deadline = time.monotonic() + LOOK_S
    kinds: Dict[str, int] = {}
    for folder, _, names in os.walk(root):
        if time.monotonic() > deadline:
            del found["_free"]
            return found
        for name in names if "/safelaunch-" not in folder else ():
            path = os.path.join(folder, name)
            try:
                size = os.lstat(path).st_blocks * 512
            except OSError:
                continue
            kind = re.sub(r"\d+", "*", path)
            kinds[kind] = kinds.get(kind, 0) + size
    nameless = found["total"] - found.pop("_free") - sum(kinds.values())
    if nameless > 0:
        kinds["files without a name (tensors of torch, memory of NCCL)"] = nameless
    return {**found, "holds": _shares({kind: size for kind, size in kinds.items() if size})}


def disk(chain: List[BaseException]) -> Optional[Dict[str, Any]]:
    """The file system on which the exception's file was to be written; None where no file is known."""
    files = [path for error in chain for path in _files(error)]
    for path in files:
        found = _attempt(lambda path=path: _space(path))  # type: ignore[misc]
        if found is not None:
            del found["_free"]
            size = _attempt(lambda path=path: os.path.getsize(path))  # type: ignore[misc]
            return {**found, "file": path, "file_size": size or 0, "file_limit": _limit("RLIMIT_FSIZE")}
    return None


def _files(error: BaseException) -> Iterator[str]:
    """Files that an exception is about: the one that it names, else those that its innermost frames write to."""
    name = getattr(error, "filename", None)
    if isinstance(name, (str, bytes)):
        yield os.path.abspath(os.fsdecode(name))
        return
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames):
        torch_saves = frame.f_code.co_filename.endswith("torch/serialization.py")
        written = [value for value in frame.f_locals.values() if _is_written(value)]
        if torch_saves and frame.f_code.co_name == "save":
            written.append(frame.f_locals.get("f"))
        for value in written:
            path = getattr(value, "name", value)
            if isinstance(path, (str, bytes, os.PathLike)):
                yield os.path.abspath(os.fsdecode(path))


def _is_written(value: Any) -> bool:
    plain = isinstance(value, (io.BufferedWriter, io.TextIOWrapper, io.FileIO, io.BufferedRandom))
    return plain and value not in (sys.stdout, sys.stderr) and _attempt(value.writable) is not False


def _space(path: str) -> Dict[str, Any]:
    """The space of the file system that a file lies on, or would lie on."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    status = os.statvfs(path)
    while not os.path.ismount(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    size = status.f_frsize
    return {
        "path": path,
        "total": status.f_blocks * size,
        "free": status.f_bavail * size,
        "files_free": status.f_favail if status.f_files else None,
        "_free": status.f_bfree * size,
    }


def _limit(name: str) -> Optional[int]:
    import resource  # a library, and a rank that has loaded none ends sooner (`ending`)

    soft: int = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


# ------------------------------------------------------------------------------------------------ memory


def memory() -> Dict[str, Any]:
    """What this process may have of the host's memory and has had of it, in bytes, and what the host still has."""
    return {
        "limit": _limit("RLIMIT_AS"),
        "mapped": _kib(PROC + "/self/status", "VmPeak"),
        "resident": _kib(PROC + "/self/status", "VmHWM"),
        "available": _kib(PROC + "/meminfo", "MemAvailable"),
    }


def _kib(path: str, field: str) -> int:
    with open(path) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


# ------------------------------------------------------------------------------------------------ ports


def port(chain: List[BaseException], said: str) -> Optional[Dict[str, Any]]:
    """The port that was taken, and who holds it."""
    match = PORT.search(said)
    number = int(next(filter(None, match.groups()))) if match else _bound(chain)
    if number is None or not 0 < number < 65536:
        return None
    inodes = _sockets(number)
    pid = _owner(inodes) if inodes else None
    return {"number": number, "held": bool(inodes), "pid": pid, "command": _command(pid) if pid else ""}


def _bound(chain: List[BaseException]) -> Optional[int]:
    """The number that the failing line binds to, where the line says so itself: Python's message has none."""
    for error in chain:
        trace = error.__traceback__
        frames = []
        while trace is not None:
            frames.append((trace.tb_frame, trace.tb_lineno))
            trace = trace.tb_next
        for frame, line in reversed(frames):
            server = getattr(frame.f_locals.get("self"), "server_address", None)
            if frame.f_code.co_filename.endswith("socketserver.py") and isinstance(server, tuple) and len(server) > 1:
                return int(server[1])
            match = BIND.search(linecache.getline(frame.f_code.co_filename, line))
            if match:
                value = _value(match.group(1), frame)
                return value if isinstance(value, int) else None
    return None


def _value(name: str, frame: Any) -> Any:
    if name.isdecimal():
        return int(name)
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for part in rest:
        value = getattr(value, "__dict__", {}).get(part)  # a property could do anything
    return value


def _sockets(number: int) -> List[str]:
    """The inodes of TCP sockets bound to a port of this host; those that listen come first."""
    found: List[Tuple[bool, str]] = []
    for name in ("tcp", "tcp6"):
        try:
            with open("%s/net/%s" % (PROC, name)) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == number and fields[9] != "0":
                found.append((fields[3] != "0A", fields[9]))  # 0A: LISTEN (include/net/tcp_states.h)
    return [inode for _, inode in sorted(found)]


def _owner(inodes: List[str]) -> Optional[int]:
    """The process that has one of these sockets, as far as its descriptors may be read. Of a process and its children
    that share one, the oldest."""
    deadline = time.monotonic() + LOOK_S
    wanted = {"socket:[%s]" % inode for inode in inodes[:1]}
    for pid in sorted(int(name) for name in os.listdir(PROC) if name.isdecimal()):
        if time.monotonic() > deadline:
            break
        try:
            for name in os.listdir("%s/%d/fd" % (PROC, pid)):
                if os.readlink("%s/%d/fd/%s" % (PROC, pid, name)) in wanted:
                    return pid
        except OSError:
            continue  # it has ended, or belongs to somebody else
    return None


def _command(pid: int) -> str:
    try:
        with open("%s/%d/cmdline" % (PROC, pid), "rb") as file:
            words = file.read(1 << 16).decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    # Arguments may hold secrets, and the process may be a stranger's.
    shown = [os.path.basename(words[0])]
    if shown[0].startswith("python"):
        shown += [os.path.basename(word) for word in words[1:] if not word.startswith("-")][: "-c" not in words]
    return " ".join(shown).strip()[:COMMAND]

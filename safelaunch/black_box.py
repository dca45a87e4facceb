"""The black box: a mapped slot per local rank that outlives the rank, with its latest collectives.

A rank that aborts in native code takes torch's Flight Recorder with it. What it wrote here can still be read by
the supervisor. The writer runs inside workers, whatever their Python (3.8 syntax, standard library only), and
never blocks; the reader must expect a half-written entry.

Layout of a slot of `SLOT` bytes (little endian):

    0     u32 magic, u32 pid, f64 CLOCK_MONOTONIC at which the interpreter began to shut down (0: it has not)
    16    the line that called os._exit or sys.exit, with which code, and what a library said that did so for it; line 0
          where none did, with the file of the program: text, `TEXT` bytes at most
    1016  u8: an uncaught exception was on its way when the interpreter began to shut down
    1024  heartbeats and phases: see `pulse`
    2048  a ring of `ENTRIES` entries of `ENTRY` bytes:
          u64 ordinal (0 while being written), f64 CLOCK_MONOTONIC, f64 when it returned (0: not yet, negative: it was
          issued, and is or was waited for), i64 seq, i64 numel, u32 group size, u8 status, i32 peer (-1: none), u32
          native thread id, text
    51200 how many calls of `should_stop()` the rank has made, and when it is to stop: see `stop_words`
    51264 which of its steps are to be profiled, and how far it is with that: see `trace_words`
"""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import struct
from threading import get_native_id
from time import monotonic
from typing import Any, Dict

from safelaunch import pulse, stop_words, trace_words

MAGIC = 0x5AFE1A05
TEXT = 1000
SEALED = "safelaunch"  # what the kernel shows as the name of the file
RAISED = 16 + TEXT
PULSE = 1024
RING = 2048
FILE = 200  # bytes of a file name that are kept: its end
MEMBERS = 256  # slots where nobody knows how many ranks will come
ENTRIES = 128  # three rounds of a stage with ten micro batches, forward and back, by which its habits are known
ENTRY = 384
STOP = RING + ENTRIES * ENTRY
TRACE = STOP + stop_words.SIZE
SLOT = TRACE + trace_words.SIZE
TEXTS = 1024  # of entries that a writer keeps: about 0.3 MB
INSIDE, DONE, ISSUED, RAISED_AN_ERROR = 0, 1, 2, 3  # the status of an entry
HEAD = struct.Struct("<IId")
_TIME = struct.Struct("<d")

# A worker that carries our handler writes its Python stacks to `stacks-PID.txt` in its rank's folder. SIGUSR1 and
# SIGUSR2 belong to the script.
STACK_SIGNAL = signal.SIGRTMAX - 2

BODY = struct.Struct("<QddqqIBiI")
ORDINAL = struct.Struct("<Q")
_RETURNED = struct.calcsize("<Qd") // 8  # an item of eight bytes
_STATUS = struct.calcsize("<QddqqI")
_BEGUN = PULSE // 8 + pulse.CALLS
_ENDED, _CALLED = _BEGUN + 1, _BEGUN + 2
_LOADED, _WAITED, _TRACED = (PULSE // 8 + item for item in (pulse.LOADED, pulse.WAITED, pulse.TRACED))


# What this process has made, by the path that leads there.
_SEALED: Dict[str, int] = {}


def create(path: str, slots: int) -> None:
    """Create the file for `slots` local ranks; it is there for as long as the process that calls this.

    The space is allocated at once, and nobody can take it away: whoever writes to a mapped file where there is none is
    killed (SIGBUS), and so is whoever reads. So `path` leads to a sealed file in memory, which a rank that opens it to
    write it anew cannot shorten (EPERM). Where the kernel has no such thing, or no /proc is there to lead to it, it is
    a plain file.

    Raises:
        OSError: when there is no room or no permission.
    """
    size = slots * SLOT
    try:
        sealed = _sealed(size)
    except (OSError, AttributeError):
        sealed = -1
    if sealed >= 0:
        os.symlink("/proc/%d/fd/%d" % (os.getpid(), sealed), path)
        if _leads_to(path, sealed):
            _SEALED[path] = sealed
            return
        os.close(sealed)
        os.unlink(path)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def own(path: str) -> str:
    """Where to open what this process has made: a rank may have put another file in its place, to cut that off."""
    return "/proc/self/fd/%d" % _SEALED[path] if path in _SEALED else path


def _sealed(size: int) -> int:
    """A descriptor of a file in memory that can neither grow nor shrink any more."""
    import fcntl

    descriptor = os.memfd_create(SEALED, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(descriptor, 0o600)
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _leads_to(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


class Writer:
    """A worker's own slot; without a path it has none yet (see `bind`), and nobody sees what is written.

    Args:
        path: the file that the supervisor created.
        index: the local rank.

    Raises:
        OSError, ValueError: when the file is gone or too small.
    """

    def __init__(self, path: str = "", index: int = -1) -> None:
        self.path, self.index = "", -1
        self._base = 0
        self._memory: Any = bytearray(SLOT)
        self._counts = itertools.count(1)
        self._begun, self._ended = itertools.count(1), itertools.count(1)  # of collectives, and of waits for them
        self._waited = 0.0
        self._texts: dict[Any, bytes] = {}
        self._view()
        self.pulse = pulse.Writer(self._memory, PULSE)
        self.stop = stop_words.Rank(self._memory, STOP)
        if path:
            self.bind(path, index)

    def bind(self, path: str, index: int) -> None:
        """Take a slot, for the first time; arguments and errors are those of the class."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            # All slots are mapped: an offset would have to be a multiple of the page size, which differs.
            memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        base = index * SLOT
        memory[base : base + SLOT] = bytes(SLOT)
        self.path, self.index, self._base, self._memory = path, index, base, memory
        self._view()
        self.pulse.bind(memory, base + PULSE)
        self.stop = stop_words.Rank(memory, base + STOP)
        HEAD.pack_into(self._memory, self._base, MAGIC, os.getpid(), 0.0)

    def _view(self) -> None:
        """Items of a view are stored in a third of the time that `struct` takes."""
        own = memoryview(self._memory)[self._base : self._base + SLOT]
        self._u64, self._f64 = own.cast("Q"), own.cast("d")
        self.trace = trace_words.view(self._memory, self._base + TRACE)

    @property
    def traced(self) -> int:
        """The number of the trace that the supervisor asks for, 0 where it asks for none."""
        number: int = self._u64[_TRACED]
        return number

    @property
    def spent(self) -> tuple[float, float]:
        """The seconds that the main thread has spent in loaders, and in collectives that Python called."""
        return self._f64[_LOADED], self._f64[_WAITED]

    def copy(self) -> bytes:
        """The slot as it is now."""
        return bytes(self._memory[self._base : self._base + SLOT])

    def text(self, op: str, place: tuple[str, int, str], group: str, dtype: str, tag: int = 0, how: str = "") -> bytes:
        """What an entry says in words, which `enter` takes: a program makes its calls at a few places (file, line,
        function), again and again."""
        words = (op, place, group, dtype, tag, how)
        text = self._texts.get(words)
        if text is None:
            file, line, function = place
            where = (_end(file), b"%d" % line, function.encode())
            # Empty last words, too: what an older entry has left behind the text must not be read as one.
            parts = (op.encode(), group.encode(), dtype.encode(), *where, b"%d" % tag if tag else b"", how.encode())
            text = b"\0".join(parts)[: ENTRY - BODY.size - 1] + b"\0"
            if len(self._texts) >= TEXTS:
                self._texts.clear()
            self._texts[words] = text
        return text

    def enter(self, text: bytes, group_size: int, seq: int, numel: int, peer: int = -1) -> tuple[int, int, float]:
        """Record that a collective begins; returns what `leave` takes: where, its ordinal, and when. About 1 µs.

        Args:
            text: of `text`.
            group_size: in ranks.
            seq: its number in the group.
            numel: elements of its tensor, -1 where that is not known.
            peer: the other rank, -1 where there is none.
        """
        count = next(self._counts)  # threads of a rank may come at the same moment
        place = RING + (count % ENTRIES) * ENTRY
        memory, begin, u64 = self._memory, self._base + place, self._u64
        # The ordinal is written last: an entry with ordinal 0 is skipped by the reader.
        now = monotonic()
        BODY.pack_into(memory, begin, 0, now, 0.0, seq, numel, group_size, INSIDE, peer, get_native_id())
        begin += BODY.size
        memory[begin : begin + len(text)] = text
        u64[place // 8] = count
        u64[_BEGUN] = next(self._begun)
        self._f64[_CALLED] = now
        return place, count, now

    def leave(self, entry: tuple[int, int, float], status: int = DONE, waited: bool = False) -> None:
        """Record that the collective which `enter` returned has ended, or only been issued, unless the ring has passed
        over it; with `waited` its time counts as the main thread's waiting."""
        place, count, begun = entry
        now, item = monotonic(), place // 8
        u64, f64 = self._u64, self._f64
        if u64[item] == count:
            if status != ISSUED and not f64[item + _RETURNED]:
                f64[item + _RETURNED] = now
            self._memory[self._base + place + _STATUS] = status
        u64[_ENDED] = next(self._ended)
        f64[_CALLED] = now
        if waited:
            self._waited += now - begun
            f64[_WAITED] = self._waited

    def again(self, entry: tuple[int, int, float], call: tuple[Any, ...]) -> tuple[int, int, float]:
        """Record that the rank waits for a call that it had issued; returns what `leave` takes.

        Args:
            entry: what `enter` has returned.
            call: what `enter` has taken.
        """
        place, count, _ = entry
        if self._u64[place // 8] != count:
            return self.enter(*call)
        self._f64[place // 8 + _RETURNED] = -1.0  # what it did in between was not spent in it
        self._memory[self._base + place + _STATUS] = INSIDE
        now = monotonic()
        self._u64[_BEGUN] = next(self._begun)
        self._f64[_CALLED] = now
        return place, count, now

    def shutting_down(self, raised: bool) -> None:
        """Record that the interpreter has begun to shut down, because of an exception or not: the rank enters no
        collective any more."""
        self._memory[self._base + RAISED] = raised
        _TIME.pack_into(self._memory, self._base + 8, monotonic())

    def exit_call(self, file: str, line: int, function: str, code: object, said: str = "", handled: str = "") -> None:
        """Record who called `os._exit` or `sys.exit`, with what, what a library said that did so for it, and the signal
        in whose handler it was."""
        words = (function, "0" if code is None else str(code), handled, said)
        texts = (word[:TEXT].partition("\0")[0].encode("utf-8", "replace") for word in words)
        data = b"\0".join((_end(file), b"%d" % line, *texts))[: TEXT - 1] + b"\0"
        start = self._base + 16
        self._memory[start : start + len(data)] = data


def stand_for(path: str, index: int, pid: int) -> None:
    """Make an empty slot for a process that has none, and of which is known that it has nothing to record."""
    descriptor = os.open(own(path), os.O_RDWR)
    try:
        os.pwrite(descriptor, HEAD.pack(MAGIC, pid, 0.0) + bytes(SLOT - HEAD.size), index * SLOT)
    finally:
        os.close(descriptor)


def caught(path: str, index: int, pid: int) -> int:
    """The signals, as bits, that a handler of ours only notes in the rank `pid` (`worker.stopping`): none of them ends
    it. 0 where it has none, or no slot."""
    try:
        descriptor = os.open(own(path), os.O_RDONLY)
    except OSError:
        return 0
    try:
        magic, owner, _ = HEAD.unpack(os.pread(descriptor, HEAD.size, index * SLOT))
        data = os.pread(descriptor, 8, index * SLOT + STOP + 8 * stop_words.CAUGHT)
        return ORDINAL.unpack(data)[0] if (magic, owner) == (MAGIC, pid) else 0
    except (OSError, struct.error):
        return 0
    finally:
        os.close(descriptor)


def ending(path: str, index: int, pid: int, signum: int) -> int:
    """The signal that does to this rank what `signum` would do to one that has no handler of ours."""
    return signal.SIGKILL if caught(path, index, pid) >> signum & 1 else signum


def _end(file: str) -> bytes:
    return file.encode("utf-8", "replace")[-FILE:]


def beside(path: str, index: int, what: str) -> str:
    """The file of a rank that lies beside the black box, such as `groups`."""
    return "%s.%d.%s" % (path, index, what)

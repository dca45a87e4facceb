"""The black box: a mapped slot per local rank that outlives the rank, with its latest collectives.

A rank that aborts in native code takes torch's Flight Recorder with it. What it wrote here can still be read by
the supervisor. The writer runs inside workers, whatever their Python (3.8 syntax, standard library only), and
never blocks; the reader must expect a half-written entry.

Layout of a slot of `SLOT` bytes (little endian):

    0     u32 magic, u32 pid, f64 CLOCK_MONOTONIC at which the interpreter began to shut down (0: it has not)
    16    the line that called os._exit or sys.exit, and with which code: text, `TEXT` bytes at most
    1016  u8: an uncaught exception was on its way when the interpreter began to shut down
    1024  a ring of `ENTRIES` entries of `ENTRY` bytes:
          u64 ordinal (0 while being written), f64 CLOCK_MONOTONIC, i64 seq, i64 numel, u32 group size, u8 done, text
"""

from __future__ import annotations

import mmap
import os
import struct
import time

SLOT = 4096
MAGIC = 0x5AFE1A01
TEXT = 1000
RAISED = 16 + TEXT
RING = 1024
FILE = 200  # bytes of a file name that are kept: its end
ENTRIES = 8
ENTRY = 384
_HEAD = struct.Struct("<IId")
_LEFT = struct.Struct("<d")
_BODY = struct.Struct("<QdqqIB")
_ORDINAL = struct.Struct("<Q")
_DONE = _BODY.size - 1
_SEPARATOR = "\0"


def create(path: str, slots: int) -> None:
    """Create the file for `slots` local ranks.

    The space is allocated at once: writing to a mapped file on a full file system would kill the worker (SIGBUS).

    Raises:
        OSError: when there is no room or no permission.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, slots * SLOT)
    finally:
        os.close(descriptor)


class Writer:
    """A worker's own slot.

    Args:
        path: the file that the supervisor created.
        index: the local rank.

    Raises:
        OSError, ValueError: when the file is gone or too small.
    """

    def __init__(self, path: str, index: int) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            # All slots are mapped: an offset would have to be a multiple of the page size, which differs.
            self._memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._base = index * SLOT
        self._count = 0
        self._memory[self._base : self._base + SLOT] = bytes(SLOT)
        _HEAD.pack_into(self._memory, self._base, MAGIC, os.getpid(), 0.0)

    def enter(
        self,
        op: str,
        group: str,
        group_size: int,
        seq: int,
        numel: int,
        dtype: str,
        file: str,
        line: int,
        function: str,
    ) -> tuple[int, int]:
        """Record that a collective begins; returns what `leave` takes. About 2 µs."""
        self._count += 1
        count = self._count
        offset = self._base + RING + (count % ENTRIES) * ENTRY
        words = (op.encode(), group.encode(), dtype.encode(), _end(file), b"%d" % line, function.encode())
        text = b"\0".join(words)[: ENTRY - _BODY.size - 1] + b"\0"
        memory = self._memory
        # The ordinal is written last: an entry with ordinal 0 is skipped by the reader.
        _BODY.pack_into(memory, offset, 0, time.monotonic(), seq, numel, group_size, 0)
        memory[offset + _BODY.size : offset + _BODY.size + len(text)] = text
        _ORDINAL.pack_into(memory, offset, count)
        return offset, count

    def leave(self, entry: tuple[int, int]) -> None:
        """Record that the collective which `enter` returned has ended, unless the ring has passed over it."""
        offset, count = entry
        if _ORDINAL.unpack_from(self._memory, offset)[0] == count:
            self._memory[offset + _DONE] = 1

    def shutting_down(self, raised: bool) -> None:
        """Record that the interpreter has begun to shut down, because of an exception or not: the rank enters no
        collective any more."""
        self._memory[self._base + RAISED] = raised
        _LEFT.pack_into(self._memory, self._base + 8, time.monotonic())

    def exit_call(self, file: str, line: int, function: str, code: object) -> None:
        """Record who called `os._exit` or `sys.exit`, and with what."""
        said = "0" if code is None else str(code)
        words = (_end(file), b"%d" % line, function.encode(), said.encode("utf-8", "replace"))
        data = b"\0".join(words)[: TEXT - 1] + b"\0"
        start = self._base + 16
        self._memory[start : start + len(data)] = data


def _end(file: str) -> bytes:
    return file.encode("utf-8", "replace")[-FILE:]


class Entry:
    """One collective as the slot holds it; see `model.Collective` for the meaning of the fields."""

    __slots__ = (
        "done", "dtype", "file", "function", "group", "group_size", "line", "numel", "op", "ordinal", "seq", "t",
    )  # fmt: skip

    def __init__(self, ordinal: int, t: float, seq: int, numel: int, group_size: int, done: int, text: str) -> None:
        self.ordinal, self.t, self.seq, self.numel, self.group_size = ordinal, t, seq, numel, group_size
        self.done = bool(done)
        parts = (text.split(_SEPARATOR) + [""] * 6)[:6]
        self.op, self.group, self.dtype, self.file, line, self.function = parts
        self.line = int(line) if line.isdigit() else 0


class Slot:
    """What one rank wrote. `shut_down` is CLOCK_MONOTONIC or None, `raised` whether an exception was the reason;
    `exit_call` is (file, line, function, code); `entries` are oldest first."""

    __slots__ = ("entries", "exit_call", "pid", "raised", "shut_down")

    def __init__(self, data: bytes) -> None:
        _, self.pid, left = _HEAD.unpack_from(data, 0)
        self.shut_down = left or None
        self.raised = bool(data[RAISED])
        file, line, function, code = (data[16 : 16 + TEXT].decode("utf-8", "replace").split(_SEPARATOR) + [""] * 4)[:4]
        self.exit_call = (file, int(line) if line.isdigit() else 0, function, code) if file else None
        self.entries = []
        for offset in range(RING, RING + ENTRIES * ENTRY, ENTRY):
            ordinal, t, seq, numel, group_size, done = _BODY.unpack_from(data, offset)
            if ordinal:
                text = data[offset + _BODY.size : offset + ENTRY].decode("utf-8", "replace")
                self.entries.append(Entry(ordinal, t, seq, numel, group_size, done, text))
        self.entries.sort(key=lambda entry: entry.ordinal)


def read(path: str, index: int) -> Slot | None:
    """The slot of a local rank, or None when no rank has written it.

    Raises:
        OSError: when the file cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(index * SLOT)
        data = file.read(SLOT)
    return Slot(data) if len(data) == SLOT and _HEAD.unpack_from(data, 0)[0] == MAGIC else None

"""What the supervisor, or whoever comes later, reads of a black box; see `black_box` for its layout.

A rank can write anything into its slot, and may be in the middle of it: an entry may be half written.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from time import monotonic
from typing import Any

from safelaunch import pulse, regular, stop_words, trace_words
from safelaunch.black_box import (
    BODY,
    ENTRIES,
    ENTRY,
    HEAD,
    MAGIC,
    ORDINAL,
    PULSE,
    RAISED,
    RING,
    SEALED,
    SLOT,
    STOP,
    TEXT,
    TRACE,
    own,
)  # fmt: skip

_U32 = struct.Struct("<I")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


class Entry:
    """One collective as the slot holds it; see `model.Collective` for the meaning of the fields."""

    __slots__ = (
        "dtype", "file", "function", "group", "group_size", "how", "line", "numel", "op", "ordinal", "peer", "returned",
        "seq", "status", "t", "tag", "thread",
    )  # fmt: skip

    def __init__(self, data: bytes, offset: int) -> None:
        body = BODY.unpack_from(data, offset)
        self.ordinal, self.t, self.returned, self.seq, self.numel, self.group_size, self.status = body[:7]
        self.peer, self.thread = body[7:]
        text = data[offset + BODY.size : offset + ENTRY].decode("utf-8", "replace")
        parts = (text.split("\0") + [""] * 8)[:8]
        self.op, self.group, self.dtype, self.file, line, self.function, tag, self.how = parts
        self.line, self.tag = _number(line), _number(tag)

    @property
    def plausible(self) -> bool:
        """Whether it may be what a writer of ours wrote: a rank can write anything into its slot."""
        return bool(0.0 < self.t <= monotonic() + pulse.FAR_S and self.ordinal <= pulse.LARGEST)


class Slot:
    """What one rank wrote. `shut_down` is CLOCK_MONOTONIC or None, `raised` whether an exception was the reason;
    `exit_call` is (file, line, function, code), `exit_said` what a library said that made it, and `exit_signal` the
    signal in whose handler it was made; `program` is the file of a program that has ended without one.
    `entries` are oldest first."""

    __slots__ = ("entries", "exit_call", "exit_said", "exit_signal", "pid", "program", "pulse", "raised", "shut_down")

    def __init__(self, data: bytes) -> None:
        _, self.pid, left = HEAD.unpack_from(data, 0)
        self.shut_down = left if 0.0 < left <= monotonic() + pulse.FAR_S else None
        self.raised = bool(data[RAISED])
        words = data[16 : 16 + TEXT].decode("utf-8", "replace").split("\0") + [""] * 6
        file, number, function, code, self.exit_signal, self.exit_said = words[:6]
        line = _number(number)
        self.exit_call = (file, line, function, code) if line else None
        self.program = "" if line else file
        self.entries = []
        for offset in range(RING, RING + ENTRIES * ENTRY, ENTRY):
            if ORDINAL.unpack_from(data, offset)[0]:
                self.entries.append(Entry(data, offset))
        self.entries = sorted((one for one in self.entries if one.plausible), key=lambda entry: entry.ordinal)
        self.pulse = pulse.Pulse(data, PULSE)


def read(path: str, index: int, owner: int | None = None) -> Slot | None:
    """The slot of a local rank, or None when no rank has written it; `owner` is the user whose file it has to be.

    Raises:
        OSError: when the file cannot be read.
    """
    with open(_opened(path, owner), "rb") as file:
        file.seek(index * SLOT)
        data = file.read(SLOT)
    return Slot(data) if len(data) == SLOT and HEAD.unpack_from(data, 0)[0] == MAGIC else None


def _opened(path: str, owner: int | None, *, mapped: bool = False, writable: bool = False) -> int:
    sealed = _sealed_of(path, owner) if owner is not None else own(path)
    descriptor = regular.descriptor(sealed or path, owner, linked=bool(sealed), writable=writable)
    if mapped and owner not in (None, os.geteuid()):
        regular.demand_sealed(descriptor, path)
    return descriptor


def _sealed_of(path: str, owner: int) -> str:
    """The sealed file that this user's link leads to, where it is one that `create` has made; else nothing."""
    try:
        target = os.readlink(path) if os.lstat(path).st_uid == owner else ""
        made = target.startswith("/proc/") and os.readlink(target).startswith("/memfd:" + SEALED)
    except OSError:
        return ""
    return target if made else ""


class Reader:
    """The file as the supervisor keeps it mapped: a look at a pulse costs microseconds.

    Args:
        path: of the file.
        owner: the user whose file it has to be; None where it is our own.
        reads_only: nothing can be asked of the ranks, nor changed by mistake.

    Raises:
        OSError, ValueError: when the file cannot be mapped.
    """

    def __init__(self, path: str, owner: int | None = None, *, reads_only: bool = False) -> None:
        if owner is not None:
            descriptor = _opened(path, owner, mapped=True, writable=not reads_only)
        else:
            descriptor = os.open(own(path), os.O_RDWR)
        try:
            self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ if reads_only else mmap.ACCESS_WRITE)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of the file; nothing may be read any more."""
        self._memory.close()

    def pulse(self, index: int, pid: int) -> pulse.Pulse | None:
        """The pulse of a local rank, or None where the process `pid` has not written one."""
        base = index * SLOT
        magic, owner, _ = HEAD.unpack_from(self._memory, base)
        return pulse.Pulse(self._memory, base + PULSE) if magic == MAGIC and owner == pid else None

    def stop_words(self, ranks: Iterable[tuple[int, int]]) -> stop_words.Ranks:
        """The words for a stop of these ranks (local rank, pid), of those that have taken their slots."""
        view, bases = memoryview(self._memory), []
        for index, pid in ranks:
            base = index * SLOT
            if HEAD.unpack_from(self._memory, base)[:2] == (MAGIC, pid):
                bases.append(base + STOP)
        return stop_words.Ranks([view[base : base + stop_words.SIZE] for base in bases])

    def trace_words(self, index: int, pid: int) -> Any:
        """The words for a trace of a local rank, or None where the process `pid` has not taken its slot."""
        base = index * SLOT
        mine = HEAD.unpack_from(self._memory, base)[:2] == (MAGIC, pid)
        return trace_words.view(self._memory, base + TRACE) if mine else None

    def trace(self, index: int, number: int) -> None:
        """Ask a rank for a trace, once its words say what is wanted; 0 for no more."""
        ORDINAL.pack_into(self._memory, index * SLOT + PULSE + 8 * pulse.TRACED, number)

    def latest(self, index: int, pid: int) -> Entry | None:
        """The latest call of a local rank, or None where the process `pid` has recorded none."""
        base = index * SLOT
        if HEAD.unpack_from(self._memory, base)[:2] != (MAGIC, pid):
            return None
        places = range(base + RING, base + RING + ENTRIES * ENTRY, ENTRY)
        ordinal, offset = max((ORDINAL.unpack_from(self._memory, place)[0], place) for place in places)
        entry = Entry(self._memory[offset : offset + ENTRY], 0) if ordinal else None
        return entry if entry is not None and entry.plausible else None

    def arrivals(self, index: int, pid: int, after: int) -> list[tuple[Any, ...]]:
        """The latest calls of a local rank behind the ordinal `after`, oldest first, in the short: ordinal, time,
        when it returned, number, size of the group, status, thread, peer, elements, and the words op, group, dtype,
        file, line, function, tag, how. Costs what has come since then, not what the ring holds."""
        ring = index * SLOT + RING
        if HEAD.unpack_from(self._memory, ring - RING)[:2] != (MAGIC, pid):
            return []
        found: list[tuple[Any, ...]] = []
        count, latest = after + 1, monotonic() + pulse.FAR_S
        for _ in range(2 * ENTRIES):
            offset = ring + (count % ENTRIES) * ENTRY
            ordinal = ORDINAL.unpack_from(self._memory, offset)[0]
            if ordinal < count:
                break  # the next one has not come, or is being written
            if ordinal == count:
                data = self._memory[offset : offset + ENTRY]
                _, t, returned, seq, numel, size, status, peer, thread = BODY.unpack_from(data)
                # Written over in between: what was copied may be of two calls.
                if ORDINAL.unpack_from(self._memory, offset)[0] == ordinal and 0.0 < t <= latest >= returned >= -1:
                    words = tuple(data[BODY.size :].split(b"\0", 8)[:8])
                    found.append((ordinal, t, returned, seq, size, status, thread, peer, numel, words))
            else:
                count = ordinal - ENTRIES  # the ring has gone round: what it still holds begins behind that
            count += 1
        return found

    def ask(self, index: int) -> None:
        """Ask a rank for a dump of its Flight Recorder; `Pulse.answered` counts the answers."""
        at = index * SLOT + PULSE + pulse.ASKED_AT
        _U32.pack_into(self._memory, at, _U32.unpack_from(self._memory, at)[0] + 1)

    def follow(self, index: int, seconds: float, every_s: float) -> None:
        """Ask a rank to follow its GPU; `Pulse.followed` counts the answers."""
        at = index * SLOT + PULSE + pulse.FOLLOW_AT
        asked, over, _, _ = pulse.FOLLOW.unpack_from(self._memory, at)
        pulse.FOLLOW.pack_into(self._memory, at, asked, over, seconds, every_s)
        _U32.pack_into(self._memory, at, asked + 1)

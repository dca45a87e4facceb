"""The pulse of a rank: counters and open phases in its slot, which can be read while the rank is stuck.

Written inside workers, whatever their Python (3.8 syntax, standard library only); a beat is one store into mapped
memory (about 0.2 µs). Each field has one writer, and is read whole because it is aligned and of eight bytes or less.

Layout, from the start of the pulse:

    0    f64 beat: CLOCK_MONOTONIC of the beat thread, the sign that the interpreter runs at all
    8    u64 steps, f64 when; u64 batches, f64 when; f64 when a loader came to its end
    48   u64 marks by the script, f64 when, i64 step, i64 total
    80   u64 calls begun (collectives, and waits for them), u64 calls ended, f64 when
    104  u64 sum of the groups' sequence numbers, u64 sum of completed numbers, f64 when it last changed
    128  u64 phases begun or ended, f64 when
    144  u32 dumps asked for (by the supervisor), u32 dumps answered
    152  u32 of `State`
    160  f64 seconds that the main thread has spent in loaders, f64 in collectives that Python called and in waits for
         them; u32 workers of the latest loader, plus one (0: there was none)
    256  `PHASES` phases of `PHASE` bytes: f64 since (0: free), f64 expected seconds, u32 thread, text
    768  `LOADERS` passes over loaders, the latest of each place in the program, of `LOADER` bytes: u32 place (0: free),
         u32 passes begun there, u64 batches given, i64 batches to give (-1: unknown), f64 when it ended (0: not yet)
"""

from __future__ import annotations

import itertools
import struct
import threading
import time

PHASES = 8
PHASE = 64
_PHASES_AT = 256
LOADERS = 8
LOADER = 32
_LOADERS_AT = 768
_BEAT = struct.Struct("<d")
_COUNT = struct.Struct("<Qd")
_MARK = struct.Struct("<Qdqq")
_CALLS = struct.Struct("<QQd")
_U32 = struct.Struct("<I")
_PHASE = struct.Struct("<ddI")
_LOADER = struct.Struct("<IIQqd")
_GIVEN = struct.Struct("<Q")
_ALL = struct.Struct("<d Qd Qd d Qdqq QQd QQd Qd II I")
_SPENT = struct.Struct("<ddI")

USES_GROUPS = 1  # the rank has initialised torch.distributed
RECORD_LOST = 2  # the record of collectives has ended early
PROGRAM_ENDED = 4  # the main thread has left the program: the interpreter ends what is left of it


class Writer:
    """A worker's own pulse: `memory` is writable and shared with the supervisor, `base` where the pulse begins."""

    def __init__(self, memory, base: int) -> None:  # type: ignore[no-untyped-def]
        self._memory = memory
        self._base = base
        self._steps = self._batches = self._marks = self._begun = self._ended = self._phases = self._answered = 0
        self._counters = (0, 0)
        self._loading = self._waited = 0.0
        self._begins, self._ends = itertools.count(1), itertools.count(1)  # whole whichever thread comes
        self._free = list(range(PHASES))
        self._places = {}  # type: dict[int, tuple[int, int]]  # place -> index, passes; the latest begun comes last

    def beat(self) -> None:
        """The interpreter runs."""
        _BEAT.pack_into(self._memory, self._base, time.monotonic())

    def step(self) -> None:
        """An optimizer has made a step."""
        self._steps += 1
        _COUNT.pack_into(self._memory, self._base + 8, self._steps, time.monotonic())

    def batch(self) -> None:
        """A loader has given a batch."""
        self._batches += 1
        _COUNT.pack_into(self._memory, self._base + 24, self._batches, time.monotonic())

    def loaded(self, seconds: float, workers: int) -> None:
        """The main thread has waited for a loader with so many workers."""
        self._loading += seconds
        _BEAT.pack_into(self._memory, self._base + 160, self._loading)
        _U32.pack_into(self._memory, self._base + 176, workers + 1)

    def waited(self, seconds: float) -> None:
        """The main thread has been inside a collective, or has waited for one."""
        self._waited += seconds
        _BEAT.pack_into(self._memory, self._base + 168, self._waited)

    def exhausted(self) -> None:
        """A loader has come to its end."""
        _BEAT.pack_into(self._memory, self._base + 40, time.monotonic())

    def begin_pass(self, place: int, length: int) -> tuple[int, tuple[int, int]]:
        """A loader begins to give batches: returns what `given` and `end_pass` take."""
        place = (place & 0xFFFFFFFF) or 1
        index, passes = self._places.pop(place, (-1, 0))
        if index < 0 and len(self._places) < LOADERS:
            index = len(self._places)
        elif index < 0:
            index = self._places.pop(next(iter(self._places)))[0]
        self._places[place] = turn = (index, passes + 1)
        _LOADER.pack_into(self._memory, self._loader(index), place, passes + 1, 0, length, 0.0)
        return place, turn

    def _loader(self, index: int) -> int:
        return self._base + _LOADERS_AT + index * LOADER

    def given(self, begun: tuple[int, tuple[int, int]], batches: int) -> None:
        """How many batches a loader has given in its pass. Not shown where later passes have taken its room."""
        place, turn = begun
        if self._places.get(place) is turn:
            _GIVEN.pack_into(self._memory, self._loader(turn[0]) + 8, batches)

    def end_pass(self, begun: tuple[int, tuple[int, int]]) -> None:
        """A loader has no more batches to give."""
        place, turn = begun
        if self._places.get(place) is turn:
            _BEAT.pack_into(self._memory, self._loader(turn[0]) + 24, time.monotonic())

    def mark(self, step: int, total: int) -> None:
        """The script says that it makes progress; -1 where it does not say how far it is."""
        self._marks += 1
        _MARK.pack_into(self._memory, self._base + 48, self._marks, time.monotonic(), step, total)

    def called(self) -> None:
        """A collective, or a wait for one, has begun."""
        self._begun = next(self._begins)
        _CALLS.pack_into(self._memory, self._base + 80, self._begun, self._ended, time.monotonic())

    def returned(self) -> None:
        """A collective, or a wait for one, has ended."""
        self._ended = next(self._ends)
        _CALLS.pack_into(self._memory, self._base + 80, self._begun, self._ended, time.monotonic())

    def counters(self, enqueued: int, completed: int) -> None:
        """The process groups' own counts, seen from the beat thread: they also count what C++ does by itself."""
        if (enqueued, completed) != self._counters:
            self._counters = (enqueued, completed)
            _CALLS.pack_into(self._memory, self._base + 104, enqueued, completed, time.monotonic())

    def begin(self, name: str, expect: float = 0.0) -> int:
        """Open a phase; returns what `end` takes (-1 where the table is full: the phase is then not shown)."""
        now = time.monotonic()
        try:
            index = self._free.pop()
        except IndexError:
            index = -1
        if index >= 0:
            offset = self._base + _PHASES_AT + index * PHASE
            text = name.encode("utf-8", "replace")[: PHASE - _PHASE.size - 1] + b"\0"
            self._memory[offset + _PHASE.size : offset + _PHASE.size + len(text)] = text
            _PHASE.pack_into(self._memory, offset, now, expect, threading.get_native_id() & 0xFFFFFFFF)
        self._turned(now)
        return index

    def end(self, index: int) -> None:
        """Close a phase that `begin` has opened."""
        if index >= 0:
            _BEAT.pack_into(self._memory, self._base + _PHASES_AT + index * PHASE, 0.0)
            self._free.append(index)
        self._turned(time.monotonic())

    def _turned(self, now: float) -> None:
        self._phases += 1
        _COUNT.pack_into(self._memory, self._base + 128, self._phases, now)

    def asked(self) -> int:
        """How many dumps of the Flight Recorder the supervisor has asked for and not got yet."""
        asked: int = _U32.unpack_from(self._memory, self._base + 144)[0]
        return asked - self._answered

    def answer(self) -> None:
        """All dumps that were asked for are on disk."""
        self._answered = _U32.unpack_from(self._memory, self._base + 144)[0]
        _U32.pack_into(self._memory, self._base + 148, self._answered)

    def uses_groups(self) -> None:
        """The rank has initialised torch.distributed."""
        self._set(USES_GROUPS)

    def record_lost(self) -> None:
        """The rank records no collectives any more."""
        self._set(RECORD_LOST)

    def program_ended(self) -> None:
        """The main thread has left the program."""
        self._set(PROGRAM_ENDED)

    def _set(self, state: int) -> None:
        _U32.pack_into(self._memory, self._base + 152, _U32.unpack_from(self._memory, self._base + 152)[0] | state)


def ask(memory, base: int) -> None:  # type: ignore[no-untyped-def]
    """From the supervisor: ask for one more dump."""
    _U32.pack_into(memory, base + 144, _U32.unpack_from(memory, base + 144)[0] + 1)


class Pulse:
    """One look at a rank's pulse. Times are CLOCK_MONOTONIC, 0 where the thing has never happened.

    `stepped`, `fed` and `marked` are the times of the latest step, batch and mark; `loading` and `waited` the seconds
    spent so far in loaders and in collectives; `loader_workers` is -1 where there was no loader.
    """

    __slots__ = (
        "answered", "asked", "batches", "beat", "begun", "completed", "ended", "enqueued", "exhausted", "fed",
        "loader_workers", "loaders", "loading", "marked", "marks", "phases", "progress", "state", "stepped", "steps",
        "waited",
    )  # fmt: skip

    def __init__(self, data, base: int) -> None:  # type: ignore[no-untyped-def]
        (
            self.beat, self.steps, self.stepped, self.batches, self.fed, self.exhausted, self.marks, self.marked, _, _,
            self.begun, self.ended, called, self.enqueued, self.completed, counted, _, turned,
            self.asked, self.answered, self.state,
        ) = _ALL.unpack_from(data, base)  # fmt: skip
        self.progress = max(self.stepped, self.fed, self.exhausted, self.marked, called, counted, turned)
        self.loading, self.waited, workers = _SPENT.unpack_from(data, base + 160)
        self.loader_workers = workers - 1
        self.phases = []
        for offset in range(base + _PHASES_AT, base + _PHASES_AT + PHASES * PHASE, PHASE):
            since, expect, thread = _PHASE.unpack_from(data, offset)
            if since:
                name = bytes(data[offset + _PHASE.size : offset + PHASE]).split(b"\0", 1)[0].decode("utf-8", "replace")
                self.phases.append((name, since, expect, thread))
        self.phases.sort(key=lambda phase: phase[1])
        starts = range(base + _LOADERS_AT, base + _LOADERS_AT + LOADERS * LOADER, LOADER)
        self.loaders = [found for at in starts if (found := _LOADER.unpack_from(data, at))[0]]

    @property
    def waiting(self) -> bool:
        """Whether the rank may be waiting for others: inside a collective, or with some of them under way."""
        return bool(self.begun > self.ended or self.enqueued > self.completed)

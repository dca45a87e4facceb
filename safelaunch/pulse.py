"""The pulse of a rank: counters and open phases in its slot, which can be read while the rank is stuck.

Written inside workers, whatever their Python (3.8 syntax, standard library only); a beat is a store or two into
mapped memory (0.1 to 0.2 µs). Each field has one writer, and is read whole because it is aligned and of eight bytes or
less.

Layout, from the start of the pulse:

    0    f64 beat: CLOCK_MONOTONIC of the beat thread, the sign that the interpreter runs at all
    8    u64 steps, f64 when; u64 batches, f64 when; f64 when a loader came to its end
    48   u64 marks by the script, f64 when, i64 step, i64 total
    80   u64 calls begun (collectives, and waits for them), u64 calls ended, f64 when
    104  u64 sum of the groups' sequence numbers, u64 sum of completed numbers, f64 when it last changed
    128  u64 phases ended, f64 when (that one has begun, its own time says)
    144  u32 dumps asked for (by the supervisor), u32 dumps answered
    152  u32 of `State`
    160  f64 seconds that the main thread has spent in loaders, f64 in collectives that Python called and in waits for
         them; u32 workers of the latest loader, plus one (0: there was none)
    184  f64 when there were more modules than ever
    192  of groups whose calls end on a device (NCCL): u64 groups with a call under way, u64 sum of completed numbers,
         f64 when one was last completed, or enqueued where none was under way
    216  u32 times that the supervisor has asked to follow the GPU, u32 those that are over; f64 for how many seconds,
         f64 seconds between two looks
    240  u64 number of the trace that the supervisor asks for (0: none); what it wants of it: see `trace_words`
    256  `PHASES` phases of `PHASE` bytes: f64 since (0: free), f64 expected seconds (or `AGAIN`), u32 thread, text; the
         first one is that of the main thread's loader
    768  `LOADERS` passes over loaders, the latest of each place in the program, of `LOADER` bytes: u32 place (0: free),
         u32 passes begun there, u64 batches given, i64 batches to give (-1: unknown), f64 when it ended (0: not yet)
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic

from safelaunch.trace_words import MARKS, STEPS

ASKED_AT, _DEVICE_AT, FOLLOW_AT, _PHASES_AT, _LOADERS_AT = 144, 192, 216, 256, 768
PHASES = 8
PHASE = 64
LOADERS = 8
LOADER = 32
SIZE = _LOADERS_AT + LOADERS * LOADER
_FIRST_PHASE, _FIRST_LOADER, _WORDS = _PHASES_AT // 8, _LOADERS_AT // 8, PHASE // 8  # in items of eight bytes
CALLS, LOADED, WAITED, TRACED = (
    10,
    20,
    21,
    30,
)  # items of eight bytes that `black_box` knows, which writes when calls end
_CALLS = struct.Struct("<QQd")
FOLLOW = struct.Struct("<IIdd")
_U32 = struct.Struct("<I")
_PHASE = struct.Struct("<ddI")
_LOADER = struct.Struct("<IIQqd")
_ALL = struct.Struct("<d Qd Qd d Qdqq QQd QQd Qd II I")
_SPENT = struct.Struct("<ddI4xd")
_SINCES = struct.Struct("<" + f"d{PHASE - 8}x" * PHASES)
_PASSES = struct.Struct("<" + "IIQqd" * LOADERS)

AGAIN = -1.0  # the expected seconds of a phase that tries again what was just attempted: no progress
ATTEMPTS = 64  # that a thread may make in turn, one for each of its peers; an estimate
RETRY_S = 10.0  # what is begun so long after an attempt may be something else of the same name; an estimate

USES_GROUPS = 1  # the rank has initialised torch.distributed
RECORD_LOST = 2  # the record of collectives has ended early
HAS_TORCH = 8  # torch was there before the script began
PROGRAM_ENDED = 4  # the main thread has left the program: the interpreter ends what is left of it
LARGEST = (1 << 63) - 1  # what a document of ours may hold (`codec`)
FAR_S = 86400.0  # behind now: no clock of this machine says so
LONGEST_S = 1e9  # that a phase is expected to take

PROGRAM_RAISED = 16  # ... by an exception that nothing has caught: the rank has failed, whatever its process does


class Turn:
    """A pass over a loader. `item` is where its batches are counted, 0 once a later pass has taken the room."""

    __slots__ = ("index", "item", "passes", "workers")

    def __init__(self, index: int, passes: int, workers: int) -> None:
        self.index, self.passes, self.workers = index, passes, workers
        self.item = _FIRST_LOADER + index * (LOADER // 8) + 1


class Writer:
    """A worker's own pulse: `memory` is writable and shared with the supervisor, `base` where the pulse begins.

    Fields are items of memory views: an item is one store of eight bytes, in a third of the time that `struct` takes.
    """

    def __init__(self, memory, base: int) -> None:  # type: ignore[no-untyped-def]
        self._marks = self._answered = self._turns = self._followed = 0
        self._counters = self._device = (0, 0)
        self._loading = 0.0
        self._turn = None  # type: Turn | None  # the latest that has given a batch
        self._steps, self._batches = itertools.count(1), itertools.count(1)  # whole whichever thread comes
        self._free = list(range(1, PHASES))  # the first one is the main thread's loader
        self._attempted = {}  # type: dict[int, list[tuple[str, float]]]  # by thread: its latest attempts, and when
        self._places = {}  # type: dict[int, Turn]  # the latest begun comes last
        self.at_boundary: Callable[[int, int], None] | None = None  # takes what is counted, and the count
        self.bind(memory, base)

    def bind(self, memory, base: int) -> None:  # type: ignore[no-untyped-def]
        """From here on write there. For a pulse that has not been used yet."""
        self._memory = memory
        self._base = base
        own = memoryview(memory)[base : base + SIZE]
        self._f64, self._u64, self._i64 = own.cast("d"), own.cast("Q"), own.cast("q")
        self._texts = [("", 0)] * PHASES  # what stands in each phase, and whose it was: most come again and again
        self._write_text(0, "loader")

    def beat(self) -> None:
        """The interpreter runs."""
        self._f64[0] = monotonic()

    def step(self) -> None:
        """An optimizer has made a step."""
        words = self._u64
        words[1] = count = next(self._steps)
        self._f64[2] = monotonic()
        if words[30] and self.at_boundary is not None:  # TRACED: a name costs some ns
            self.at_boundary(STEPS, count)

    def loading(self) -> float:
        """The main thread begins to wait for a batch: its own phase, the first one. Returns what `fed` takes, which is
        not 0 where a loader waits for another one."""
        floats = self._f64
        before: float = floats[_FIRST_PHASE]
        floats[_FIRST_PHASE] = monotonic()
        return before

    def unfed(self, before: float) -> None:
        """A loader has none to give to the main thread, or has failed; `before` is what `loading` has returned."""
        self._f64[_FIRST_PHASE] = before
        self._turned()

    def fed(self, before: float | None, turn: Turn | None, number: int) -> None:
        """A loader has given a batch.

        Args:
            before: what `loading` has returned; None where another thread has waited for it.
            turn: its pass, as `begin_pass` gave it; None where that is not known.
            number: how many batches it has given in this pass.
        """
        floats = self._f64
        now = monotonic()
        if before is not None:
            if not before:
                self._loading += now - floats[_FIRST_PHASE]
                floats[LOADED] = self._loading
            floats[_FIRST_PHASE] = before
        if turn is not None:
            if turn is not self._turn:
                self._turn = turn
                _U32.pack_into(self._memory, self._base + 176, turn.workers + 1)
            if turn.item:
                self._u64[turn.item] = number
        self._u64[3] = next(self._batches)
        floats[4] = now

    def imported(self) -> None:
        """More modules have been imported."""
        self._f64[23] = monotonic()

    def exhausted(self) -> None:
        """A loader has come to its end."""
        self._f64[5] = monotonic()

    def begin_pass(self, place: int, length: int, workers: int) -> Turn:
        """A loader begins to give batches: returns what `fed` and `end_pass` take.

        Args:
            place: a number for where in the program it does so.
            length: how many it will give, -1 where that is not known.
            workers: processes that load for it.
        """
        place = (place & 0xFFFFFFFF) or 1
        before = self._places.pop(place, None)
        passes = before.passes if before is not None else 0
        if before is None and len(self._places) < LOADERS:
            index = len(self._places)
        else:
            before = before or self._places.pop(next(iter(self._places)))
            index, before.item = before.index, 0
        self._places[place] = turn = Turn(index, passes + 1, workers)
        _LOADER.pack_into(self._memory, self._base + turn.item * 8 - 8, place, passes + 1, 0, length, 0.0)
        return turn

    def end_pass(self, turn: Turn) -> None:
        """A loader has no more batches to give."""
        if turn.item:
            self._f64[turn.item + 2] = monotonic()

    def mark(self, step: int, total: int) -> None:
        """The script says that it makes progress; negative where it does not say how far it is."""
        self._i64[8], self._i64[9] = step, total
        self._marks += 1
        self._u64[6] = self._marks
        self._f64[7] = monotonic()
        if self._u64[TRACED] and self.at_boundary is not None:
            self.at_boundary(MARKS, self._marks)

    def counters(self, enqueued: int, completed: int) -> None:
        """The process groups' own counts, seen from the beat thread: they also count what C++ does by itself."""
        if (enqueued, completed) != self._counters:
            self._counters = (enqueued, completed)
            _CALLS.pack_into(self._memory, self._base + 104, enqueued, completed, monotonic())

    def on_device(self, under_way: int, completed: int) -> None:
        """The same of groups whose calls return at once, and end on a device later.

        Args:
            under_way: groups of which the latest call is not completed.
            completed: the sum of the completed numbers of all groups.
        """
        if (under_way, completed) != self._device:
            moved = completed != self._device[1] or not self._device[0]
            self._device = (under_way, completed)
            if moved:
                _CALLS.pack_into(self._memory, self._base + _DEVICE_AT, under_way, completed, monotonic())
            else:
                self._u64[_DEVICE_AT // 8] = under_way

    def begin(self, name: str, expect: float = 0.0) -> int:
        """Open a phase; returns what `end` takes (-1 where the table is full: the phase is then not shown)."""
        try:
            index = self._free.pop()
        except IndexError:
            self._turned()
            return -1
        text = self._texts[index]
        if text[0] is not name or text[1] != get_ident():
            self._write_text(index, name)
        at = _FIRST_PHASE + index * _WORDS
        now = monotonic()
        again = bool(self._attempted) and self._is_attempted(name, now)
        self._f64[at + 1] = AGAIN if again else expect
        self._f64[at] = now  # comes last, and counts as progress
        return index

    def _write_text(self, index: int, name: str) -> None:
        self._texts[index] = name, get_ident()
        offset = self._base + _PHASES_AT + index * PHASE + _PHASE.size
        text = name.encode("utf-8", "replace")[: PHASE - _PHASE.size - 1] + b"\0"
        _U32.pack_into(self._memory, offset - 4, threading.get_native_id() & 0xFFFFFFFF)
        self._memory[offset : offset + len(text)] = text

    def end(self, index: int) -> None:
        """Close a phase that `begin` has opened."""
        self._turned()
        if self._attempted:
            self._attempted.pop(get_ident(), None)
        if index >= 0:
            self._f64[_FIRST_PHASE + index * _WORDS] = 0.0
            self._free.append(index)

    def looked(self, index: int) -> None:
        """Close a phase that was no more than a look at something: the first one is progress, to look again is none."""
        if index >= 0 and not self._is_attempted(self._texts[index][0], monotonic()):
            self._turned()
        self.attempted(index)

    def _is_attempted(self, name: str, now: float) -> bool:
        return any(one == name and now - when < RETRY_S for one, when in self._attempted.get(get_ident(), ()))

    def attempted(self, index: int) -> None:
        """Close a phase in which an exception was raised: that is no progress, nor is to try again, however often."""
        if index >= 0:
            latest = self._attempted.setdefault(get_ident(), [])
            latest.append((self._texts[index][0], monotonic()))
            del latest[:-ATTEMPTS]
            self._f64[_FIRST_PHASE + index * _WORDS] = 0.0
            self._free.append(index)

    def _turned(self) -> None:
        self._turns += 1
        self._u64[16] = self._turns
        self._f64[17] = monotonic()

    def asked(self) -> int:
        """How many dumps of the Flight Recorder the supervisor has asked for and not got yet."""
        asked: int = _U32.unpack_from(self._memory, self._base + 144)[0]
        return asked - self._answered

    def answer(self) -> None:
        """All dumps that were asked for are on disk."""
        self._answered = _U32.unpack_from(self._memory, self._base + 144)[0]
        _U32.pack_into(self._memory, self._base + 148, self._answered)

    def to_follow(self) -> tuple[float, float] | None:
        """For how many seconds the rank's GPU is to be followed, and the seconds between two looks, where the
        supervisor has asked for it anew; None where it has not."""
        asked, _, seconds, every_s = FOLLOW.unpack_from(self._memory, self._base + FOLLOW_AT)
        if asked == self._followed:
            return None
        self._followed = asked
        return seconds, every_s

    def followed(self) -> None:
        """What was seen of the GPU is on disk."""
        _U32.pack_into(self._memory, self._base + FOLLOW_AT + 4, self._followed)

    def uses_groups(self) -> None:
        """The rank has initialised torch.distributed."""
        self._set(USES_GROUPS)

    def record_lost(self) -> None:
        """The rank records no collectives any more."""
        self._set(RECORD_LOST)

    def has_torch(self) -> None:
        """torch was there before the script began: that no beat comes does not mean that it is being imported."""
        self._set(HAS_TORCH)

    def program_ended(self) -> None:
        """The main thread has left the program."""
        self._set(PROGRAM_ENDED)

    def program_raised(self) -> None:
        """An exception that nothing has caught has ended the program."""
        self._set(PROGRAM_RAISED)

    def _set(self, state: int) -> None:
        _U32.pack_into(self._memory, self._base + 152, _U32.unpack_from(self._memory, self._base + 152)[0] | state)


def plausible(numbers, latest: float):  # type: ignore[no-untyped-def]
    """Numbers from memory that a rank may have overwritten: times that cannot be are 0, counts have 63 bits at most.

    Args:
        numbers: floats are times, or seconds that were spent.
        latest: `monotonic() + FAR_S`.
    """
    return [
        (one if 0.0 <= one <= latest else 0.0) if type(one) is float else one if one <= LARGEST else LARGEST
        for one in numbers
    ]


class Pulse:
    """One look at a rank's pulse. Times are CLOCK_MONOTONIC, 0 where the thing has never happened.

    `on_device` counts groups with a call under way on a device, `device_calls` is 0 where no call has ended on one, and
    else rises with them. `stepped`, `fed` and `marked` are the times of the latest step, batch and mark. The script has
    said `mark_step` and `mark_total` with it, where they are above 0. `loading` and `waited` are the seconds spent so
    far in loaders and in collectives; `loader_workers` is -1 where there was no loader.
    """

    __slots__ = (
        "answered", "asked", "batches", "beat", "begun", "completed", "device_calls", "ended", "enqueued", "exhausted",
        "fed", "follow_asked", "followed", "loader_workers", "loaders", "loading", "mark_step", "mark_total",
        "marked", "marks", "on_device", "phases", "progress", "state", "stepped", "steps", "waited",
    )  # fmt: skip

    def __init__(self, data, base: int) -> None:  # type: ignore[no-untyped-def]
        latest = monotonic() + FAR_S
        (
            self.beat, self.steps, self.stepped, self.batches, self.fed, self.exhausted,
            self.marks, self.marked, self.mark_step, self.mark_total,
            self.begun, self.ended, called, self.enqueued, self.completed, counted, _, turned,
            self.asked, self.answered, self.state,
        ) = plausible(_ALL.unpack_from(data, base), latest)  # fmt: skip
        self.loading, self.waited, workers, imported = plausible(_SPENT.unpack_from(data, base + 160), latest)
        self.progress = max(self.stepped, self.fed, self.exhausted, self.marked, called, counted, turned, imported)
        self.loader_workers = workers - 1
        self.on_device, self.device_calls, moved = plausible(_CALLS.unpack_from(data, base + _DEVICE_AT), latest)
        self.follow_asked, self.followed, _, _ = FOLLOW.unpack_from(data, base + FOLLOW_AT)
        self.phases = []  # type: list[tuple[str, float, float, int]]
        if any(_SINCES.unpack_from(data, base + _PHASES_AT)):
            self._read_phases(data, base + _PHASES_AT, latest)
        # What a host does while its device waits is no progress: it runs ahead, as far as it can.
        self.progress = moved if self.on_device else max(self.progress, moved)
        passes = _PASSES.unpack_from(data, base + _LOADERS_AT)
        each = (passes[at : at + 5] for at in range(0, len(passes), 5) if passes[at])
        self.loaders = [tuple(plausible(one, latest)) for one in each]

    def _read_phases(self, data, start: int, latest: float) -> None:  # type: ignore[no-untyped-def]
        for offset in range(start, start + PHASES * PHASE, PHASE):
            since, expect, thread = _PHASE.unpack_from(data, offset)
            if 0.0 < since <= latest:
                name = bytes(data[offset + _PHASE.size : offset + PHASE]).split(b"\0", 1)[0].decode("utf-8", "replace")
                self.phases.append((name, since, min(expect, LONGEST_S) if expect > 0 else 0.0, thread))
                if expect != AGAIN:
                    self.progress = max(self.progress, since)
        self.phases.sort(key=lambda phase: phase[1])

    @property
    def asks_store(self) -> bool:
        """Whether the rank waits for a key in a store (`worker.progress.watch_store`)."""
        return any(name.startswith("store.") for name, *_ in self.phases)

    @property
    def waiting(self) -> bool:
        """Whether the rank may be waiting for others: inside a collective, or with some of them under way."""
        return bool(self.begun > self.ended or self.enqueued > self.completed or self.on_device)

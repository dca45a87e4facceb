"""Ranks in step with one another, as pulses and calls only: a test says how long each of them needs, and time flies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from safelaunch.model.slow import Slowness
from safelaunch.watch.device_times import Look, Mark
from safelaunch.watch.meetings import Arrival
from safelaunch.watch.slow import SlowWatch

START = 1000.0
ROUND_S = 0.25
CALLS_S = 0.5
RING = 64
TRANSFER_S = 0.001

Need = Callable[[int, int], float]  # rank, step -> seconds


def steady(_rank: int, _step: int) -> float:
    return 0.05


def nothing(_rank: int, _step: int) -> float:
    return 0.0


@dataclass
class Beats:
    """What the watch reads of a pulse."""

    steps: int = 0
    stepped: float = 0.0
    batches: int = 0
    fed: float = 0.0
    marks: int = 0
    marked: float = 0.0
    ended: int = 0
    enqueued: int = 0
    loading: float = 0.0
    waited: float = 0.0
    loader_workers: int = -1
    device_calls: int = 0
    on_device: int = 0


@dataclass
class Program:
    """A training loop of ranks that meet once in each step. `hidden` says that C++ makes the collectives, `counts` what
    the pulses show; `calls` are those of a step, beside the all_reduce at its end. `masked` says that behind that one,
    of C++, comes another, of Python: all ranks come to it together. `on_device` says that the calls end on GPUs, which
    need `gpus` for themselves, and whose hosts enqueue what comes next `hosts` seconds after the call before."""

    watch: SlowWatch
    needs: Need = steady
    loads: Need = nothing
    ranks: int = 4
    hidden: bool = False
    masked: bool = False
    on_device: bool = False
    gpus: Need = steady
    hosts: Need = lambda _rank, _step: 0.001
    counts: str = "steps"
    calls: Callable[[int, int], tuple[str, ...]] = lambda _rank, _step: ()
    site: Callable[[int], str] = lambda _rank: "train.py:88"
    call_s: Callable[[int], float] = lambda _step: 0.001  # for which the call lasts when all have come
    answers: bool = True
    answer_s: float = 0.0  # for which the Flight Recorders are waited for
    last_step: dict[int, int] = field(default_factory=dict)  # of ranks that then only answer the others' collectives
    told: list[tuple[float, Slowness]] = field(default_factory=list)
    over: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    step: int = 0
    now: float = START
    _next: float = START + ROUND_S
    _next_calls: float = START
    _stepped: float = START
    _random: random.Random = field(default_factory=lambda: random.Random(7))
    _last: dict[int, tuple[int, float]] = field(default_factory=dict)
    _made: dict[int, list[Arrival]] = field(default_factory=dict)
    _marks: dict[int, list[Mark]] = field(default_factory=dict)
    _behind: dict[int, list[Arrival]] = field(default_factory=dict)
    _answer_at: float | None = None
    _loading: dict[int, float] = field(default_factory=dict)
    _waited: dict[int, float] = field(default_factory=dict)

    def run(self, seconds: float) -> list[Slowness]:
        """Let so many seconds pass; what was told in them."""
        first, end = len(self.told), self.now + seconds
        while self.now < end:
            self._make_step()
        return [slowness for _, slowness in self.told[first:]]

    def pause(self, seconds: float) -> None:
        """Nobody runs, the supervisor neither."""
        self.now += seconds
        self._next = self.now + ROUND_S

    def _make_step(self) -> None:
        self.step += 1
        arrived = {}
        for rank in range(self.ranks):
            loads = self.loads(rank, self.step)
            arrived[rank] = self.now + loads + self.needs(rank, self.step) * self._random.uniform(0.97, 1.03)
            self._loading[rank] = self._loading.get(rank, 0.0) + loads
        done = max(arrived.values())
        if self.on_device:
            done = self._on_gpus()
        for rank, t in arrived.items():
            self._waited[rank] = self._waited.get(rank, 0.0) + done - t
            own = self._made.setdefault(rank, [])
            for op in (*self.calls(rank, self.step), "all_reduce"):
                own.append(Arrival(len(own) + 1, t, op, "0", len(own) + 1, self.ranks, self.site(rank)))
            if self.masked:
                self._behind.setdefault(rank, []).append(
                    Arrival(self.step, done, "all_reduce", "0", 2 * self.step, self.ranks, self.site(rank))
                )
        self.now = done + TRANSFER_S
        while self._next < self.now:
            self._poll(self._next)
            self._next += ROUND_S
        self._stepped = self.now

    def _on_gpus(self) -> float:
        """What the GPUs do in a step; when the call at its end is over."""
        reached = {
            rank: self.now + self.gpus(rank, self.step) * self._random.uniform(0.97, 1.03) for rank in range(self.ranks)
        }
        done = max(reached.values()) + self.call_s(self.step)
        for rank, t in reached.items():
            enqueued = min(self.now + self.hosts(rank, self.step), t)
            site = "train.py", 88
            self._marks.setdefault(rank, []).extend(
                (
                    Mark(0, "ahead", "all_reduce", site, enqueued, t),
                    Mark(0, "behind", "all_reduce", site, enqueued, done),
                )
            )
        return done

    def _looks(self, now: float) -> dict[int, Look]:
        begun = self.asked[-1] + START
        return {
            rank: Look(begun, now, [mark for mark in marks if begun <= mark.enqueued and mark.reached <= now])
            for rank, marks in self._marks.items()
        }

    def _poll(self, now: float) -> None:
        done = self.step - 1
        pulses = {
            rank: Beats(
                ended=0 if self.hidden else done,
                enqueued=2 * done if self.masked else done,
                loading=self._loading[rank],
                waited=0.0 if self.hidden else self._waited[rank],
                loader_workers=2 if self.loads is not nothing else -1,
                device_calls=done if self.on_device else 0,
            )
            for rank in range(self.ranks)
        }
        for rank, pulse in pulses.items():
            if self.counts == "steps" and done <= self.last_step.get(rank, done):
                pulse.steps, pulse.stepped = done, self._stepped
                self._last[rank] = done, self._stepped
            elif self.counts == "steps":
                pulse.steps, pulse.stepped = self._last[rank]
        calls: dict[int, list[Arrival]] = {}
        if not self.hidden and now >= self._next_calls:
            self._next_calls = now + CALLS_S
            for rank, made in (self._behind or self._made).items():
                last = self.watch.meetings.last(rank)
                calls[rank] = [call for call in made[-RING:] if last < call.order and call.t <= now]
        slowness = self.watch.poll(pulses, calls, True, now)  # type: ignore[arg-type]
        if slowness is not None:
            self.told.append((now - START, slowness))
            self.watch.tell(slowness, now)
        self.over += [now - START for _ in self.watch.over()]
        if self.watch.wants_recorders(now):
            self.asked.append(now - START)
            self.watch.asked(now)
            self._answer_at = now + (self.watch.follow_s()[0] if self.watch.on_device else self.answer_s)
        if self._answer_at is not None and now >= self._answer_at:
            self._answer_at = None
            if self.watch.on_device:
                self.watch.followed(self._looks(now) if self.answers else {}, now, "they could not be followed")
            elif self.answers:
                dumps = {rank: [call for call in made[-2000:] if call.t <= now] for rank, made in self._made.items()}
                self.watch.recorded(dumps, now)
            else:
                self.watch.recorded({}, now, "they did not answer")

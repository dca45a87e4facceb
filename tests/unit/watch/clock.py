"""Ranks that are pulses only, a clock that the test turns, and a look that finds what the test says."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from safelaunch.model import Case, Collective, Incident, Phase, RankFacts, Verdict
from safelaunch.watch.hang import HangWatch

ROUND_S = 0.25  # as the supervisor asks; exact in binary, so that times can be compared
START = 1000.0
LATE = Verdict(
    code="SL301",
    slug="never-entered",
    kind="hang",
    summary="rank 3 never entered",
    culprit_ranks=(3,),
)
LEFT = Verdict(
    code="SL303",
    slug="left-loop",
    kind="hang",
    summary="rank 3 left",
    culprit_ranks=(3,),
    conclusive=True,
)
ALL_INSIDE = Verdict(code="SL310", slug="all-inside", kind="hang", summary="all are inside")
UNTOLD = Verdict(code="SL399", slug="hang-untold", kind="hang", summary="nobody knows", confidence="low")


@dataclass
class Beats:
    """What the watch reads of a pulse."""

    progress: float = START
    waiting: bool = False
    asks_store: bool = False


@dataclass
class Run:
    """One run of four ranks. Times in `events` are seconds since the start."""

    watch: HangWatch
    verdict: Verdict = LATE
    now: float = START
    pulses: dict[int, Beats] = field(default_factory=lambda: {rank: Beats() for rank in range(4)})
    sites: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    phases: dict[int, Phase] = field(default_factory=dict)
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)  # what else a look finds
    elsewhere: int = 0  # ranks on other nodes
    paused: bool = False
    in_passes: bool = False
    resume: bool = True  # take in at once that progress is back
    events: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.poll()

    def moved(self, *ranks: int) -> None:
        """These ranks make progress now."""
        for rank in ranks:
            self.pulses[rank].progress = self.now

    def wait(self, *ranks: int) -> None:
        """These ranks, and no others, are inside a collective from now on."""
        self.moved(*ranks)
        for rank, pulse in self.pulses.items():
            pulse.waiting = rank in ranks

    def go(self, seconds: float, *, moving: tuple[int, ...] = ()) -> list[tuple[float, str]]:
        """Let time pass, in which these ranks make progress; the events of that time."""
        end, first = self.now + seconds, len(self.events)
        while self.now < end:
            self.now += ROUND_S
            self.moved(*moving)
            self.poll()
        return self.events[first:]

    def poll(self) -> None:
        """One round, as run.hang makes it."""
        quiet = {rank for rank, pulse in self.pulses.items() if self.watch.is_quiet(pulse, self.now)}  # type: ignore[arg-type]
        sites = {rank: self.sites.get(rank, "") for rank in quiet}
        step: str = self.watch.poll(self.pulses, sites, self.now)  # type: ignore[arg-type]
        if step:
            self.note(step)
        if step == "look" and self.watch.looked(
            self.told(), self.case(), self.paused, self.now, in_passes=self.in_passes
        ):
            self.note("notice")
        if step == "returned" and self.resume:
            self.watch.returned(self.now)

    def told(self) -> Verdict:
        """What the rules say: the culprit holds up who waits in group 0."""
        waiting = tuple(r for r, pulse in self.pulses.items() if pulse.waiting and self.groups.get(r, "0") == "0")
        return dataclasses.replace(self.verdict, waiting=waiting)

    def note(self, what: str) -> None:
        self.events.append((self.now - START, what))

    def case(self) -> Case:
        """What a look finds: ranks that wait are inside an all_reduce."""

        def inside(rank: int, pulse: Beats) -> Collective:
            group = self.groups.get(rank, "0")
            return Collective("all_reduce", group, 7, 10, "float32", not pulse.waiting, pulse.progress)

        ranks = tuple(
            RankFacts(
                rank, rank, 4100 + rank,
                collectives=(inside(rank, pulse),),
                phases=(self.phases[rank],) if rank in self.phases else (),
                **self.seen.get(rank, {}),
            )
            for rank, pulse in self.pulses.items()
        )  # fmt: skip
        return Case(Incident("hang", 0, (), self.now), "node-a", len(ranks) + self.elsewhere, ranks, now=self.now)


def waiting_run(*, verdict: Verdict = LATE, late: int = 3, **watch: Any) -> Run:
    """A run in which all ranks but one wait from the start."""
    run = Run(HangWatch(**watch), verdict)
    run.wait(*(rank for rank in run.pulses if rank != late))
    return run


def names(events: list[tuple[float, str]]) -> list[str]:
    return [name for _, name in events]


def when(events: list[tuple[float, str]], what: str) -> list[float]:
    return [t for t, name in events if name == what]

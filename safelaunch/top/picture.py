"""What there is to show of a run at one moment. Texts are as others wrote them: what draws them makes them visible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Mood = Literal["good", "slow", "bad", "over"]
Level = Literal["note", "warning", "error"]


@dataclass(frozen=True)
class Row:
    """One rank.

    `doing` is what it does, in words. `step` counts `unit`s, of `total` where the script has said so; `each` is how
    long one takes, in seconds, `each_of` the same of those before, the latest last. `open_s` is the time since the
    latest step where that is far longer than steps are. `loading` and `waiting` are shares of its time, in loaders and
    in collectives. `late_s` is how much more of its own time than its peers it needs for a step; `awaited_s` for how
    long they have been waiting for it now. `cores` are CPUs in use by its process, `memory` its resident bytes,
    `gpu_busy` is in percent. None is what is not known.
    """

    rank: int
    host: str = ""
    gpu: str = ""
    pid: int = 0
    doing: str = ""
    step: int | None = None
    total: int | None = None
    unit: str = ""
    each: float | None = None
    each_of: tuple[float, ...] = ()
    open_s: float | None = None
    loading: float | None = None
    waiting: float | None = None
    late_s: float | None = None
    awaited_s: float | None = None
    cores: float | None = None
    memory: int | None = None
    gpu_busy: int | None = None
    mood: Mood = "good"


@dataclass(frozen=True)
class Notice:
    """Something that has happened at `time` (seconds since the epoch)."""

    time: float
    level: Level
    text: str


@dataclass(frozen=True)
class Picture:
    """A run at one moment. `state` says in words how it goes, `elapsed_s` for how long it has, `over` that it has
    ended; `missing` says what cannot be shown, and why. `at` is the place in a replay, such as `3 of 12`."""

    run_id: str
    script: str
    state: str
    elapsed_s: float
    rows: tuple[Row, ...] = ()
    notices: tuple[Notice, ...] = ()
    missing: tuple[str, ...] = ()
    over: bool = False
    at: str = field(default="")


def lateness(row: Row) -> tuple[float, ...]:
    """By which rows are sorted: the rank that the others wait for comes first, and the one that waits for them last."""
    return (
        -(row.mood == "bad"),
        -(row.awaited_s or 0.0),
        -(row.mood == "slow"),
        -(row.late_s or 0.0),
        round(row.waiting or 0.0, 1),  # with calls of C++ nobody is seen to wait: then who waits for its loader is late
        -(row.loading or 0.0),
        row.rank,
    )


def one_each(rows: Iterable[Row]) -> tuple[Row, ...]:
    """A row for each rank, the last one: in a run that was started again under its name, that of the later start."""
    return tuple({row.rank: row for row in rows}.values())


SORTS = {
    "late": lateness,
    "rank": lambda row: (row.rank,),
    "step": lambda row: (row.step if row.step is not None else -1, row.rank),
    "time": lambda row: (-(row.open_s or row.each or 0.0), row.rank),
    "cpu": lambda row: (-(row.cores or 0.0), row.rank),
    "mem": lambda row: (-(row.memory or 0), row.rank),
}

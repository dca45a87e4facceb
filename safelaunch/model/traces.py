"""What the ranks leave of a trace: some steps, the same ones on all of them, as torch's profiler has seen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepMark:
    """So many steps are complete. `t` is CLOCK_MONOTONIC of the rank's node, `wall_ns` the time of day; `loading` and
    `waited` are the seconds that the main thread has spent in loaders, and in collectives that Python called."""

    count: int
    t: float
    wall_ns: int
    loading: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True)
class TracedCall:
    """A collective that Python called: `t` and `returned` are times as in `StepMark`, `returned` is 0 where it has only
    been issued."""

    op: str
    group: str
    group_size: int
    seq: int
    t: float
    returned: float
    file: str
    line: int
    function: str
    numel: int = -1
    dtype: str = ""

    @property
    def place(self) -> str:
        """Where it was called, in the short; empty where that is not known."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.line else ""


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank. `missing` says why there is none. `path` is what torch wrote, `thread` the one that makes
    the steps. `offset_s` is the common clock less the rank's, which may be wrong by `clock_error_s` (None: it is not
    known). `cuda` says whether it uses a GPU, and
    `no_kernels` why none of its kernels were recorded, `write_s` how long the rank stood still to write it down."""

    rank: int
    host: str = ""
    pid: int = 0
    thread: int = 0
    missing: str = ""
    path: str = ""
    marks: tuple[StepMark, ...] = ()
    calls: tuple[TracedCall, ...] = ()
    cuda: bool = False
    no_kernels: str = ""
    write_s: float = 0.0
    interrupted: bool = False
    offset_s: float = 0.0
    clock_error_s: float | None = 0.0

    @property
    def begun(self) -> float:
        """When the first of its steps began, by the common clock."""
        return self.marks[0].t + self.offset_s

    @property
    def steps(self) -> int:
        """How many were recorded."""
        return len(self.marks) - 1

    @property
    def seconds(self) -> float:
        """How long they took."""
        return self.marks[-1].t - self.marks[0].t


@dataclass(frozen=True)
class RankEvents:
    """What torch's profiler has written of a rank: events as the Trace Event Format has them, with times in µs after
    `base_ns` of the time of day. `groups` is how many process groups the rank has, 0 where that is not known."""

    base_ns: int
    found: list[dict[str, Any]]
    groups: int = 0

"""What the nodes of a job tell one another of how fast their ranks are."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model.slow import DevicePace, Pace


@dataclass(frozen=True)
class CallKind:
    """A call of collectives as it stands in a program. `size` is that of its group, `root` the rank of its root (-1:
    none, or not known), `site` the line that calls."""

    op: str
    group: str
    size: int = 0
    site: str = ""
    root: int = -1


@dataclass(frozen=True)
class RankCalls:
    """The latest calls of one rank, oldest first, one number of each list for each of them.

    `kinds` are places in `NodePace.kinds`, `orders` count the rank's calls, `numbers` those of their groups. `came` and
    `back` are microseconds since `NodePace.t`: when it came, and when its call returned (0: not known).
    """

    rank: int
    kinds: tuple[int, ...] = ()
    orders: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    came: tuple[int, ...] = ()
    back: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodePace:
    """How fast the ranks of one node are, as it tells the hub.

    `unit` and `step_s` are what is counted and the median time of one. `paces` are the shares of each rank's time in
    its loader and in collectives. `source` says how it is seen when ranks come to their collectives: `calls` (their own
    record) or `recorder` (the Flight Recorder), which are in `calls`; or `device` (events in the streams of GPUs), of
    which `devices` tells. `unknown` says why it is not seen. `t` is on the hub's clock, wrong by `clock_error_s` at
    most.
    """

    unit: str = ""
    step_s: float = 0.0
    source: str = ""
    unknown: str = ""
    t: float = 0.0
    clock_error_s: float = 0.0
    paces: tuple[Pace, ...] = ()
    kinds: tuple[CallKind, ...] = ()
    calls: tuple[RankCalls, ...] = ()
    devices: tuple[DevicePace, ...] = ()

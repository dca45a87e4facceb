"""What the nodes say of themselves and of each other, as plain data: it travels between them as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from safelaunch.model import Severity

MOST_ROUNDS = 100  # of pairs that exchange data: far above `pairs.MAX_ROUNDS`


@dataclass(frozen=True)
class Limits:
    """The numbers that the nodes are judged by, from `thresholds.THRESHOLDS` or a profile of the node that holds the
    meeting, so that all nodes judge alike. Speeds are shares of the median; the floor is in bytes per second.
    `missing` is what a node that never came counts as."""

    clock_skew_s: float = 1.0
    slow_error: float = 0.5
    slow_warning: float = 0.8
    floor: float = 10e6
    missing: Severity = "error"


@dataclass(frozen=True)
class Facts:
    """One node. `endpoint` holds the addresses that it finds for the endpoint's host, `own` its own addresses, `hcas`
    the kind of each port that NCCL would use, by its name, and `gpus` the name of each GPU that the job may use. Others
    dial it at `ip` and `port`; without `ip`, as the first node may be, at the endpoint. `refused` is why its own checks
    refuse it. `rdzv_id` is the rendezvous id, where a scheduler tells jobs apart. `left_s` is how long it can stay, at
    the moment at which it says so."""

    rank: int = -1
    host: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    endpoint: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    hcas: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    uses_gpu: bool = False
    refused: str = ""
    rdzv_id: str = ""
    full: bool = False
    nproc: int = 1
    ip: str = ""
    port: int = 0
    left_s: float = 0.0


@dataclass(frozen=True)
class Silent:
    """A node that came and then did not answer, and the question it did not answer within `after_s` seconds."""

    rank: int
    host: str
    question: str
    after_s: float


@dataclass(frozen=True)
class Clash:
    """Two nodes that say they are the same one."""

    rank: int
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a node listens, and the seat that answers there. The first node has no `ip`: it is at the endpoint."""

    rank: int
    seat: int
    ip: str
    port: int


@dataclass(frozen=True)
class Dial:
    """A connection from node `src` to a high port of node `dst`. `error` is empty for one that came about; then the
    answer took `rtt_s`, and the clock of `dst` is `offset_s` ahead of that of `src`."""

    src: int
    dst: int
    ip: str = ""
    port: int = 0
    error: str = ""
    errno: int = 0
    rtt_s: float = 0.0
    offset_s: float = 0.0


@dataclass(frozen=True)
class Speed:
    """How fast a node computes by itself, in operations per second: its slowest GPU, or one core. `error` says why
    that could not be measured."""

    rank: int
    flops: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class PairReport:
    """What one node of a pair saw. `bandwidth` is the bus bandwidth of all_reduce in bytes per second."""

    rank: int
    peer: int
    bandwidth: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Pair:
    """Two nodes that exchanged data, or could not: then `error` says why."""

    a: int
    b: int
    bandwidth: float = 0.0
    error: str = ""

    @property
    def both(self) -> tuple[int, int]:
        return self.a, self.b

    def other(self, rank: int) -> int:
        return self.b if rank == self.a else self.a


@dataclass(frozen=True)
class Picture:
    """All that is known when the meeting is over, or when it was cut short.

    Args:
        expected: nodes of the job.
        nodes: those that came and said what they are, by rank.
        ranked: ranks were given to the nodes, so that a missing one can be named.
        waited_s: how long the meeting waited for all to come.
        unmet: why this node could not join the others; empty where it did.
        unlooked: why this node did not even try to.
        unfinished: what was left undone, and why; empty where nothing was.
        speeds: one for each node when pairs were tried.
        pairs: all that were tried, each once.
    """

    expected: int
    nodes: tuple[Facts, ...] = ()
    silent: tuple[Silent, ...] = ()
    clashes: tuple[Clash, ...] = ()
    ranked: bool = True
    waited_s: float = 0.0
    unmet: str = ""
    unlooked: str = ""
    unfinished: str = ""
    dials: tuple[Dial, ...] = ()
    speeds: tuple[Speed, ...] = ()
    pairs: tuple[Pair, ...] = ()
    tried_pairs: bool = False
    limits: Limits = field(default_factory=Limits)

    def is_of(self, nodes: int) -> bool:
        """Whether it may be of a meeting of so many nodes: another one posts it, and judging it takes time that goes
        with what is in it."""
        each = (self.nodes, self.silent, self.clashes, self.speeds)
        ranks = [node.rank for node in self.nodes] + [one.rank for one in self.silent]
        ranks += [one.rank for one in self.clashes] + [one.rank for one in self.speeds]
        dials = {(dial.src, dial.dst) for dial in self.dials}
        pairs = [pair.both for pair in self.pairs]
        known = {*ranks, *(rank for both in (*dials, *pairs) for rank in both)}
        return (
            self.expected == nodes
            and all(-1 <= rank < nodes for rank in known)
            and all(len(some) <= nodes for some in each)
            and len(self.dials) == len(dials)
            and len(pairs) <= MOST_ROUNDS * nodes
        )

    def name(self, rank: int) -> str:
        """`node slh2 (rank 1)`"""
        return "node " + self._short(rank)

    def names(self, ranks: Iterable[int], most: int = 4) -> str:
        """`node a (rank 0)`, `nodes a (rank 0) and b (rank 1)`, `nodes a (rank 0), b (rank 1) and 7 others`."""
        known = [self._short(rank) for rank in sorted(ranks)]
        shown = known if len(known) <= most else [*known[: most - 1], f"{len(known) - most + 1} others"]
        return f"node {shown[0]}" if len(shown) == 1 else f"nodes {', '.join(shown[:-1])} and {shown[-1]}"

    def _short(self, rank: int) -> str:
        hosts = {node.rank: node.host for node in self.silent} | {node.rank: node.host for node in self.nodes}
        return f"{hosts[rank]} (rank {rank})" if hosts.get(rank) else f"of rank {rank}"


@dataclass(frozen=True)
class Task:
    """What the node that holds the meeting asks the others to do, within `seconds`.

    Args:
        task: say that they are there, dial the others of the roster, compute by themselves, exchange data in pairs;
            or leave, with the picture that has come of it.
        backend: of torch, for what computes or exchanges data.
        pairs: two ranks each, and with how many of their GPUs.
    """

    task: Literal["roll", "dial", "compute", "pairs", "end"]
    seconds: float = 0.0
    roster: tuple[Place, ...] = ()
    backend: str = ""
    pairs: tuple[tuple[int, int, int], ...] = ()
    picture: Picture | None = None


@dataclass(frozen=True)
class Request:
    """What a node gives its probe. Ranks: `rank` is None where the meeting numbers the nodes; then `owner` tells
    whether the endpoint is an address of this node. `parent` is the process that the probe ends with. Times are seconds
    from the start of the probe."""

    host: str
    port: int
    nodes: int
    rank: int | None
    owner: bool
    parent: int
    meeting: str
    arrive_s: float
    deadline_s: float
    facts: Facts
    limits: Limits

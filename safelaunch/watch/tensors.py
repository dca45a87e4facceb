"""Tensors that do not fit together, in calls that have met all the same: NCCL compares nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from safelaunch.model import Finding, WorkerGroup, WorkerProcess
from safelaunch.model.operations import SAME_SIZE

KEPT = 1024  # meetings whose ranks have not all come yet; a record holds the latest 128 calls of a rank
MOST = 3  # lines that are told of in one attempt


class Brought(NamedTuple):
    """What a rank brought to one call. `numel` counts elements, `how` is what a reduction does, "" where there is none
    or it is not known; `place` is the line that calls."""

    op: str
    group: str
    seq: int
    size: int
    numel: int
    dtype: str
    how: str
    place: str

    @property
    def tensor(self) -> str:
        return f"{self.numel} x {self.dtype}"


Reader = Callable[[WorkerProcess, int], "tuple[list[Brought], int]"]


class Tensors:
    """Compares what the ranks of one attempt on this node bring to the same calls."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, int, str], dict[int, Brought]] = {}
        self._unlike: dict[tuple[str, int, str], dict[int, Brought]] = {}
        self._waited: set[tuple[str, int, str]] = set()  # for those who come a little later
        self._told: set[tuple[str, str]] = set()

    def add(self, rank: int, calls: Iterable[Brought]) -> None:
        """Take in the latest calls of a rank."""
        for call in calls:
            if call.op not in SAME_SIZE or call.numel < 0:
                continue
            key = call.group, call.seq, call.op
            met = self._met.setdefault(key, {})
            met[rank] = call
            first = next(iter(met.values()))
            if (call.numel, call.dtype) != (first.numel, first.dtype) or (call.how and first.how not in ("", call.how)):
                self._unlike.setdefault(key, met)
            elif len(met) >= call.size:
                del self._met[key]
        for key in list(self._met)[: max(0, len(self._met) - KEPT)]:
            del self._met[key]

    def told(self, *, last: bool = False) -> list[Finding]:
        """What does not fit together, once for each line of the script, when all have come, or at the second look: who
        differs from all others is known then. `last` says that nobody comes any more."""
        found: list[Finding] = []
        for key, met in list(self._unlike.items()):
            if not last and key not in self._waited and len(met) < next(iter(met.values())).size:
                self._waited.add(key)
                continue
            del self._unlike[key]
            what = {(call.op, call.place) for call in met.values()}
            if not what & self._told and len(self._told) < MOST:
                found.append(different_tensors(met))
            self._told |= what
        return found


def different_tensors(met: Mapping[int, Brought]) -> Finding:
    """Ranks brought tensors of different sizes or types, or different reductions, to one call.

    NCCL compares nothing: such a call hangs, or it completes with wrong numbers and without a word (an H200, NCCL
    2.28.9: an all_reduce of 999 elements on one rank and of 1,000 on its peers; `sum` on one and `max` on others).

    How it is concluded: the ranks' records show one operation at one number of one group, with different numbers of
    elements, types or reductions. Only operations count to which all members bring the same (all_reduce, broadcast,
    all_gather_into_tensor, reduce_scatter_tensor, ...). The latest 128 calls of each rank are looked at each second,
    so that of many short calls some are not seen; calls from C++ (DDP's) never are.

    What to do: compare the shapes at the line on all ranks. Usual reasons are an uneven last batch, a shape that
    depends on the data, a parameter that is there on one rank only, another dtype after a cast.
    """
    sizes = {rank: call.tensor for rank, call in met.items()}
    same = len(set(sizes.values())) == 1
    brought = {rank: call.how or "an unknown reduction" for rank, call in met.items()} if same else sizes
    alone = _alone(brought)
    rank = alone if alone is not None else min(met)
    call = met[rank]
    name = f"{call.op} #{call.seq}"
    others = ", ".join(f"rank {one} {brought[one]}" for one in sorted(brought) if one != rank)
    if alone is not None:
        others = f"its peers {next(value for one, value in brought.items() if one != alone)}"
    summary = f"rank {rank} brought {brought[rank]} to {name}, {others}"
    if same:
        summary = f"rank {rank} made {name} with {brought[rank]}, {others.replace('its peers', 'its peers with')}"
    lines = sorted({one.place for one in met.values()})
    return Finding(
        code="SL233",
        severity="warning",
        summary=summary,
        because=(
            "NCCL compares neither sizes nor types nor reductions: the call hangs, or goes on with wrong numbers",
            *([f"the ranks made it at {', '.join(lines)}"] if len(lines) > 1 else []),
        ),
        remedy="ask for the same reduction on all ranks"
        if same
        else "compare the shapes at this line on all ranks: an uneven last batch, a shape that depends on the data",
        where=call.place,
    )


def _alone(brought: Mapping[int, str]) -> int | None:
    """The one rank that differs from all others, where these are two or more and agree."""
    counts = Counter(brought.values())
    if len(counts) != 2 or len(brought) < 3:
        return None
    ranks = [rank for rank, value in brought.items() if counts[value] == 1]
    return ranks[0] if len(ranks) == 1 else None


class RankTensors:
    """What the ranks of one run bring to their calls, as far as their records are read.

    Args:
        read: the latest calls of a local rank behind an ordinal, with the ordinal of the last of them.
    """

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._attempt = -1
        self._tensors = Tensors()
        self._last: dict[int, int] = {}  # by rank

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:
        """What is new."""
        if group.attempt != self._attempt:
            self._attempt, self._tensors, self._last = group.attempt, Tensors(), {}
        for worker in group.workers:
            calls, self._last[worker.rank] = self._read(worker, self._last.get(worker.rank, 0))
            self._tensors.add(worker.rank, calls)
        return self._tensors.told(last=last)

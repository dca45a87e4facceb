"""What the collective probe says about its ranks, and who is to blame when it failed. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from safelaunch.preflight.active.progress import Progress, exit_text, series

OPERATIONS = ("init_process_group", "all_reduce", "all_gather")


@dataclass(frozen=True)
class Measured:
    """all_reduce of `size` bytes took so many seconds, on the average of some calls."""

    size: int
    seconds: float


@dataclass(frozen=True)
class RankReport(Progress):
    """What one rank did. `wrong_sum` tells that all_reduce gave it a wrong value, `wrong_from` whose values all_gather
    gave it wrong; `measuring` that it has come to the bandwidth, which is None until it has been measured."""

    steps: ClassVar[tuple[str, ...]] = OPERATIONS

    wrong_sum: bool = False
    wrong_from: tuple[int, ...] = ()
    measuring: bool = False
    bandwidth: tuple[Measured, ...] | None = None

    @property
    def done(self) -> bool:
        return self.left == len(OPERATIONS) and self.bandwidth is not None

    @property
    def where(self) -> str:
        if self.left < len(OPERATIONS) or self.done:
            return super().where
        return f"{'in' if self.measuring else 'before'} all_reduce with large messages"


@dataclass(frozen=True)
class ProbeReport:
    """The whole probe. Times are seconds; `error` is set when the ranks could not even be started."""

    ranks: tuple[RankReport, ...] = ()
    import_s: float = 0.0
    ranks_s: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Fault:
    """What went wrong in a probe, in one sentence, with what supports it."""

    summary: str
    because: tuple[str, ...] = ()


def find_fault(report: ProbeReport, deadline_s: float) -> Fault | None:
    """Who failed first in OPERATIONS; None when all ranks finished them with the right values."""
    ranks = report.ranks
    if all(rank.left == len(OPERATIONS) for rank in ranks):
        return _wrong_values(ranks)
    return first_failure(ranks) or _missing(ranks, deadline_s)


def first_failure(ranks: Sequence[RankReport]) -> Fault | None:
    """The failure that is the cause of the others."""
    failed = sorted((rank for rank in ranks if rank.failed_s is not None), key=lambda rank: rank.failed_s or 0.0)
    # A rank that dies in silence makes its peers raise errors about lost connections, never the other way round.
    for rank in [rank for rank in failed if not rank.error] or failed[:1]:
        return _failure(rank, [other for other in failed if other is not rank])
    return None


def _failure(rank: RankReport, others: Sequence[RankReport]) -> Fault:
    how = "failed" if rank.error else f"died with {exit_text(rank.exit_code)}"
    because = [said] if (said := rank.error or rank.last_words) else []
    if others:
        because.append(f"{name_ranks(sorted(others, key=lambda other: other.rank))} failed only after it")
    return Fault(f"rank {rank.rank} {how} {rank.where}", tuple(because))


def _missing(ranks: Sequence[RankReport], deadline_s: float) -> Fault:
    progress = [rank.entered + rank.left for rank in ranks]
    behind = [rank for rank, reached in zip(ranks, progress, strict=True) if reached == min(progress)]
    others = [rank for rank in ranks if rank not in behind]
    operation = OPERATIONS[behind[0].left]
    verb = "finish" if behind[0].entered > behind[0].left else "reach"
    if not others:
        return Fault(f"no rank could {verb} {operation} within {deadline_s:g} s")
    waiting = [rank for rank in others if rank.entered > rank.left]
    because = (f"{name_ranks(waiting)} waited in {OPERATIONS[waiting[0].left]}",) if waiting else ()
    return Fault(f"{name_ranks(behind)} did not {verb} {operation} within {deadline_s:g} s", because)


def _wrong_values(ranks: Sequence[RankReport]) -> Fault | None:
    seeing = [rank for rank in ranks if rank.wrong_sum or rank.wrong_from]
    if not seeing:
        return None
    # One rank's values wrong at everybody: it sent them so. Wrong at some only: it is they who got them wrong.
    senders = set(ranks[0].wrong_from).intersection(*(rank.wrong_from for rank in ranks))
    if senders:
        culprits = [rank for rank in ranks if rank.rank in senders]
        return Fault(f"{name_ranks(culprits)} sent wrong values", ("all ranks received the same wrong values",))
    operations = {
        "all_reduce": any(rank.wrong_sum for rank in seeing),
        "all_gather": any(rank.wrong_from for rank in seeing),
    }
    where = " and ".join(operation for operation, wrong in operations.items() if wrong)
    return Fault(f"{name_ranks(seeing)} received wrong values from {where}")


def name_ranks(ranks: Sequence[RankReport]) -> str:
    """`rank 2`; `ranks 0, 1 and 3`."""
    return series("rank", [rank.rank for rank in ranks])

"""What the collective probe says about its ranks, and who is to blame when it failed. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OPERATIONS = ("init_process_group", "all_reduce", "all_gather")


@dataclass(frozen=True)
class RankReport:
    """What one rank did. `entered` and `left` count operations in the order of OPERATIONS.

    `failed_s` is the time of its own failure in seconds since the ranks were started, None for none: then `error` is
    the exception's text, or empty for a rank that died without one, with `exit_code` as `subprocess` gives it.
    `wrong_sum` tells that all_reduce gave it a wrong value, `wrong_from` whose values all_gather gave it wrong.
    """

    rank: int
    entered: int = 0
    left: int = 0
    failed_s: float | None = None
    error: str = ""
    exit_code: int | None = None
    wrong_sum: bool = False
    wrong_from: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        if self.entered > self.left:
            return f"in {OPERATIONS[self.left]}"
        return f"before {OPERATIONS[self.left]}" if self.left < len(OPERATIONS) else "at the end"


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
    """Who failed first; None when all ranks finished with the right values."""
    ranks = report.ranks
    failed = sorted((rank for rank in ranks if rank.failed_s is not None), key=lambda rank: rank.failed_s or 0.0)
    # A rank that dies in silence makes its peers raise errors about lost connections, never the other way round.
    for rank in [rank for rank in failed if not rank.error] or failed[:1]:
        return _failure(rank, [other for other in failed if other is not rank])
    if any(rank.left < len(OPERATIONS) for rank in ranks):
        return _missing(ranks, deadline_s)
    return _wrong_values(ranks)


def _failure(rank: RankReport, others: Sequence[RankReport]) -> Fault:
    how = "failed" if rank.error else f"died with {_exit(rank.exit_code)}"
    because = [rank.error] if rank.error else []
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
    numbers = [str(rank.rank) for rank in ranks]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"


def _exit(code: int | None) -> str:
    if code is None:
        return "an unknown status"
    return f"signal {-code}" if code < 0 else f"exit code {code}"

"""What verdicts on ranks that waited share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from safelaunch.codes import CATALOGUE, EXIT_HANG
from safelaunch.diagnosis.wording import names
from safelaunch.model import Confidence, Location, Verdict
from safelaunch.model.logs import LogFacts, TimedOut

DEFAULT_GROUPS = {"", "0", "default_pg"}


def hang_verdict(
    code: str,
    summary: str,
    culprits: Iterable[int] = (),
    *,
    because: tuple[str, ...],
    remedy: str,
    confidence: Confidence,
    call: TimedOut | None = None,
    location: Location | None = None,
    waiting: Iterable[int] = (),
) -> Verdict:
    """A verdict of a hang; `waiting` are the ranks that it held up."""
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="hang",
        summary=summary,
        culprit_ranks=tuple(sorted(culprits)),
        location=location,
        operation=call.op.lower().strip("_") if call is not None else None,
        seq=call.seq if call is not None else None,
        process_group=call.group or None if call is not None else None,
        because=because,
        confidence=confidence,
        remedy=remedy,
        exit_code=EXIT_HANG,
        waiting=tuple(sorted(waiting)),
        secondary=tuple(sorted(waiting)),
    )


def peers(waiting: Iterable[int]) -> str:
    """`a peer waited for it`, `3 peers waited for it`."""
    count = len(set(waiting))
    return "a peer waited for it" if count == 1 else f"{count} peers waited for it"


def of_silence(facts: LogFacts, silent: Iterable[int]) -> str:
    """What it means that logs hold no timeout of these ranks: nothing, where their lines may not be there."""
    ranks = sorted(silent)
    absent = [rank for rank in ranks if rank not in facts.ranks]
    if facts.cut:
        return f"no timeout of {names(ranks)} is in the logs, which says nothing: {facts.cut}"
    if absent:
        return f"no line of {names(absent)} is in the logs: late, or waiting as well"
    return f"no timeout of {names(ranks)} is in the logs: late, ended before it could, or its line is missing"


def odd_one(facts: LogFacts, brought: dict[int, str], group: str) -> tuple[int, ...]:
    """The rank that differs from all others, if the members whose vote is not known could not turn it."""
    votes = Counter(brought.values())
    usual, count = votes.most_common(1)[0]
    odd = tuple(rank for rank, what in brought.items() if what != usual)
    if group not in DEFAULT_GROUPS:
        return ()
    if facts.world_size is None:
        # A last rank may have written nothing; no other can, and it alone cannot turn this vote.
        complete = set(brought) == set(range(len(brought))) and set(facts.ranks) <= set(brought)
        return odd if complete and len(odd) == 1 and count >= 3 else ()
    unseen = facts.world_size - len(brought)
    return odd if len(odd) == 1 and count >= 2 and count > len(odd) + unseen else ()

"""Ranks that wait for one another outside of torch.distributed, and nobody is in a collective: all stand still."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.diagnosis import stuck
from safelaunch.diagnosis.dumps import from_dumps
from safelaunch.diagnosis.failures import user_frame
from safelaunch.diagnosis.graph import graph
from safelaunch.diagnosis.hang import hang_verdict
from safelaunch.diagnosis.standing import is_busy, living
from safelaunch.diagnosis.stuck import LOCKS, POLLS, READS, RECEIVES, SLEEPS, TOO, WAITS_FOR_CHILD
from safelaunch.diagnosis.wording import at, is_waiting, names
from safelaunch.model import Case, Location, RankFacts, Verdict

WAITING = RECEIVES | POLLS | LOCKS | WAITS_FOR_CHILD


def all_idle(case: Case) -> Verdict | None:
    """No rank is in a collective and none gets on with anything, while some wait for other ranks by other means.

    How it was concluded: between two looks no rank used CPU time, moved data or came to another line; the kernel shows
    ranks that wait on a connection, at a pipe or for a lock whose other end another rank has, or the ranks' own words
    tell that they look at keys of the store again and again. A rank is named for whose answer all others wait, which
    is itself at no other rank's end and waits for no word on these connections; or the one that looks at another key
    than all others. What the store holds, and what a program that polls wants to see there, is not known: otherwise
    nobody is named.

    What to do: look at the lines; what is to answer may have ended (a thread with an exception), or wait itself.
    """
    ranks = living(case)
    whole = len(case.ranks) == case.world_size == len(ranks)
    if len(ranks) < 2 or not whole or from_dumps(case) or graph(case).waits or any(map(is_busy, ranks)):
        return None
    if any(facts.stack is None or facts.kernel is None or facts.missing for facts in ranks):
        return None  # one of which less is known may be in a collective
    ends = {facts.rank: end for facts in ranks if (end := stuck.other_rank(facts, ranks)) is not None}
    polls = {facts.rank: facts.store_polls for facts in ranks if facts.store_polls and _sleeps(facts)}
    if not ends and not polls:
        return None
    now = case.now or case.incident.t
    named, why = _server(ranks, ends, polls) or _at_another_key(ranks, polls) or (None, "")
    first = next((facts for facts in ranks if facts.rank == named), ranks[0])
    reason = stuck.why(first, first.pid, now, case.source)
    waiting = [facts.rank for facts in ranks if facts.rank != named]
    lines: dict[str, list[int]] = {}
    for facts in ranks:
        lines.setdefault(_does(facts, polls, now), []).append(facts.rank)
    return hang_verdict(
        case,
        "SL317",
        f"{is_waiting(waiting)} for rank {named} outside of torch.distributed: {why}"
        if named is not None
        else f"{names(f.rank for f in ranks)} stand still, and none is in a collective: they wait for one another by "
        "other means",
        () if named is None else (named,),
        location=_lost(first) or reason.location,
        because=(
            *reason.because,
            *(f"{names(who)}: {'it' if len(who) == 1 else 'each'} {what}" for what, who in lines.items()),
        ),
        remedy="see what is to answer there, and what has become of it: a thread that ended, a lock, a count",
        confidence="low" if named is None else "medium",
        waiting=waiting,
    )


def _server(
    ranks: Sequence[RankFacts], ends: dict[int, int], polls: dict[int, tuple[str, ...]]
) -> tuple[int, str] | None:
    """The rank that all others wait for: at its end of their connections, pipes and locks, or, of ranks that look at
    keys, the only one that does something else."""
    others = {facts.rank for facts in ranks} - {*ends}
    asked = {*ends.values()}
    if len(asked) == 1 and asked == others and len(ends) == len(ranks) - 1:
        too = any(facts.kernel is not None and facts.kernel.other.endswith(TOO) for facts in ranks)
        return None if too else (asked.pop(), "it has the other end of what they wait at")
    rest = [facts for facts in ranks if facts.rank not in polls]
    if not ends and len(rest) == 1 and polls and _sleeps(rest[0]):
        return rest[0].rank, "they look at keys in the store of torch.distributed, and it does not"
    return None


def _at_another_key(ranks: Sequence[RankFacts], polls: dict[int, tuple[str, ...]]) -> tuple[int, str] | None:
    """The rank that looks at another key than all others, where those are two at least and look at one."""
    if len(polls) < len(ranks) or len(ranks) < 3:
        return None
    keys = {rank: frozenset(own) for rank, own in polls.items()}
    for rank, own in keys.items():
        others = {theirs for other, theirs in keys.items() if other != rank}
        if len(others) == 1 and own not in others:
            return rank, f"it looks for {', '.join(sorted(own))} in the store, all others for " + ", ".join(
                sorted(*others)
            )
    return None


def _does(facts: RankFacts, polls: dict[int, tuple[str, ...]], now: float) -> str:
    place = user_frame(facts.stack)
    if facts.rank in polls:
        return f"looks again and again for {', '.join(polls[facts.rank])} in {stuck.STORE}{at(place)}"
    where = f" ({place.file}:{place.line})" if place is not None else ""
    return stuck.why(facts, facts.pid, now).what + where


def _sleeps(facts: RankFacts) -> bool:
    return facts.kernel is not None and facts.kernel.syscall in SLEEPS | WAITING | READS


def _lost(facts: RankFacts) -> Location | None:
    return facts.lost_thread.location if facts.lost_thread is not None else None

"""Ranks that wait for one another outside of torch.distributed, and nobody is in a collective: all stand still."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.hang.store_keys import shape
from safelaunch.diagnosis.sources.stack_samples import is_busy
from safelaunch.diagnosis.stall.endpoints import STORE
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.stall.syscalls import POLLS, READS, RECEIVES
from safelaunch.diagnosis.verdicts import hang_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.diagnosis.waitgraph.endpoints import peer_of
from safelaunch.diagnosis.wording import at, is_waiting, names
from safelaunch.model import Location, RankFacts, Verdict

LOCK_OF_ASYNCIO = re.compile(r"/asyncio/locks\.py:(?:\w+\.)?acquire$")
Polls = Mapping[int, tuple[str, ...]]


def all_idle(view: View) -> Verdict | None:
    """No rank is in a collective and none gets on with anything: each waits for other ranks by other means.

    Example:
        error[SL317]: ranks 1-3 wait for rank 0 outside of torch.distributed: it has the other end of what they wait at

    How it was concluded: between two looks no rank used CPU time, moved data or came to another line. Each of them does
    one of these:
    - it waits on a connection, at a pipe or for a lock whose other end a rank has;
    - it looks again and again at keys of the store like those that ranks have set;
    - it has lost a thread to an exception, or has tasks that wait for a lock of asyncio.
    A rank of the last kind is named where all others wait at its end. So is the rank that looks at another key than all
    others at the same line. Otherwise nobody is named: what a program wants to see in the store is not known. A rank
    that waits for input from elsewhere, as a service without requests does, makes all of this normal: nothing is told.

    What to do: look at the lines. What is to answer may have ended (a thread with an exception), or wait itself.

    What it is not: a wait in a collective. Where one rank is in a collective, other codes say for whom it waits.
    """
    ranks = view.living
    if len(ranks) < 2 or len(ranks) < view.case.world_size or any(map(is_busy, ranks)):
        return None
    if any(
        facts.stack is None or facts.kernel is None or facts.missing or facts.store_polls is None for facts in ranks
    ):
        return None  # one of which less is known may be in a collective, or at work
    now = view.now
    if any(phase.since + phase.expect_s > now for facts in ranks for phase in facts.phases if phase.expect_s):
        return None
    outside = view.graph.external
    ends = {wait.rank: wait.on for wait in outside if wait.on is not None and wait.resource.kind.has}
    polls = {facts.rank: facts.store_polls for facts in ranks if facts.store_polls}
    broken = [facts for facts in ranks if _is_broken(facts)]
    held = {*ends, *polls, *(facts.rank for facts in (*broken, *filter(_waits_for_itself, ranks)))}
    if held != {facts.rank for facts in ranks} or any(wait.asked for wait in outside):
        return None
    known = {shape(key) for facts in ranks for key in facts.store_keys}
    if any(shape(key) not in known for keys in polls.values() for key in keys):
        return None  # somebody outside of the job may be meant to set it
    named, why = _server(ranks, ends, broken) or _at_another_key(ranks, polls) or (None, "")
    first = next((facts for facts in ranks if facts.rank == named), ranks[0])
    reason = stall_of(first, first.pid, now, view.case.source)
    waiting = [facts.rank for facts in ranks if facts.rank != named]
    lines: dict[str, list[int]] = {}
    for facts in ranks:
        lines.setdefault(_does(facts, polls, now), []).append(facts.rank)
    return hang_verdict(
        view,
        "SL317",
        f"{is_waiting(waiting)} for rank {named} outside of torch.distributed: {why}"
        if named is not None
        else f"{names(waiting)} stand still, and none is in a collective: what they wait for is not known",
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


def _is_broken(facts: RankFacts) -> bool:
    """Whether a rank shows why it may not answer: a task waits for a lock, or an exception has ended a thread of it and
    its main thread does not wait for input."""
    inner = [stack.frames[0] for stack in facts.tasks if stack.frames]
    if any(LOCK_OF_ASYNCIO.search(f"{frame.file}:{frame.function}") for frame in inner):
        return True
    waits = facts.kernel is not None and facts.kernel.syscall in RECEIVES | READS | POLLS
    return facts.lost_thread is not None and (not waits or _waits_for_itself(facts))


def _waits_for_itself(facts: RankFacts) -> bool:
    peer = peer_of(facts)
    return peer is not None and facts.pid in peer.pids


def _server(ranks: Sequence[RankFacts], ends: Mapping[int, int], broken: list[RankFacts]) -> tuple[int, str] | None:
    """The one rank that shows why it does not answer, where all others wait at its end."""
    others = {facts.rank for facts in ranks} - {facts.rank for facts in broken}
    if len(broken) != 1 or {*ends} != others or {*ends.values()} != {broken[0].rank}:
        return None
    return broken[0].rank, "it has the other end of what they wait at"


def _at_another_key(ranks: Sequence[RankFacts], polls: Polls) -> tuple[int, str] | None:
    """The rank that looks at another key than all others, where those are two at least and look at one, all at the same
    lines of the program, and the keys are alike but for numbers. Elsewhere it may have another part to play."""
    if len(polls) < 3 or len({shape(key) for keys in polls.values() for key in keys}) > 1:
        return None
    if len({tuple(frames_of(facts, facts.pid)) for facts in ranks if facts.rank in polls}) > 1:
        return None
    for rank, own in polls.items():
        others = {theirs for other, theirs in polls.items() if other != rank}
        if len(others) == 1 and own not in others:
            return rank, f"it looks for {', '.join(own)} in the store, all others for {', '.join(*others)}"
    return None


def _does(facts: RankFacts, polls: Polls, now: float) -> str:
    place = user_frame(facts.stack)
    if facts.rank in polls:
        return f"looks again and again for {', '.join(polls[facts.rank])} in {STORE}{at(place)}"
    where = f" ({place.file}:{place.line})" if place is not None else ""
    return stall_of(facts, facts.pid, now).what + where


def _lost(facts: RankFacts) -> Location | None:
    return facts.lost_thread.location if facts.lost_thread is not None else None

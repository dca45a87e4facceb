"""Ranks that wait for one another outside of torch.distributed, and nobody is in a collective: all stand still."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.hang import looking, remote_calls
from safelaunch.diagnosis.hang.store_keys import shape
from safelaunch.diagnosis.sources.stack_samples import is_busy
from safelaunch.diagnosis.stall.endpoints import STORE
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.stall.syscalls import POLLS, READS, RECEIVES
from safelaunch.diagnosis.verdicts import hang_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.diagnosis.waitgraph.endpoints import peer_of
from safelaunch.diagnosis.waitgraph.store import KEY
from safelaunch.diagnosis.wording import at, is_waiting, names, verb
from safelaunch.model import Location, RankFacts, Verdict

KEYS_SHOWN = 3
LOCK_OF_ASYNCIO = re.compile(r"/asyncio/locks\.py:(?:\w+\.)?acquire$")


def all_idle(view: View) -> Verdict | None:
    """No rank is in a collective and none gets on with anything: each waits for other ranks by other means.

    Example:
        error[SL317]: ranks 1-3 wait for rank 0 outside of torch.distributed: it has the other end of what they wait at

    How it was concluded: between two looks no rank used CPU time, moved data or came to another line. Each of them does
    one of these:
    - it waits on a connection, at a pipe or for a lock whose other end a rank has;
    - it looks again and again at keys of the store like those that ranks have set;
    - it waits in the store for a key that nobody has set;
    - it sleeps and looks again and again at a file, in a loop of the program or of a library (a lock file);
    - it has lost a thread to an exception, or has tasks that wait for a lock of asyncio;
    - it waits for the answer of an RPC (torch.distributed.rpc), as all others do. Then a call that is served and does
      not end is named, or that all calls which are served ask other ranks again.
    A rank of the last kind is named where all others wait at its end. So is the rank that looks at another key than all
    others at the same line. One that alone looks at keys is named where all others wait for keys that nobody has set:
    no other is left to set them. Otherwise nobody is named: what a program wants to see in the store is not known. A
    rank that waits for input from elsewhere, as a service without requests does, makes all of this normal: nothing is
    told. Where all look for files, those are named: a lock file may have been left by a process that was killed.

    What to do: look at the lines. What is to answer may have ended (a thread with an exception), or wait itself.

    What it is not: a wait in a collective. Where one rank is in a collective, other codes say for whom it waits.
    """
    ranks = view.living
    if len(ranks) < view.case.world_size:
        return None
    asked = remote_calls.unanswered(view, ranks) if len(ranks) > 1 else None
    if asked is not None or not all(_is_quiet(facts, view.now) for facts in ranks):
        return asked
    looks = looking.of_all(ranks, view.lines)  # its stack shows a main thread outside of collectives
    if looks:
        return _looking(view, looks)
    if len(ranks) < 2 or not all(map(_is_known, ranks)):
        return None
    return _waiting(view, ranks)


def _waiting(view: View, ranks: Sequence[RankFacts]) -> Verdict | None:
    """The verdict where they wait for one another by other means."""
    external = view.graph.external
    asking = {wait.rank for wait in external if wait.resource.kind is KEY}
    waits = _Waits(
        ranks,
        ends={wait.rank: wait.on for wait in external if wait.on is not None and wait.resource.kind.has},
        polls={facts.rank: facts.store_polls for facts in ranks if facts.store_polls},
        wants={facts.rank: facts.store_wants for facts in ranks if facts.rank in asking and facts.store_wants},
        looks=frozenset(facts.rank for facts in ranks if looking.of_rank(facts, view.lines) is not None),
        broken=[facts for facts in ranks if _is_broken(facts)],
    )
    if (
        not waits.are_of_all
        or waits.are_answered
        or waits.look_for_foreign_keys
        or any(wait.asked for wait in external)
    ):
        return None
    return _verdict(view, waits)


def _is_known(facts: RankFacts) -> bool:
    """Whether a rank has said all of itself: one of which less is known may be in a collective, or at work."""
    return not facts.missing and facts.store_polls is not None


def _is_quiet(facts: RankFacts, now: float) -> bool:
    """Whether a rank is seen to get on with nothing."""
    if facts.stack is None or facts.kernel is None:
        return False
    in_time = any(phase.expect_s and phase.since + phase.expect_s > now for phase in facts.phases)
    return not in_time and not is_busy(facts)


@dataclass(frozen=True)
class _Waits:
    """What idle ranks wait for outside of torch.distributed.

    Args:
        ranks: all that live.
        ends: by rank: the one that has the other end of what it waits at.
        polls: by rank: the keys of the store that it looks at again and again.
        wants: by rank: the keys that its main thread waits for in the store.
        looks: the ranks that look again and again at a file.
        broken: the ranks that show why they may not answer.
    """

    ranks: Sequence[RankFacts]
    ends: Mapping[int, int]
    polls: Mapping[int, tuple[str, ...]]
    wants: Mapping[int, tuple[str, ...]]
    looks: frozenset[int]
    broken: Sequence[RankFacts]

    @property
    def are_of_all(self) -> bool:
        """Whether it is known of each rank what it waits for."""
        explained = {facts.rank for facts in (*self.broken, *filter(_waits_for_itself, self.ranks))}
        explained |= {*self.looks}
        return {*self.ends, *self.polls, *self.wants, *explained} == {facts.rank for facts in self.ranks}

    @property
    def there(self) -> set[str]:
        """The keys that ranks have set."""
        return {key for facts in self.ranks for key in facts.store_keys}

    @property
    def are_answered(self) -> bool:
        """Whether one of those that wait for keys has its answer, and is about to go on; or nobody looks at any: then
        all may wait for somebody outside."""
        return bool(self.wants) and (not self.polls or any({*keys} <= self.there for keys in self.wants.values()))

    @property
    def look_for_foreign_keys(self) -> bool:
        """Whether no rank has set a key like one of these: somebody outside of the job may be meant to set it."""
        shapes = {shape(key) for facts in self.ranks for key in facts.store_keys}
        return any(shape(key) not in shapes for keys in self.polls.values() for key in keys)


def _verdict(view: View, waits: _Waits) -> Verdict:
    ranks, now = waits.ranks, view.now
    named, why = _server(waits) or _at_another_key(waits) or _asked_of_one(waits) or (None, "")
    first = next((facts for facts in ranks if facts.rank == named), ranks[0])
    reason = stall_of(first, first.pid, now, view.case.source)
    waiting = [facts.rank for facts in ranks if facts.rank != named]
    lines: dict[str, list[int]] = {}
    for facts in ranks:
        lines.setdefault(_does(facts, view), []).append(facts.rank)
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


def _looking(view: View, looks: Mapping[int, looking.Look]) -> Verdict:
    """The verdict where every rank looks for a file, or for a lock file to go."""
    alike: dict[str, list[int]] = {}
    for rank, look in looks.items():
        alike.setdefault(look.what, []).append(rank)
    first = next(iter(looks.values()))
    who = names(looks)
    headline = (
        f"{who} {verb(looks, *first.verbs)} {first.what}, and none is in a collective"
        if len(alike) == 1
        else f"{who} look again and again at files, each for its own, and none is in a collective"
    )
    return hang_verdict(
        view,
        "SL317",
        headline,
        (),
        location=first.place,
        because=(
            *(
                f"{names(ranks)} {verb(ranks, *looks[ranks[0]].verbs)} {what}{at(looks[ranks[0]].place)}"
                for what, ranks in alike.items()
                if len(alike) > 1
            ),
            "between two looks no rank used CPU time, moved data or came to another line",
        ),
        remedy=first.remedy,
        confidence="medium",
        waiting=tuple(looks),
    )


def _is_broken(facts: RankFacts) -> bool:
    """Whether a rank shows why it may not answer.

    A task of it waits for a lock, or an exception has ended a thread of it and its main thread does not wait for input.
    """
    inner = [stack.frames[0] for stack in facts.tasks if stack.frames]
    if any(LOCK_OF_ASYNCIO.search(f"{frame.file}:{frame.function}") for frame in inner):
        return True
    waits = facts.kernel is not None and facts.kernel.syscall in RECEIVES | READS | POLLS
    return facts.lost_thread is not None and (not waits or _waits_for_itself(facts))


def _waits_for_itself(facts: RankFacts) -> bool:
    peer = peer_of(facts)
    return peer is not None and facts.pid in peer.pids


def _server(waits: _Waits) -> tuple[int, str] | None:
    """The one rank that shows why it does not answer, where all others wait at its end."""
    if len(waits.broken) != 1:
        return None
    rank = waits.broken[0].rank
    others = {facts.rank for facts in waits.ranks} - {rank}
    if {*waits.ends} != others or {*waits.ends.values()} != {rank}:
        return None
    return rank, "it has the other end of what they wait at"


def _at_another_key(waits: _Waits) -> tuple[int, str] | None:
    """The rank that looks at another key than all others.

    The others are two at least and look at one key, all at the same lines of the program, and the keys are alike but
    for numbers. Elsewhere it may have another part to play.
    """
    polls = waits.polls
    if len(polls) < 3 or len({shape(key) for keys in polls.values() for key in keys}) > 1:
        return None
    if len({tuple(frames_of(facts, facts.pid)) for facts in waits.ranks if facts.rank in polls}) > 1:
        return None
    usual, _ = collections.Counter(polls.values()).most_common(1)[0]
    outliers = [rank for rank, keys in polls.items() if keys != usual]
    if len(outliers) != 1:
        return None
    rank = outliers[0]
    return rank, f"it looks for {', '.join(polls[rank])} in the store, all others for {', '.join(usual)}"


def _asked_of_one(waits: _Waits) -> tuple[int, str] | None:
    """The one rank that looks at keys, while all others wait for keys that nobody has set."""
    if len(waits.polls) != 1 or {*waits.polls, *waits.wants} != {facts.rank for facts in waits.ranks}:
        return None
    rank, polled = next(iter(waits.polls.items()))
    lacks = [key for key in polled if key not in waits.there]
    wanted = {key for other, keys in waits.wants.items() if other != rank for key in keys} - waits.there
    if not lacks or not wanted or rank in waits.wants:
        return None
    return (
        rank,
        f"it looks in the store for {_listed(lacks)}, they wait for {_listed(sorted(wanted))}: nobody has set them",
    )


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys[:KEYS_SHOWN]) + (", ..." if len(keys) > KEYS_SHOWN else "")


def _does(facts: RankFacts, view: View) -> str:
    place = user_frame(facts.stack)
    if facts.store_polls:
        return f"looks again and again for {_listed(facts.store_polls)} in {STORE}{at(place)}"
    where = f" ({place.file}:{place.line})" if place is not None else ""
    return stall_of(facts, facts.pid, view.now, view.case.source).what + where


def _lost(facts: RankFacts) -> Location | None:
    return facts.lost_thread.location if facts.lost_thread is not None else None

"""Ranks that wait for others outside of collectives: for a key in the store, for a lock on a file, at a pipe."""

from __future__ import annotations

import re

from safelaunch.diagnosis import habits
from safelaunch.diagnosis.dumps import from_dumps
from safelaunch.diagnosis.failures import user_frame
from safelaunch.diagnosis.graph import graph
from safelaunch.diagnosis.hang import hang_verdict, label, place_of, waiters
from safelaunch.diagnosis.stuck import STORE, TOO, asks_store, other_rank, why
from safelaunch.diagnosis.wording import at, names
from safelaunch.model import Case, Location, Verdict

_KEY = re.compile(r"^store\.\w+\((.*)\)$")
_NUMBER = re.compile(r"\d+")
LOCK_CALLS = {"flock", "fcntl"}


def key_missing(case: Case) -> Verdict | None:
    """Ranks wait in collectives for others, and all of those wait for a key in the store that nobody sets.

    How it was concluded: whoever stands at the end of the chains of waits is in a call on its connection to the store,
    which answers `get` and `wait` when somebody has set the key. Whether it is the right one that is waited for nobody
    sees from outside, and no rank is named, unless one alone has set all keys like it before (alike but for numbers),
    and now waits for the others without having set this one.

    What to do: compare the key that is waited for with those that are set, and the conditions under which they are.
    """
    found = graph(case)
    ranks = {facts.rank: facts for facts in case.ranks}
    asking = sorted({rank for rank, _ in found.sinks})
    if not asking or from_dumps(case) or not all(asks_store(ranks[rank]) for rank in asking):
        return None
    blocked = sorted({wait.rank for wait in found.waits})
    setter = _who_sets(case, asking, blocked)
    places: dict[tuple[str, Location | None], list[int]] = {}
    for rank in asking:
        phase = next((phase.name for phase in ranks[rank].phases if phase.name.startswith("store.")), "the store")
        places.setdefault((phase, user_frame(ranks[rank].stack)), []).append(rank)
    return hang_verdict(
        case,
        "SL311",
        f"{_wait(asking)} for a key in {STORE}, and {_wait(blocked)} for {'it' if len(asking) == 1 else 'them'}",
        (setter.rank,) if setter is not None else (),
        location=next(iter(places))[1]
        if setter is None
        else place_of(case, next(wait for wait in found.waits if wait.rank == setter.rank)),
        because=(
            *((setter.text,) if setter is not None else ()),
            *(f"{_wait(who)} in {call}" + at(place) for (call, place), who in places.items()),
            *waiters(case, found),
        ),
        remedy="compare the key that is waited for with those that are set, and under which condition",
        confidence="medium",
        waiting=(*asking, *blocked),
    )


def _who_sets(case: Case, asking: list[int], blocked: list[int]) -> habits.Departure | None:
    """The rank that alone has set keys like those that are waited for, and not these."""
    ranks = {facts.rank: facts for facts in case.ranks}
    phases = {phase.name for rank in asking for phase in ranks[rank].phases if phase.name.startswith("store.")}
    wanted = {_KEY.sub(r"\1", name) for name in phases}
    like = {
        rank: [key for key in facts.store_keys if _shape(key) in set(map(_shape, wanted))]
        for rank, facts in ranks.items()
    }
    setters = [rank for rank, keys in like.items() if keys]
    if len(wanted) != 1 or len(setters) != 1 or setters[0] not in blocked or len(case.ranks) != case.world_size:
        return None
    keys = like[setters[0]]
    if len(keys) < habits.OFTEN or wanted & {*keys}:
        return None
    key = wanted.pop()
    return habits.Departure(
        setters[0], f"rank {setters[0]} has set {len(keys)} keys like it (the last one {keys[-1]}), and not {key}"
    )


def _shape(key: str) -> str:
    return _NUMBER.sub("#", key)


def held_by_peer(case: Case) -> Verdict | None:
    """Ranks wait for a file lock, at a pipe or on a connection whose other end another rank has, and that one waits for
    them.

    How it was concluded: of each rank that its peers wait for, the kernel shows whose process is at the other end of
    the call that it is in; that is a rank which itself waits for it in a collective. Of a lock the holder is named: it
    has entered a collective without giving it back. Of pipes and connections nobody is, unless an exception has ended a
    thread of the rank at the other end: that thread may be the one that was to answer. Where a thread of it waits for
    input from the same connection, both sides wait for the other's word: what was asked has not come whole (it stands
    in a buffer that nobody has flushed), or was not answered.

    What to do: release locks before every collective, also on the way out of an early return or an exception; let a
    rank whose server thread fails fail; flush what is to be answered.
    """
    found = graph(case)
    ranks = {facts.rank: facts for facts in case.ranks}
    ends = sorted({rank for rank, _ in found.sinks})
    holders = {rank: other_rank(ranks[rank], case.ranks) for rank in ends}
    waits = {wait.rank: wait for wait in found.waits}
    if not ends or from_dumps(case) or not all(holder in waits for holder in holders.values()):
        return None
    calls = {kernel.syscall for rank in ends if (kernel := ranks[rank].kernel) is not None}
    held = sorted({holder for holder in holders.values() if holder is not None})
    first = waits[held[0]]
    locks = calls <= LOCK_CALLS
    lost = None if locks else ranks[held[0]].lost_thread
    what = "the lock" if locks else "the other end"
    now = case.now or case.incident.t
    asker = ranks[ends[0]]
    if len(ends) == 1 and lost is None and asker.kernel is not None and asker.kernel.other.endswith(TOO):
        return hang_verdict(
            case,
            "SL311",
            f"rank {asker.rank} and a thread of {names(held)} wait for each other's word on one connection",
            (),
            location=user_frame(asker.stack),
            because=(f"rank {asker.rank} {why(asker, asker.pid, now).what}", *waiters(case, found)),
            remedy="see whether what was sent is whole and flushed, and whether the other end has an answer to it",
            confidence="medium",
            waiting=(*ends, *waits),
        )
    return hang_verdict(
        case,
        "SL311",
        f"{names(held)} {'has' if len(held) == 1 else 'have'} {what} that {_wait(ends)} for, and waits itself in "
        f"{label(first.call)}",
        tuple(held) if len(held) == 1 and (locks or lost is not None) else (),
        location=lost.location if lost is not None and lost.location is not None else place_of(case, first),
        call=first.call,
        because=(
            *(f"rank {rank} {why(ranks[rank], ranks[rank].pid, now).what}" for rank in ends),
            *waiters(case, found),
        ),
        remedy="release locks before every collective, also where a function returns early"
        if locks
        else "see who is to answer at the other end, and what has become of it",
        confidence="medium",
        waiting=(*ends, *waits),
    )


def _wait(ranks: list[int]) -> str:
    return f"{names(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"

"""Ranks that cannot meet in `init_process_group`: they look for one another at different places, or for too many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.record import WORLD
from safelaunch.diagnosis.wording import in_brackets, names, verb
from safelaunch.model import Collective, RankFacts, Rendezvous, Verdict

INIT = "init"  # the group in which our record has that call
VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
SHOWN = 3  # places that a headline has room for
LEAVE_IT = "leave MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE to the launcher, and pass none of them"
LISTENS = "the launcher has given {}, where its store listens; under torchrun no rank serves a store of its own"

Calls = Mapping[int, Rendezvous]  # by rank


def cannot_meet(view: View) -> Verdict | None:
    """Ranks call `init_process_group` with a place, a world size or numbers by which they cannot meet.

    Example:
        error[SL319]: ranks 0 and 1 call init_process_group with different MASTER_PORT: 29501 and 29502 (train.py:40)

    How it was concluded: each rank writes down what it calls it with, by the arguments or else the environment at that
    moment. That is compared with what the launcher has given, with the number of ranks that were started, and with what
    the others have. It is said where all ranks are inside that call, or no collective has ended since. With NCCL of
    torch before 2.15 the call itself returns, and the first collective waits.

    What to do: leave the variables to the launcher. `torch.cuda.device_count()` is no world size: use WORLD_SIZE.

    What it is not: a rank that has not called `init_process_group` yet. That is SL309.
    """
    ranks = [facts for facts in view.living if facts.meets is not None]
    calls = {facts.rank: facts.meets for facts in ranks if facts.meets is not None}
    if not view.sees_all_ranks or not calls or not all(map(_has_met_nobody, ranks)):
        return None
    what = next(_reasons(view, calls), None)
    if what is None:
        return None
    summary, because = what
    call = next((own for facts in ranks for own in facts.collectives if own.group == INIT), None)
    return hang_verdict(
        view,
        "SL319",
        summary + in_brackets(call.location if call is not None else None),
        (),
        location=call.location if call is not None else None,
        call=call,
        because=(*because, *waiters(view)),
        remedy=LEAVE_IT,
        confidence="high" if _is_proved(view, calls) else "medium",
        waiting=calls,
    )


def _is_proved(view: View, calls: Calls) -> bool:
    """Whether more than names of one host may differ: `localhost` and its own name are one place."""
    ports = {place.rpartition(":")[2] for meets in calls.values() for place in (meets.where, meets.given)}
    numbers = [meets.rank for meets in calls.values()]
    return (
        len(ports) > 1 or len({*numbers}) < len(numbers) or any(m.size > view.case.world_size for m in calls.values())
    )


def _has_met_nobody(facts: RankFacts) -> bool:
    """Whether a rank is inside the call, or has completed nothing since."""
    met = [own for own in facts.collectives if own.group == INIT]
    since = [own for own in (*facts.collectives, *(facts.recorded or ())) if own.group == WORLD and _has_ended(own)]
    return bool(met) and (not met[-1].done or not since) and not met[-1].raised


def _has_ended(call: Collective) -> bool:
    return call.done and not call.issued and call.state in ("", "completed")


def _reasons(view: View, calls: Calls) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Why these cannot meet, as a headline with what speaks for it, the surest first."""
    started = view.case.world_size
    sizes = sorted({meets.size for meets in calls.values() if meets.size >= 0})
    if sizes and sizes[-1] > started:
        asking = [rank for rank, meets in calls.items() if meets.size == sizes[-1]]
        were = "rank was" if started == 1 else "ranks were"
        yield (
            f"world_size is {sizes[-1]} in init_process_group, and {started} {were} started",
            (f"{names(asking)} {verb(asking, 'waits', 'wait')} for {sizes[-1]} ranks",),
        )
    yield from _places(view, calls)
    yield from _numbers(calls)


def _places(view: View, calls: Calls) -> Iterator[tuple[str, tuple[str, ...]]]:
    inside = not any(
        own.group == INIT and own.done for facts in view.living if facts.rank in calls for own in facts.collectives
    )
    at: dict[str, list[int]] = {}
    for rank, meets in calls.items():
        at.setdefault(meets.where, []).append(rank)
    if not inside or "" in at:
        return  # who has come through has met the others; a store that was passed may be anywhere
    given = sorted({meets.given for meets in calls.values()})
    foreign = any(meets.given and ":/" not in meets.where and meets.where != meets.given for meets in calls.values())
    lines = tuple(
        f"{names(ranks)} {verb(ranks, 'looks', 'look')} for the others at {where}" for where, ranks in at.items()
    )
    lines += (LISTENS.format(" and ".join(given)),) if foreign else ()
    if any(0 < meets.size > len(at[meets.where]) for meets in calls.values()) and len(at) > 1:
        yield f"{names(calls)} call init_process_group with different {_differing(list(at))}", lines
    elif foreign:
        where = next(meets.where for meets in calls.values() if meets.where != meets.given)
        yield f"{names(calls)} look for one another at {where}, and the launcher has given {' and '.join(given)}", lines


def _differing(places: list[str]) -> str:
    """`MASTER_PORT: 29501 and 29502`."""
    parts = [place.rpartition(":")[::2] for place in places]
    if any("//" in place for place in places):
        name, values = "init_method", places
    elif len({address for address, _ in parts}) > 1:
        name, values = VARIABLES[0], [address for address, _ in parts]
    else:
        name, values = VARIABLES[1], [port for _, port in parts]
    more = [f"{len(values) - SHOWN} more"] if len(values) > SHOWN else []
    return f"{name}: {' and '.join([*values[:SHOWN], *more])}"


def _numbers(calls: Calls) -> Iterator[tuple[str, tuple[str, ...]]]:
    by_number: dict[int, list[int]] = {}
    for rank, meets in calls.items():
        by_number.setdefault(meets.rank, []).append(rank)
    for number, ranks in by_number.items():
        if number >= 0 and len(ranks) > 1:
            yield f"{names(ranks)} all call init_process_group as rank {number}", ()

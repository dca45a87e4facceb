"""Ranks whose watchdogs gave up on an operation that their lines do not name: torch's nccl2 (2.15 and later).

All that such a line says is who waited. Who has written none while its peers have was not waiting in anything that
timed out: it is late, or it has ended. Where nothing shows that its lines are here, its silence says nothing.
"""

from __future__ import annotations

from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.waits import DEFAULT_GROUPS, hang_verdict, of_silence, peers
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, Sighting

WAITED = ("nccl2-timeout", "nccl2-abort")


def waited(facts: LogFacts) -> dict[int, Sighting]:
    """The ranks that have said that an operation of theirs timed out, each with its first line."""
    found: dict[int, Sighting] = {}
    for said in facts.sightings:
        if said.known.name in WAITED and said.rank is not None:
            found.setdefault(said.rank, said)
    return found


def timed_out(timeline: Timeline) -> Verdict | None:
    """The verdict on operations of nccl2 that timed out; None where none did."""
    facts = timeline.facts
    said = waited(facts)
    if not said:
        return None
    first = next(iter(said.values()))
    silent = set(range(facts.world_size or max([*said, *facts.ranks]) + 1)) - set(said)
    spoke = silent <= set(facts.ranks) and not facts.cut  # else its lines may be what is missing
    groups = {s.field("group") for s in said.values()}
    if len(silent) != 1 or not spoke:
        who = f"{names(said)} timed out in operations that the log does not name"
        return hang_verdict(
            "SL399",
            _headline(who, silent, spoke=spoke),
            because=(
                quote(first.at),
                *((of_silence(facts, silent),) if silent and not spoke else _why(silent, several=True)),
                *missing(facts, recorder=True)[:2],
            ),
            remedy=_remedy(silent),
            confidence="low",
            waiting=said,
        )
    # In a group of its own, the silent rank may wait for another, with a longer timeout.
    sure = len(said) > 1 and groups <= DEFAULT_GROUPS and facts.world_size is not None
    return hang_verdict(
        "SL301",
        f"{names(silent)} wrote of no timeout, and all others did: it is late, or has ended; {peers(said)}",
        silent,
        because=(quote(first.at), *_why(silent, several=False), *missing(facts, recorder=True)[:2]),
        remedy=_remedy(silent),
        confidence="medium" if sure else "low",
        waiting=said,
    )


def _headline(who: str, silent: set[int], *, spoke: bool) -> str:
    if not silent:
        return who
    if not spoke:
        return f"{who}, and the logs do not say whether {names(silent)} did"
    return f"{who}, and {names(silent)} wrote nothing of that: one of them at least is late"


def _why(silent: set[int], *, several: bool) -> tuple[str, ...]:
    if not silent:
        return ("with sizes or operations that differ, all ranks of a group wait",)
    if several:
        return ("a rank may also wait in a group with a longer timeout, or for another silent one",)
    return ("nccl2 says neither operation nor number: a rank that wrote nothing may also have lost its log",)


def _remedy(silent: set[int]) -> str:
    dumps = "`safelaunch diagnose` of the Flight Recorder's dumps says more"
    return f"look at the log and the stack of {names(silent)}; {dumps}" if silent else f"{dumps}: it has the operations"

"""Who wrote a line that has no mark, by its own words: `[Rank 7] NCCL watchdog thread ...`, `Rank 3: found NaN`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from safelaunch.evidence.logs.messages import NCCL_PROCESS
from safelaunch.model.logs import Ended, Event, Raised, Sighting
from safelaunch.model.ranks import MOST_RANKS

# The default group's number is the rank; a group that has a name or a number of its own counts its members anew.
_OF_GROUP = re.compile(r"\[(?:PG (?:ID )?0(?: PG GUID 0)? ?(?:\(default_pg\) ?)?)?[ ]?Rank (?P<rank>\d{1,7})\]")
_OTHER_GROUP = re.compile(r"\[PG (?!(?:ID )?0\b)")
_SPEAKS = re.compile(
    r"^\W{0,3}(?:(?:[Gg]lobal )?[Rr]ank[ :=#]{0,2}(?P<rank>\d{1,7})\]?\)?[:,] (?!.*\b(?:alpha|lora))"
    r"|rank=(?P<key>\d{1,7})\b(?!.*\b(?:alpha|lora)))"
)
_AT_STEP = re.compile(r"\bon rank (\d{1,7}) at (?:iteration|step)\b")
# An exception whose message begins with a rank may speak of another one, whose share it looks at. Who tells of its own
# numbers, device or host is that rank.
_OF_ITSELF = re.compile(r"\bfound (?:nan|inf)\b|\b(?:device|node|host|hostname|pid)\s?[:=]", re.IGNORECASE)
# What NCCL's set-up writes of itself: the first number is the rank, the second the root of the group.
_SETS_UP = re.compile(r"^\[(\d{1,7})\] is setting up NCCL communicator")
_COMMUNICATOR = re.compile(r"\bcomm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7})\b")
_GPU = re.compile(r":\d{1,9}:\d{1,9} \[(?P<gpu>\d{1,4})\] ")

E = TypeVar("E", bound=Event)


def rank_of(event: Event, world: int) -> int | None:
    """The rank that a message calls its own; None where it names none, or one that the job does not have.

    Args:
        event: whose rank no mark tells.
        world: the size of the job, 0 where it is not known.
    """
    if not isinstance(event, (Raised, Sighting)) or (isinstance(event, Raised) and event.relayed):
        return None
    text, said = event.at.text, event.message if isinstance(event, Raised) else ""
    own = said if _OF_GROUP.search(said) or _AT_STEP.search(said) or _OF_ITSELF.search(said) else ""
    found = next((rank for one in (own, text) if (rank := spoken(one)) is not None), None)
    return found if found is not None and found < (world or MOST_RANKS) else None


def spoken(text: str) -> int | None:
    """The number that a line calls its own rank."""
    match = None if _OTHER_GROUP.search(text) else _OF_GROUP.search(text)
    match = match or _SPEAKS.search(text) or _AT_STEP.search(text) or _SETS_UP.search(text)
    number = next(filter(None, match.groups()), None) if match else None
    return int(number) if number is not None else None


def process_of(text: str) -> tuple[str, str] | None:
    """Host and pid of the process of NCCL that wrote a line, as it says."""
    match = NCCL_PROCESS.search(text)
    return (match["host"], match["pid"]) if match else None


def shared(events: Iterable[E]) -> list[E]:
    """The events, with ranks for all lines of a process that has named one rank as its own, and with the process of
    NCCL's lines, which name host, pid and GPU."""
    events = list(events)
    told: dict[tuple[str, str, str], set[int]] = {}
    members: dict[tuple[str, str], set[int]] = {}
    for event in events:
        if event.process and event.rank is not None:
            told.setdefault((event.at.file, event.host, event.process), set()).add(event.rank)
        process, member = NCCL_PROCESS.search(event.at.text), _COMMUNICATOR.search(event.at.text)
        if process and member:
            members.setdefault((process["host"], process["pid"]), set()).add(int(member["rank"]))
    return [_named(event, told, members) for event in events]


def _named(event: E, told: dict[tuple[str, str, str], set[int]], members: dict[tuple[str, str], set[int]]) -> E:
    if event.rank is not None or isinstance(event, Ended) or (isinstance(event, Raised) and event.relayed):
        return event
    ranks = told.get((event.at.file, event.host, event.process), set()) if event.process else set()
    if len(ranks) == 1:
        return replace(event, rank=min(ranks))
    match = NCCL_PROCESS.search(event.at.text)
    if match is None or event.process or event.local is not None:
        return event
    gpu = _GPU.search(event.at.text)
    own = members.get((match["host"], match["pid"]), set())
    parts = [f"GPU {gpu['gpu']}"] if gpu else []
    parts += [f"rank {min(own)} of its communicator"] if len(own) == 1 else []
    more = f" ({', '.join(parts)})" if parts else ""
    return replace(event, process=f"process {match['pid']} on {match['host']}{more}")

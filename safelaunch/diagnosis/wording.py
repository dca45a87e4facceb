"""Small pieces of sentences that all rules share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from safelaunch.diagnosis.waitgraph.calls import MAKING
from safelaunch.diagnosis.waitgraph.record import LEAVING, WORLD
from safelaunch.model import Collective, Condition, Location, RankFacts
from safelaunch.model.ranks import runs
from safelaunch.shortened import shortened

OUT_OF_THE_CONDITION = "take the collective out of the condition, or let all ranks of the group call it"
SAME_ORDER = "make the same collectives in the same order on all ranks"
MOST_NAMED = 8  # ranks, or ranges of them, in a line
SEVERAL_STEPS = 2  # for each call: then the steps' own are made by C++ (DDP, FSDP)
NUMBERED = re.compile(r"(?:^|[\s:.])(?:1[).]|\(1\)|a\)|\(a\))\s")
SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z\[`(\"'])")
LEAST_TOLD = 40  # characters of an exception's message: shorter sentences tell little
OF_AUTOGRAD = re.compile(r"/torch/(?:autograd|distributed/fsdp)/")


def names(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 1 and 3`, `ranks 0-2 and 7`, `ranks 0, 8, 16, 24, 32, 40, 48, 56 and 56 more`."""
    numbers = sorted(ranks)
    if not numbers:
        return "no rank"
    parts: list[str] = []
    told = 0
    for run in runs(numbers):
        if len(parts) >= MOST_NAMED:
            break
        parts += [str(number) for number in run] if len(run) < 3 else [f"{run[0]}-{run[-1]}"]
        told += len(run)
    if told < len(numbers):
        parts.append(f"{len(numbers) - told} more")
    text = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {text}"


def verb(ranks: Collection[int], one: str, several: str) -> str:
    """The form of a verb that goes with these ranks."""
    return one if len(ranks) == 1 else several


def peers_wait(ranks: Collection[int], late: int) -> str:
    """`rank 3 waits for it`, `2 peers wait for them`: those that wait, for this many late ranks."""
    whom = "it" if late == 1 else "them"
    return f"rank {next(iter(ranks))} waits for {whom}" if len(ranks) == 1 else f"{len(ranks)} peers wait for {whom}"


def is_waiting(ranks: Iterable[int]) -> str:
    """`rank 3 waits`, `ranks 1 and 3 wait`."""
    numbers = list(ranks)
    return f"{names(numbers)} {'waits' if len(numbers) == 1 else 'wait'}"


def below(condition: Condition, file: str) -> str:
    """`stands below `rank == 0` (train.py:61)`, or where that does not hold: in the other branch, or behind one that
    does not go on."""
    place = f"({file}:{condition.line})"
    if condition.holds:
        return f"stands below `{condition.text}` {place}"
    return f"stands where `{condition.text}` does not hold {place}"


def at(place: Location | None) -> str:
    """` at train.py:88`, or nothing. A thread of autograd runs no line of the program: that of torch tells nobody more
    than that it does."""
    if place is None:
        return ""
    return " in a backward pass" if OF_AUTOGRAD.search(place.file) else f" at {place.file}:{place.line}"


def short(place: Location) -> str:
    """`train.py:88`: a headline has no room for folders."""
    return f"{place.file.rpartition('/')[2]}:{place.line}"


def in_brackets(place: Location | None) -> str:
    """` (train.py:88)`, or nothing."""
    return f" ({short(place)})" if place is not None else ""


def of_group(call: Collective) -> str:
    """` of group 5`, or nothing where that is the world, or of a message."""
    # `0.1` is a world of which another dump has other members: it may be of another run.
    world = call.group.partition(".")[0] == WORLD or call.group == "init" or call.group.startswith(MAKING)
    return "" if world or call.is_message else f" of group {call.group}"


def call_at(call: Collective, *, reduction: bool = False, group: bool = False, caller: Location | None = None) -> str:
    """`all_reduce #12 (train.py:71)`, as headlines name a call; with its group where several matter, and the `caller`
    of its line where several ranks are at that: `(layers.py:17, from train.py:45)`."""
    name = label(call, reduction=reduction) + (of_group(call) if group else "")
    if caller is not None and call.location is not None:
        return f"{name} ({short(call.location)}, from {short(caller)})"
    return name + in_brackets(call.location)


def under(condition: Condition) -> str:
    """` under `rank == 0``, or ` where `rank == 0` does not hold`."""
    return f" under `{condition.text}`" if condition.holds else f" where `{condition.text}` does not hold"


def one_line(text: str, limit: int = 200) -> str:
    """The first line of a message, shortened."""
    lines = text.strip().splitlines()
    first = lines[0] if lines else ""
    return shortened(first, limit)


def telling(text: str, limit: int = 200) -> str:
    """The first line of an exception's message, as a headline has it. One that is too long ends with a whole sentence,
    and ahead of a list of reasons: their first is only the first."""
    first = next(iter(text.strip().splitlines()), "")
    if len(first) <= limit:
        return first
    listed = NUMBERED.search(first)
    most = min(limit, listed.start() if listed else limit)
    ends = [end.end() for end in SENTENCE_END.finditer(first) if LEAST_TOLD <= end.end() <= most]
    return first[: ends[-1]] if ends else shortened(first, limit)


def last_collective(facts: RankFacts, *, alone: bool) -> str:
    """`it had finished all_reduce #12 at train.py:88, the last collective that its program called`, or nothing; the
    rank's name where it is not `alone`. What DDP reduces is called by nobody's program. To destroy a group is no call
    of a collective, and what was only started is not finished."""
    last = next((call for call in reversed(facts.collectives) if call.op != LEAVING), None)
    if last is None or last.group == "init" or last.group.startswith(MAKING) or SEVERAL_STEPS * last.seq < facts.step:
        return ""
    did = "had started, and not waited for," if last.issued else "had finished" if last.done else "was inside"
    what = "message" if last.is_message else "collective"
    who = "it" if alone else f"rank {facts.rank}"
    return f"{who} {did} {last.op} #{last.seq}{at(last.location)}, the last {what} that its program called"


def program(command: str) -> str:
    """What a process runs, without its arguments: they may hold secrets, and the process may be a stranger's."""
    words = command.split()
    names = [words[0].rpartition("/")[2]] if words else []
    if names and names[0].startswith("python"):
        names += [word.rpartition("/")[2] for word in words[1:] if not word.startswith("-")][:1]
    return " ".join(names)[:60]


def label(call: Collective, *, reduction: bool = False) -> str:
    """`all_reduce #12`, `all_reduce #12 with max`, `recv from rank 3`; a sum is told if `reduction` asks for it."""
    if call.is_message:
        other = "any rank" if call.peer is None else f"rank {call.peer}"
        return f"{call.op} {'from' if 'recv' in call.op else 'to'} {other}"
    if call.peer is not None:
        return f"{call.op} #{call.seq} with root {call.peer}" + (f" and {call.how}" if reduction else "")
    if call.group == "init" or call.group.startswith(MAKING):
        return call.op
    return f"{call.op} #{call.seq}" + (f" with {call.how}" if call.how and (reduction or call.how != "sum") else "")

"""Ranks that ended with an error code, and of which no exception says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from safelaunch.diagnosis import pasted
from safelaunch.diagnosis.crash.first_failure import (
    SIMULTANEOUS_S,
    Failure,
    departure,
    exit_call,
    exit_number,
    primary,
    roots,
    unaccounted,
)
from safelaunch.diagnosis.crash.process_end import last_call, last_words, may_be_a_victim, shortly, signal_name
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Case, Confidence, Location, RankFacts, Verdict

SHOWN = 4  # lines of a program


def exit_everywhere(view: View) -> Verdict | None:
    """Every rank ended with an error code and without an exception: a wrong argument, or whatever else all of them
    found. No rank is to blame.

    Example:
        error[SL415]: every rank left with exit code 2: train.py: error: the following arguments are required: --lr

    How it was concluded: two ranks or more have ended on this node, all of them by Python, and with an exit status that
    is not 0. None of them recorded an exception or had lost a peer. Where they left at different lines, or with
    different codes, the first two left within 0.5 s. While nobody has made a collective yet, ranks that still start are
    counted out.

    What to do: look at the named line. Where argparse ended the program, its message says what is wrong with the
    command line.

    What it is not: one rank that left alone or first (SL407), or one exception on all ranks (SL402).
    """
    found = primary(view.case)
    coming = _still_starting(view.case)
    if len(found) < 2 or len(found) + len(coming) != len(view.case.ranks):
        return None
    if not all(failure.nature == "exit_code" and _by_program(failure.facts) for failure in found):
        return None
    ways = {_way(failure.facts): failure for failure in reversed(found)}
    times = sorted(departure(failure.facts) for failure in found)
    if len(ways) > 1 and times[1] - times[0] > SIMULTANEOUS_S:
        return None
    first = found[0].facts
    who = names(failure.rank for failure in found) if coming else "every rank"
    alike = len(ways) == 1
    verdict = crash_verdict(
        view,
        "SL415",
        _how_it_left(who, first) if alike else f"{who} left with an error code, and none was first",
        [],
        location=_place(first),
        because=(*(_ground(first) if alike else _of_each_way(found, ways.values())), *_coming(coming)),
        remedy=_remedy(first),
        confidence=_confidence(first, alone=alike and not coming),
    )
    return dataclasses.replace(verdict, secondary=())


def silent_exit(view: View) -> Verdict | None:
    """A rank ended with an error code and without an exception: `sys.exit`, `os._exit`, or native code.

    Example:
        error[SL407]: rank 1 left with exit code 3 and no exception

    How it was concluded: the exit status is not 0, no signal was involved, and the rank recorded no exception. A rank
    whose last collective never returned to it is left out where another one had failed or left before. Several ranks
    are named where they left at the same line, with the same code, and all others waited.

    The verdict names the line where the program called `sys.exit`, `exit` or `os._exit` from Python. A program that
    raises SystemExit itself leaves no trace: a line is named where no other of the script does so with this code.

    What to do: look at the named line. Without one, look at the rank's last output, and see whether a library calls
    `exit` from native code.

    What it is not: an exit with 0 while peers waited (SL408), or an exit of every rank (SL415).
    """
    found = roots(view.case)
    culprits = [root for root in found if root.nature == "exit_code"]
    if not culprits or len(culprits) != len(found) or may_be_a_victim(view.case, culprits):
        return None  # several ranks that leave alike and say nothing prove nothing
    if len(culprits) > 1 and unaccounted(view.case):
        return None  # one of those may have told them to leave
    first = culprits[0].facts
    if first.raised and first.exit_call is None:
        return None  # an exception whose record is lost: it may have told of a lost peer
    coming = _still_starting(view.case)
    beside = () if exit_call(first) else (*last_words(culprits[0]), *last_call(culprits))
    return crash_verdict(
        view,
        "SL407",
        _how_it_left(names(failure.rank for failure in culprits), first),
        culprits,
        location=_place(first),
        because=(*_ground(first), *beside, *_coming(coming)),
        remedy=_remedy(first),
        confidence=_confidence(first, alone=len(culprits) == 1 and not coming),
    )


def _still_starting(case: Case) -> list[RankFacts]:
    """Ranks that have come to no collective, where nobody has: they may not have come so far."""
    return [] if any(facts.collectives for facts in case.ranks) else unaccounted(case)


def _confidence(facts: RankFacts, *, alone: bool) -> Confidence:
    """By the call of exit that was seen, and by whether the ranks that left are all that is to be explained."""
    called = exit_call(facts)
    return "high" if called and not called.raised and alone else "medium"


def _how_it_left(who: str, facts: RankFacts) -> str:
    """`rank 3 left with exit code 2: train.py: error: the following arguments are required: --lr`."""
    assert facts.exit is not None
    called = exit_call(facts)
    code = called.code if called else str(facts.exit.code)
    if called and exit_number(called) is None:
        return f"{who} left by {'SystemExit' if called.raised else 'sys.exit'}: {one_line(code)}"
    said = f": {one_line(called.said)}" if called and called.said else ""
    if called and called.signal:
        said = f" in its handler of {called.signal}"
    return f"{who} left with exit code {code}{said or (' and no exception' if facts.watched else '')}"


def _way(facts: RankFacts) -> object:
    """In which way a rank left: its code, and the line that called exit."""
    called = exit_call(facts)
    return facts.exit.code if facts.exit else None, called.location if called else None


def _by_program(facts: RankFacts) -> bool:
    """Whether Python ended the rank, and no exception whose record is lost."""
    return facts.shut_down is not None and not (facts.raised and facts.exit_call is None)


def _of_each_way(found: list[Failure], ways: Collection[Failure]) -> Iterator[str]:
    """Who left in which way, the first way first: a line for each, by a rank that left so."""
    for one in list(ways)[::-1][:SHOWN]:
        ranks = [failure.rank for failure in found if _way(failure.facts) == _way(one.facts)]
        yield f"{names(ranks)}: {shortly(one)}"


def _place(facts: RankFacts) -> Location | None:
    called = exit_call(facts)
    return called.location if called else user_frame(facts.fault)


def _ground(facts: RankFacts) -> tuple[str, ...]:
    """What is known of the call that ended a rank."""
    called = exit_call(facts)
    if called is not None and called.raised:
        return ("no other line of the program raises SystemExit with this code",)
    if called is not None:
        return ()
    code = facts.exit.code if facts.exit else 0
    if facts.program:
        return ("the program, or a library, raised SystemExit",)
    if 0 < code - 128 < 65:
        return (f"{code} is what a shell says of a child that {signal_name(code - 128)} ended",)
    return ("no Python line called sys.exit or os._exit",)


def _coming(ranks: list[RankFacts]) -> tuple[str, ...]:
    return (f"{names(facts.rank for facts in ranks)} had neither failed nor entered a collective",) if ranks else ()


def _remedy(facts: RankFacts) -> str:
    called = exit_call(facts)
    if called is None:
        return "look at its last output; native code can call exit()"
    if called.signal:
        return f"see who sent {pasted.signal_name(called.signal)} to it: a scheduler, a memory guard, a person"
    return "look at the arguments that the script was given" if called.said else "the line above ended the process"

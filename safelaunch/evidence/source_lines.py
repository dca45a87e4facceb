"""What stands around the lines at which ranks stand: loops and conditions, from the user's own source files; and
which of them raise SystemExit.

The files are read by a child process: a script on a dead file system must not hold the supervisor.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from safelaunch import procfs
from safelaunch.codec import from_json
from safelaunch.evidence import programs
from safelaunch.model import Case, ExitCall, Location, RankFacts, SourceLine, Stack
from safelaunch.user_code import is_user_code

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "source_probe.py")
LIMIT = 64
RECORD = "record"


def describe(stacks: Iterable[Stack], seconds: float, root: str = "", rights: str = "") -> tuple[SourceLine, ...]:
    """The lines of user code on these stacks, at most `LIMIT`, innermost frames of each stack first. A file that
    cannot be read is left out; after `seconds`, all that is not known yet. `root` is where the files of a container
    are seen from here. `rights` are those that root reads them with, as `rights_of` says. Of the lines of records those
    are described as well that call the functions around them."""
    asked: dict[tuple[str, int], tuple[str | int, ...]] = {}
    for stack in stacks:
        for frame in stack.frames:
            if frame.line > 0 and is_user_code(frame.file):
                place = (frame.file, frame.line)
                asked.setdefault(place, (*place, 1) if stack.source == RECORD else place)
    found: dict[tuple[str, int], SourceLine] = {}
    for one in _ask([*asked.values()][:LIMIT], seconds, root, rights):
        line = from_json(SourceLine, one)
        if line.caller is not None or (line.file, line.line) not in found:
            found[line.file, line.line] = line
    return tuple(found.values())


def rights_of(pid: int) -> str | None:
    """The rights with which root reads the files that a process of another user names: that user's and no more, since
    it may name anybody's. Empty for our own; None where nobody can tell whose process it is."""
    user = procfs.owner(pid)
    if os.geteuid() != 0 or user == 0:
        return ""
    try:
        group, groups = procfs.status(pid, "Gid")[0], procfs.status(pid, "Groups")
    except (OSError, IndexError):
        return None
    return f"{user}:{group}:{','.join(groups)}" if user > 0 else None


def places(facts: RankFacts) -> list[Stack]:
    """Where a rank is in its program: by the stacks of its threads and of the processes below it, and by the first call
    of each group that has not ended. On a GPU that one is under way while its host has gone on."""
    first: dict[str, Location] = {}
    for call in facts.calls:
        if not call.done and not call.raised and call.location is not None:
            first.setdefault(call.group, call.location)
    below = (child.stack for child in facts.children)
    stacks = [stack for stack in (*facts.stacks, facts.stack, *below) if stack is not None]
    return [*(Stack((location,), RECORD) for location in first.values()), *stacks]


def with_raised_exits(case: Case, seconds: float) -> Case:
    """The case with the line that raised SystemExit, of ranks whose program has failed so, where no other line of the
    program does so with such a code. Nothing else tells: Python says nothing of such an exception to anybody."""
    programs = {facts.program for facts in case.ranks if _raised_exit(facts) is not None}
    places = _ask([(file, 0) for file in sorted(programs)], seconds)
    ranks = []
    for facts in case.ranks:
        code = _raised_exit(facts)
        fits = [one for one in places if one["file"] == facts.program and one["code"] in (None, code)]
        if code is not None and len(fits) == 1:
            place = Location(facts.program, fits[0]["line"], fits[0]["function"])
            facts = dataclasses.replace(facts, exit_call=ExitCall(place, fits[0]["said"] or str(code), raised=True))
        ranks.append(facts)
    return dataclasses.replace(case, ranks=tuple(ranks))


def _raised_exit(facts: RankFacts) -> int | None:
    """The code of a rank whose program has failed without an exception and without a call of exit."""
    if facts.exit is None or facts.exit.code <= 0 or facts.error is not None or facts.raised or not facts.program:
        return None
    return facts.exit.code


def _ask(
    asked: Sequence[tuple[str | int, ...]], seconds: float, root: str = "", rights: str = ""
) -> list[dict[str, Any]]:
    """What the probe says of these lines within `seconds`."""
    if not asked:
        return []
    return programs.answers([sys.executable, "-I", "-S", PROBE, root, rights], asked, seconds)

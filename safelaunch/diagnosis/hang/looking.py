"""What ranks look for again and again outside of collectives: a file that is to come or to go, a lock file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.stall.activity import library_wait
from safelaunch.diagnosis.stall.clues import LEFT_BEHIND
from safelaunch.diagnosis.stall.syscalls import SLEEPS
from safelaunch.diagnosis.waitgraph.flags import looks_for
from safelaunch.model import Location, RankFacts

AT_A_FILE = re.compile(r"exists\(|is_?file\(|is_?dir\(|\bstat\(|getmtime\(|access\(|glob\(|listdir\(")
A_LOCK = "lock"
TO_COME = "see who is to make or remove that file, and what has become of it"


@dataclass(frozen=True)
class Look:
    """What a rank looks for: `what` completes the first or second of `verbs` (for one rank, for several)."""

    what: str
    verbs: tuple[str, str]
    place: Location | None
    remedy: str


def of_all(ranks: Iterable[RankFacts], lines: Lines) -> dict[int, Look]:
    """What each of these ranks looks for; nothing unless all of them do."""
    looks = {facts.rank: of_rank(facts, lines) for facts in ranks}
    found = {rank: look for rank, look in looks.items() if look is not None}
    return found if len(found) == len(looks) else {}


def of_rank(facts: RankFacts, lines: Lines) -> Look | None:
    """What the main thread of a rank looks for while it sleeps in between."""
    if facts.kernel is None or facts.kernel.syscall not in SLEEPS:
        return None
    stack = next((stack for stack in facts.stacks if stack.thread == facts.pid), facts.stack)
    place, words = user_frame(stack), library_wait(stack)
    if A_LOCK in words:
        path = next((path for name, path in facts.looks_at if not name), "")
        _, _, what = words.partition(" for ")
        named = f"for {what}: {path}" if path else f"for {what}"
        return Look(named, ("waits", "wait"), place, LEFT_BEHIND)
    looked = looks_for(facts, lines)
    if looked is None or not AT_A_FILE.search(looked[1]):
        return None
    paths = sorted({path for name, path in facts.looks_at if re.search(rf"(?<![\w.]){re.escape(name)}\b", looked[1])})
    seen = f" at {', '.join(paths)}" if paths else ""
    what = f"again and again{seen}: `{looked[1]}`"
    return Look(what, ("looks", "look"), looked[0], TO_COME)

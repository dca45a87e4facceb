"""What ranks do at this moment, whether or not anything is wrong: for `safelaunch dump`."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.sources.stack_samples import PASSED, inside, is_same
from safelaunch.diagnosis.stall.activity import doing
from safelaunch.diagnosis.waitgraph.calls import ENDED, stopped
from safelaunch.diagnosis.wording import names, short, verb
from safelaunch.durations import text
from safelaunch.model import Case, Location, RankFacts, Stack

# How the phases that safelaunch names itself are told; those of scripts are told by their names.
PHASES = {"loader": "waiting for its loader", "compile": "compiling", "torch.profiler": "being traced"}
AT_LINE = re.compile(r" at line \d+$")
OLD_S = 30.0  # since the last step: what a rank does may be no training any more; an estimate


def headline(case: Case) -> str:
    """`ranks 0-3 train: step 812, in all_reduce at train.py:31`: what most ranks do."""
    ranks = [facts for facts in case.ranks if facts.state != ENDED]
    if not ranks:
        return "all ranks have ended"
    most, count = Counter(map(activity, ranks)).most_common(1)[0]
    what = most if count == len(ranks) else f"{count} of {len(ranks)} {most}"
    trained = [facts for facts in ranks if facts.step]
    if len(trained) < len(ranks):
        return f"{_who(ranks, 'runs', 'run')}: {what}"
    return f"{_who(ranks, 'trains', 'train')}: {_steps(trained, case)}, {what}"


def lines(case: Case) -> list[str]:
    """The same for all that are alike, a line each: most first."""
    alike: dict[str, list[RankFacts]] = {}
    for facts in case.ranks:
        alike.setdefault(activity(facts), []).append(facts)
    found = sorted(alike.items(), key=lambda one: (-len(one[1]), one[1][0].rank))
    return [f"{names(facts.rank for facts in ranks)}: {_told(what, ranks, case)}" for what, ranks in found]


def _told(what: str, ranks: Sequence[RankFacts], case: Case) -> str:
    trained = [facts for facts in ranks if facts.step]
    return f"{_steps(trained, case)}, {what}" if trained else what


def activity(facts: RankFacts) -> str:
    """What one rank does: `in all_reduce at train.py:31`, `waiting for its loader at train.py:18`."""
    if facts.state == ENDED:
        return "ended"
    if stopped(facts):
        return "stopped (SIGSTOP, or a debugger)"
    frame = user_frame(facts.stack)
    if facts.phases:
        name = max(facts.phases, key=lambda phase: phase.since).name
        return PHASES.get(name, f"in {name}") + _at(frame)
    if facts.stack is not None:
        return _in_stack(facts, facts.stack) + _at(frame)
    call = facts.last_collective
    if call is not None and not (call.done or call.issued or call.raised):
        return f"in {call.op}{_at(call.location)}"
    return "somewhere: its stack could not be had"


def _in_stack(facts: RankFacts, stack: Stack) -> str:
    """What the stack says. The kernel was asked at another moment: it tells more of a rank only that has not moved."""
    op = inside(stack)
    if op:
        return f"in {op}"
    if is_same(facts):
        return AT_LINE.sub("", doing(facts, stack))
    library = list(itertools.takewhile(lambda frame: not is_user_code(frame), stack.frames))
    wrapped = "<locals>"  # torch puts functions of its own around many others
    called = [one.function for one in library if not PASSED.search(one.file) and wrapped not in one.function]
    return f"in {called[-1]}" if called else "running"


def _at(place: Location | None) -> str:
    return f" at {short(place)}" if place is not None else ""


def _who(ranks: Iterable[RankFacts], one: str, several: str) -> str:
    numbers = [facts.rank for facts in ranks]
    return f"{names(numbers)} {verb(numbers, one, several)}"


def _steps(ranks: Sequence[RankFacts], case: Case) -> str:
    """`step 812`, `steps 811 to 812`, and how long ago the latest was where that is long."""
    counts = [facts.step for facts in ranks]
    steps = f"step {counts[0]}" if len(set(counts)) == 1 else f"steps {min(counts)} to {max(counts)}"
    latest = max((facts.stepped or 0.0 for facts in ranks), default=0.0)
    if latest and case.now is not None and case.now - latest > OLD_S:
        return f"{steps}, {text(round(case.now - latest))} ago"
    return steps

"""A collective that only one rank comes to, because of a condition above it: `if rank == 0: dist.barrier()`."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch import python_tree
from safelaunch.diagnosis.blame.variants import Place, Variant, placed
from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.lines import Lines, by_place
from safelaunch.diagnosis.waitgraph.calls import (
    canonical,
    frames_at,
    frames_of,
    record_is_complete,
    unrecorded,
)
from safelaunch.diagnosis.waitgraph.flags import IDLE
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import below, label
from safelaunch.model import Case, Collective, Condition, Location, RankFacts, SourceLine

# Conditions that hold on one rank of a job. A collective below a condition that holds on all but one is met by a
# second one below the opposite (the main process first, then the others), and is no mistake. The rank in a group or in
# a dimension of a mesh (`pp_rank == 0`) is that of several ranks at once.
RANK = r"(?:\w+(?:\(\))?\.)*(?:get_|ddp_|_)?(?:global_|world_|local_?)?rank(?:\(\))?"
ONE_RANK = re.compile(
    rf"^{RANK}\s*==\s*(?P<after>\d{{1,9}})$|^(?P<before>\d{{1,9}})\s*==\s*{RANK}$|^not {RANK}$"
    rf"|^{RANK}\s*(?:<=\s*0|<\s*1)$",
    re.IGNORECASE,
)
MAIN_RANK = re.compile(
    r"^(?:\w+(?:\(\))?\.)*is_\w*(?:main|master|primary|lead|chief|rank_zero|rank0|zero)\w*(?:\([^()]*\))?$",
    re.IGNORECASE,
)
OF_SOME = re.compile(
    r"group|mesh|stage|parallel|(?:^|[._(])(?:pg|[dptcesm]p|hsdp|fsdp|dim|node)[._]",
    re.IGNORECASE,
)
LOCAL = re.compile("local", re.IGNORECASE)

RAISED = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$', re.MULTILINE)

OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip


# What an object is, all ranks of one program answer alike: it says less than any other condition.
OF_TYPES = re.compile(r"(not )?(isinstance|issubclass|hasattr|callable)\(.*\)|torch\.is_tensor\(.*\)")
NO_CONDITIONS = {"True", "__name__ == '__main__'", '__name__ == "__main__"'}  # they hold on all ranks


@dataclass(frozen=True)
class OnlyCaller:
    """A rank that waits in a call which no other rank may ever make.

    Args:
        wait: of that rank.
        condition: what the call stands below; None where its source is not known.
        file: of the condition.
        bypassed: all who are missing stand behind the condition, in the same function, and so have passed it by. A rank
            that is in another function below it (`if rank == 0: serve()`) may be right, and they late for what they do
            instead.
    """

    wait: Wait
    condition: Condition | None = None
    file: str = ""
    bypassed: bool = False


def only_caller(case: Case, waits: Iterable[Wait], missing: Iterable[int]) -> OnlyCaller | None:
    """Whether one rank waits in a collective that may be its own alone.

    None of those that are missing has ever made it, and it stands below a condition for one rank, with none of them in
    the other branch. Without its source and its stack nobody knows what it stands below.
    """
    blocked = tuple(waits)
    wait = blocked[0]
    if len({each.rank for each in blocked}) != 1 or unrecorded(wait.call):
        return None
    lines = by_place(case.source)
    ranks = {facts.rank: facts for facts in case.ranks}
    late = [ranks[rank] for rank in missing]
    frames = frames_at(ranks[wait.rank], wait.call, wait.thread)
    if wait.call.state and wait.call.location is None and not frames:
        return None  # nobody knows where it was made: in a backward pass, mostly
    guarded = _below(case, wait.rank, frames, lines)
    if wait.call.location is None and guarded is not None:  # of what C++ calls the stack alone has the line
        wait = dataclasses.replace(wait, call=dataclasses.replace(wait.call, location=frames[0]))
    if any(_made(facts, wait) for facts in (*late, ranks[wait.rank])):
        return None
    if guarded is None:
        return OnlyCaller(wait) if _unread(frames, lines) else None
    frame, condition = guarded
    only = OnlyCaller(wait, condition, frame.file)
    return _by_late_ranks(only, frame, late, lines, innermost=frame == frames[0])


def _by_late_ranks(
    only: OnlyCaller, frame: Location, late: Sequence[RankFacts], lines: Lines, *, innermost: bool
) -> OnlyCaller | None:
    """The same with what the late ranks do: whether they have bypassed the call; None where they may still make it."""
    assert only.condition is not None
    number = only.condition.line
    branches = [_line_at(_in_function(facts, frame), lines) for facts in late]
    if any(line is not None and line.is_below(number) for line in branches):
        return _with_other_branch(only, number, branches) if not only.wait.call.is_message else None
    past = all(_is_past(facts, frame, lines) for facts in late)
    return dataclasses.replace(only, bypassed=past and innermost and not only.wait.away)


def _is_past(facts: RankFacts, frame: Location, lines: Lines) -> bool:
    """Whether a rank stands behind a line in its function, with no loop around both, and its record is whole."""
    place = _in_function(facts, frame)
    line = _line_at(place, lines)
    if place is None or line is None or not record_is_complete(facts):
        return False
    return place.line > frame.line and not set(line.loops) & set(lines[frame.file, frame.line].loops)


def _with_other_branch(only: OnlyCaller, number: int, others: Sequence[SourceLine | None]) -> OnlyCaller | None:
    """The same where the others are below the same `if`, in its other branch. What that branch still calls decides:

    - nothing but what waits and looks (`while not os.path.exists(...)`): they have passed the collective by;
    - the same operation: they are late;
    - anything else: nobody knows whether they can come.
    """
    seen = [line for line in others if line is not None]
    ahead = [{name for place, name in line.ahead if place == number} for line in seen]
    calls = set().union(*ahead)
    own = canonical(only.wait.call.op)
    if not all(ahead) or any(canonical(name.rpartition(".")[2]) == own for name in calls):
        return None
    bypassed = len(seen) == len(others) and all(map(IDLE.match, calls)) and not only.wait.away
    return dataclasses.replace(only, bypassed=bypassed)


def only_caller_left_behind(case: Case, left: Iterable[int]) -> OnlyCaller | None:
    """The same of a job whose other ranks have left in good order: one rank was still inside a collective that its
    source may keep from all others. Whether they have passed it by nobody sees any more."""
    gone = set(left)
    remaining = [facts for facts in case.ranks if facts.rank not in gone]
    last = remaining[0].last_collective if len(remaining) == 1 else None
    if last is None or last.done or unrecorded(last):
        return None
    facts = remaining[0]
    wait = Wait(facts.rank, last.thread, last)
    if any(_made(each, wait) for each in case.ranks):
        return None
    lines = by_place(case.source)
    own = frames_of(facts, last.thread)
    frames = [*own, *told_frames(facts)]
    guarded = _below(case, facts.rank, frames, lines)
    if guarded is None:
        called = own or facts.error is not None  # the line of a call alone does not say from where it was called
        return None if called and not _unread(frames, lines) else OnlyCaller(wait)
    frame, condition = guarded
    if frame != frames[0] or len(case.ranks) != case.world_size:
        # The others may have had a part of their own in it; who is not seen here may have made it.
        return OnlyCaller(wait)
    return OnlyCaller(wait, condition, frame.file)


def bypassed_by_peers(case: Case, variants: Iterable[Variant]) -> tuple[int, ...]:
    """The one rank whose call stands below a condition for it alone, where all others have passed it by.

    They are in another call further down in the same function. Of ranks that share a loop, their steps or their latest
    calls must say that they are in the same round of it, or those above the condition in the next.
    """
    everybody = [list(variant) for variant in variants]
    lines = by_place(case.source)
    bypassed = []
    for variant in everybody:
        if len(variant) > 1:
            continue
        facts, call = variant[0][0], placed(*variant[0])
        own = frames_at(facts, call, call.thread)
        below = _below(case, facts.rank, own, lines)
        if below is None:
            continue
        frame, condition = below
        others = [pair for other in everybody if other is not variant for pair in other]
        wait = Wait(facts.rank, call.thread, call)
        # A function that is called below the condition may be called elsewhere, too, and its lines say nothing then.
        if frame == own[0] and any(_made(each, wait) for each in (facts, *(each for each, _ in others))):
            continue
        if all(_stands_behind(pair, facts, frame, condition.line, lines) for pair in others):
            bypassed.append(facts.rank)
    return tuple(bypassed) if len(bypassed) == 1 else ()


def _stands_behind(pair: Place, facts: RankFacts, frame: Location, condition: int, lines: Lines) -> bool:
    """Whether a rank has passed the condition by, or, where it is in none of the functions in between, the call that
    leads there."""
    other, call = pair
    in_common = _in_common_function(facts, other, frame)
    if in_common is None:
        return False
    at, place = in_common
    limit = condition if at == frame else at.line
    mine, there = _line_at(at, lines), _line_at(place, lines)
    if mine is None or there is None or not record_is_complete(other) or there.is_below(limit):
        return False
    shared = set(there.loops) & set(mine.loops)
    if shared and place.line < limit:
        return _has_gone_round(facts, other, call)
    same_round = not shared or 0 < facts.step == other.step or _came_from_above(facts, other, at, limit)
    return place.line > at.line and same_round


def _in_common_function(facts: RankFacts, other: RankFacts, frame: Location) -> tuple[Location, Location] | None:
    """Where two ranks are in the function of a frame of the first one, else in the innermost around it that both are
    in."""
    own = frames_of(facts, facts.pid)
    outer = own[own.index(frame) + 1 :] if frame in own else []
    return next(((each, place) for each in (frame, *outer) if (place := _in_function(other, each)) is not None), None)


def _has_gone_round(facts: RankFacts, other: RankFacts, call: Collective) -> bool:
    """Whether a rank that is in a call above the condition, in a loop around both, is in the next round of it.

    The rank below the condition has made that call, and an optimizer's step since; and the other has made as many
    steps.
    """
    before = [own for own in (*(facts.recorded or ()), *facts.collectives) if own.done and _is_alike(own, call)]
    if not before or facts.stepped is None or other.stepped is None or not 0 < facts.step == _steps_at(other, call):
        return False
    if facts.step != other.step and not _are_alike_before(facts, other, call):
        return False
    return facts.stepped > max(own.t for own in before)


def _steps_at(facts: RankFacts, call: Collective) -> int:
    """How many steps a rank had made when it came to a call, at most: a host may have gone on where a GPU waits."""
    return facts.step - (call.state != "" and facts.stepped is not None and facts.stepped > call.t)


def _are_alike_before(facts: RankFacts, other: RankFacts, call: Collective) -> bool:
    """Whether both came to the number before that of a call from the same line."""
    before = [
        next((own for own in each.collectives if (own.group, own.seq) == (call.group, call.seq - 1)), None)
        for each in (facts, other)
    ]
    one, two = before
    return one is not None and two is not None and (one.op, one.location) == (two.op, two.location)


def _came_from_above(facts: RankFacts, other: RankFacts, frame: Location, condition: int) -> bool:
    """Whether the latest call that came back to both is one and the same, above the condition in the same function."""
    one, two = (next((call for call in reversed(each.collectives) if call.done), None) for each in (facts, other))
    if one is None or two is None or (one.group, one.seq, one.location) != (two.group, two.seq, two.location):
        return False
    at = one.location
    return at is not None and (at.file, at.function) == (frame.file, frame.function) and at.line < condition


def told_frames(facts: RankFacts) -> list[Location]:
    """The lines of the user's program at which a rank failed, innermost first, and that of its last collective."""
    text = facts.error.traceback if facts.error is not None else ""
    raised = [Location(match["file"], int(match["line"]), match["function"]) for match in RAISED.finditer(text)]
    last = facts.last_collective
    site = [last.location] if last is not None and last.location is not None else []
    return [frame for frame in (*site, *reversed(raised)) if is_user_code(frame)]


def _below(case: Case, rank: int, frames: Iterable[Location], lines: Lines) -> tuple[Location, Condition] | None:
    """The innermost condition for this rank alone that these frames, innermost first, stand below."""
    facts = next(facts for facts in case.ranks if facts.rank == rank)
    for frame in frames:
        line = lines.get((frame.file, frame.line))
        for condition in line.conditions if line is not None else ():
            if is_for_one(condition, facts):
                return frame, condition
    return None


def is_for_one(condition: Condition, facts: RankFacts) -> bool:
    """Whether a condition holds on this rank alone, of those of its node: what holds on one rank does so under every
    further condition."""
    return not OF_SOME.search(condition.text) and any(_is_for_one(part, facts) for part in _conjuncts(condition))


def _is_for_one(text: str, facts: RankFacts) -> bool:
    tested = ONE_RANK.match(text)
    if tested is None:
        return bool(MAIN_RANK.match(text))
    own = facts.local_rank if LOCAL.search(text) else facts.rank
    return own == int(tested["after"] or tested["before"] or 0)


def _conjuncts(condition: Condition) -> list[str]:
    """What `and` joins in a condition; where it does not hold, what `or` joins, each turned round."""
    joins: type[ast.boolop] = ast.And if condition.holds else ast.Or
    try:
        parsed: ast.expr = python_tree.expression(condition.text)
        parts = parsed.values if isinstance(parsed, ast.BoolOp) and isinstance(parsed.op, joins) else [parsed]
        return [ast.unparse(part if condition.holds else _opposite(part)) for part in parts]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # its text was too long, or is nested too deep
        return [condition.text] if condition.holds else []


def _opposite(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and type(test.ops[0]) in OPPOSITES and len(test.ops) == 1:
        return ast.Compare(test.left, [OPPOSITES[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _unread(frames: list[Location], lines: Lines) -> bool:
    """Whether some of what these frames stand below is not known."""
    return not frames or any((frame.file, frame.line) not in lines for frame in frames)


def _line_at(place: Location | None, lines: Lines) -> SourceLine | None:
    """What is known of the source at a place."""
    return lines.get((place.file, place.line)) if place is not None else None


def _in_function(facts: RankFacts, frame: Location) -> Location | None:
    """Where the rank is in the function of this frame."""
    own = frames_of(facts, facts.pid)
    return next((each for each in own if (each.file, each.function) == (frame.file, frame.function)), None)


def _made(facts: RankFacts, wait: Wait) -> bool:
    """Whether a rank has made such a call before, as far as its records tell."""
    return any(
        own.done and _is_alike(own, wait.call)
        for own in (*facts.collectives, *(() if facts.collectives else facts.recorded or ()))
    )


def _is_alike(own: Collective, call: Collective) -> bool:
    """Whether these may be the same line of the program, as far as it is known."""
    alike = own.group == call.group and canonical(own.op) == canonical(call.op)
    return alike and (own.location == call.location or None in (own.location, call.location))


@dataclass(frozen=True)
class Guard:
    """A condition that a rank's call stands below, in `file`."""

    of: Place
    condition: Condition
    file: str

    @property
    def rank(self) -> int:
        """Whose call it is."""
        return self.of[0].rank

    @property
    def in_words(self) -> str:
        """`barrier #12 of rank 0 stands below `rank == 0` (train.py:61)`."""
        return f"{label(self.of[1])} of rank {self.of[0].rank} {below(self.condition, self.file)}"


def guard(of: Place, others: Iterable[Place], lines: Lines) -> Guard | None:
    """The innermost condition that a rank's call stands below, in whichever function: most often it is the mistake. One
    on the type of an object counts where there is no other. None where all others stand below it as well."""

    def above(pair: Place) -> list[tuple[str, Condition]]:
        return [
            (frame.file, condition)
            for frame in reversed(frames_at(*pair, pair[1].thread) or [*filter(None, [pair[1].location])])
            if (frame.file, frame.line) in lines
            for condition in lines[frame.file, frame.line].conditions
            if condition.text not in NO_CONDITIONS
        ]

    shared = [set(above(pair)) for pair in others]
    own = [each for each in above(of) if not shared or not all(each in one for one in shared)]
    if not own:
        return None
    telling = [each for each in own if not OF_TYPES.fullmatch(each[1].text)]
    file, condition = (telling or own)[-1]
    return Guard(of, condition, file)

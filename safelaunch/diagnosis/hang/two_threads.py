"""Two threads of a rank that make collectives in one process group at once: nothing orders their calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.waitgraph.calls import BACKWARD, threads_inside
from safelaunch.diagnosis.waitgraph.record import LEAVING
from safelaunch.diagnosis.waitgraph.threads import thread_name
from safelaunch.diagnosis.wording import in_brackets, label, names, short
from safelaunch.model import Collective, Location, RankFacts, Stack

OWN_GROUP = (
    "give one of the two threads a process group of its own: make it by `dist.new_group()` on all ranks, and pass it on"
)
STARTED = "/threading.py"  # where a thread begins that Python has started: not one of autograd's


@dataclass(frozen=True)
class Inside:
    """A thread, and the call that it waits in."""

    stack: Stack
    call: Collective

    @property
    def place(self) -> Location | None:
        return self.call.location or user_frame(self.stack)


@dataclass(frozen=True)
class TwoThreads:
    """The ranks of which two threads are in calls of one group, each with these, in the order of their numbers."""

    ranks: dict[int, Sequence[Inside]]

    @property
    def summary(self) -> str:
        """`two threads of ranks 0 and 1 use one process group at once (train.py:78 and train.py:45), ...`."""
        found = next(iter(self.ranks.values()))
        places = " and ".join(sorted({short(each.place) for each in found if each.place is not None}, reverse=True))
        return (
            f"two threads of {names(self.ranks)} use one process group at once{f' ({places})' if places else ''}: "
            "the order of their calls differs from rank to rank"
        )

    @property
    def because(self) -> tuple[str, ...]:
        """In which order the calls of each came."""
        return tuple(
            f"rank {rank} is in "
            + ", and behind it in ".join(
                f"{label(each.call)}{in_brackets(each.place)} by {_name(each.stack)}" for each in found
            )
            for rank, found in self.ranks.items()
        )

    @property
    def place(self) -> Location | None:
        """Where the one that is not the main thread makes its call."""
        found = [each for inside in self.ranks.values() for each in inside if _is_started(each.stack)]
        return found[0].place


def two_threads(ranks: Iterable[RankFacts], group: str) -> TwoThreads | None:
    """Whether threads of these ranks are in calls of one group at once.

    Args:
        ranks: those that came to a number of the group with different calls.
        group: the name of that group.
    """
    found = {facts.rank: _inside(facts, group) for facts in ranks}
    several = {rank: inside for rank, inside in sorted(found.items()) if len(inside) > 1}
    return TwoThreads(several) if several else None


def _inside(facts: RankFacts, group: str) -> Sequence[Inside]:
    """The threads of a rank that wait in a call of the group; none unless Python has started one of them."""
    made = [one for one in facts.collectives if one.group == group and not one.is_message and one.op != LEAVING]
    by_thread = {call.thread: call for call in made if not call.done and not call.raised}
    of_cpp = _of_cpp(facts, group, {call.seq for call in made})
    by_line = [call for thread, call in by_thread.items() if thread != facts.pid]
    calls = [
        (stack, by_thread.get(stack.thread) or _at_its_line(stack, by_line) or _of_pass(stack, of_cpp))
        for stack in threads_inside(facts)
    ]
    found = [Inside(stack, call) for stack, call in calls if call is not None]
    started = any(_is_started(each.stack) for each in found)
    return sorted(found, key=lambda each: each.call.seq) if started else ()


def _of_cpp(facts: RankFacts, group: str, known: set[int]) -> list[Collective]:
    """The collectives of the group that are under way, and in no record of Python's."""
    open_ = [call for call in facts.recorded or () if call.group == group and not (call.done or call.issued)]
    return [call for call in open_ if call.seq not in known and not call.is_message]


def _at_its_line(stack: Stack, calls: Sequence[Collective]) -> Collective | None:
    """The only one of these calls that is made at a line of this stack, where the stack does not tell its thread:
    faulthandler knows other ids than the kernel's."""
    if stack.thread:
        return None
    lines = {(frame.file, frame.line) for frame in stack.frames}
    found = [call for call in calls if call.location and (call.location.file, call.location.line) in lines]
    return found[0] if len(found) == 1 else None


def _of_pass(stack: Stack, of_cpp: Sequence[Collective]) -> Collective | None:
    """The first of these, of a thread that is in a backward pass."""
    return of_cpp[0] if of_cpp and any(BACKWARD in frame.function for frame in stack.frames[:3]) else None


def _name(stack: Stack) -> str:
    """`the main thread`, `thread saver_0`, and `another thread` where the stack has neither a name nor a number."""
    return thread_name(stack) if stack.name or stack.thread else "another thread"


def _is_started(stack: Stack) -> bool:
    return stack.frames[-1].file.endswith(STARTED)

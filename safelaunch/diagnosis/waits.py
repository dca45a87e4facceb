"""Who waits for whom: the graph on which the hang rules stand.

A node is a thread of a rank: one that helps in a background group does not excuse a main thread that sleeps. A wait is
a call that has not come back, and its edges go to the members of the group that have not come to the same number. No
votes are counted here: whoever everybody waits for, and who waits for nobody, stands at the end of every chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch.diagnosis.failures import LEAVING, TORCH_DISTRIBUTED, WORLD, current_calls, left_cleanly
from safelaunch.model import Case, Collective, RankFacts, Stack

# System calls in which a thread waits for something else than a collective: gloo waits in futex, a CUDA wait spins.
# (connect, accept and reads of sockets are how groups are made, so they prove nothing.)
ELSEWHERE = {
    "clock_nanosleep", "nanosleep", "read", "pread64", "wait4", "waitid", "select", "pselect6", "flock", "fcntl",
    "openat", "open", "fsync", "fdatasync", "pause",
}  # fmt: skip
AWAY_PHASES = ("loader", "checkpoint", "compile")  # phases of ours during which a thread makes no collective
LIBRARY_TORCH = re.compile(r"/torch/(?!utils/data/|serialization)")
INSIDE_TORCH = re.compile(r"/torch/distributed/distributed_c10d\.py:|:_engine_run_backward$")
STOPPED = ("T", "t")
RING = 16  # calls that a rank's record holds
MEETINGS = ("init",)  # groups of ours, for meetings that are no collectives of a group


@dataclass(frozen=True)
class Wait:
    """A thread of a rank that is blocked in `call`.

    `on` are ranks of this node that have not come, `differing` those that came with another operation, `gone` those
    that can never come (exited, or without the group), `stopped` those whose process does not run, `away` members
    that are not on this node or of which nothing is known. `partners` are all members, none where nobody knows whom it
    waits for.
    """

    rank: int
    thread: int
    call: Collective
    on: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    away: tuple[int, ...] = ()
    partners: tuple[int, ...] = ()

    @property
    def blockers(self) -> tuple[int, ...]:
        """Ranks of this node that keep the wait from ending."""
        return tuple(sorted({*self.on, *self.gone, *self.stopped}))


@dataclass(frozen=True)
class Graph:
    """All waits of a case. `sinks` are (rank, thread) pairs that others wait for and that wait for nobody; `cycle` are
    ranks that wait for one another."""

    waits: tuple[Wait, ...]
    sinks: tuple[tuple[int, int], ...]
    cycle: tuple[int, ...]

    def waiting_for(self, ranks: Iterable[int]) -> tuple[Wait, ...]:
        """Waits that one of these ranks blocks itself."""
        wanted = set(ranks)
        return tuple(wait for wait in self.waits if wanted & set(wait.blockers) and wait.rank not in wanted)

    def of(self, rank: int) -> Wait | None:
        """The wait of a rank, if it waits."""
        return next((wait for wait in self.waits if wait.rank == rank), None)


def graph(case: Case) -> Graph:
    """Build the graph of a case."""
    ranks = {facts.rank: facts for facts in case.ranks}
    members = {group.name: group.ranks for group in case.groups}
    waits = tuple(
        _wait(facts, call, ranks, members, case) for facts in case.ranks if alive(facts) for call in blocked_in(facts)
    )
    by_node = {(wait.rank, wait.thread): wait for wait in waits}
    sinks: set[tuple[int, int]] = set()
    cyclic: set[int] = set()
    for wait in waits:
        for blocker in wait.blockers:
            node = (blocker, _responsible(ranks[blocker], wait.call.group))
            following = by_node.get(node) if blocker in wait.on and blocker not in wait.stopped else None
            if following is None:
                sinks.add(node)
            elif _reaches(following, (wait.rank, wait.thread), ranks, by_node):
                cyclic.add(wait.rank)
    return Graph(waits, tuple(sorted(sinks)), tuple(sorted(cyclic)))


def alive(facts: RankFacts) -> bool:
    return facts.exit is None


def stopped(facts: RankFacts) -> bool:
    """Whether the rank's process is stopped, and by nobody who debugs it."""
    return facts.kernel is not None and facts.kernel.state in STOPPED and not facts.kernel.tracer


def blocked_in(facts: RankFacts) -> list[Collective]:
    """The calls that threads of a rank are blocked in: at most one for each thread."""
    found: dict[int, Collective] = {}
    for call in facts.collectives:
        if not (call.done or call.raised) and call.op != LEAVING:
            found[call.thread] = call
    if not found and (pending := _pending(facts)) is not None:
        found[0] = pending
    return list(found.values())


def _pending(facts: RankFacts) -> Collective | None:
    """A collective that C++ has begun for the rank (DDP's backward), and that the rank waits for."""
    issued = {(call.group, call.seq) for call in facts.collectives if call.issued}
    open_ = [call for call in facts.recorded or () if not call.done and (call.group, call.seq) not in issued]
    if not open_ or is_elsewhere(facts, open_[0]):
        return None
    return open_[0]


def is_elsewhere(facts: RankFacts, call: Collective) -> bool:
    """Whether a rank with an unfinished collective does something else by now, as far as evidence shows."""
    if any(phase.name.startswith(AWAY_PHASES) and phase.since >= call.t for phase in facts.phases):
        return True
    frames = facts.stack.frames if facts.stack is not None else ()
    if frames and LIBRARY_TORCH.search(frames[0].file):
        return False
    return facts.kernel is not None and facts.kernel.syscall in ELSEWHERE


def _wait(
    facts: RankFacts, call: Collective, ranks: dict[int, RankFacts], members: dict[str, tuple[int, ...]], case: Case
) -> Wait:
    on: list[int] = []
    differing: list[int] = []
    gone: list[int] = []
    held: list[int] = []
    away: list[int] = []
    partners = _partners(call, members, case)
    for rank in partners:
        other = ranks.get(rank)
        if rank == facts.rank:
            continue
        if other is None:
            away.append(rank)
            continue
        came = _answer(other, call, facts.rank) if is_message(call) else arrival(other, call)
        if came is None and (other.exit is not None or (has_left(other, call.group) and known(other, call))):
            gone.append(rank)
        elif other.exit is None and stopped(other):
            held.append(rank)
        elif came is None:
            (on if known(other, call) else away).append(rank)
        elif not is_message(call) and differs(facts, other, call):
            differing.append(rank)
    thread = call.thread or _main_thread(facts)
    return Wait(facts.rank, thread, call, tuple(on), tuple(differing), tuple(gone), tuple(held), tuple(away), partners)


def _partners(call: Collective, members: dict[str, tuple[int, ...]], case: Case) -> tuple[int, ...]:
    if is_message(call):
        return (call.peer,) if call.peer is not None else ()  # from anyone: who should have sent is not known
    if call.group in members:
        return members[call.group]
    # Without a record of the group, its size tells whether it is the world, and so does its name in torch.
    return tuple(range(case.world_size)) if call.group_size == case.world_size or call.group == WORLD else ()


def is_message(call: Collective) -> bool:
    """Whether a call is a message between two ranks, and so has numbers of its own."""
    return call.op in ("send", "recv", "isend", "irecv")


def known(facts: RankFacts, call: Collective) -> bool:
    """Whether a rank's absence from a call proves anything: its own record must be whole, and for what C++ begins by
    itself the Flight Recorder must have answered, or the stack show that the rank is somewhere else."""
    lost = any(gap.startswith("collectives:") for gap in facts.missing)
    if not call.thread:
        elsewhere = facts.stack is not None and not threads_inside(facts)
        return facts.recorded is not None or (elsewhere and facts.watched)
    if facts.recorded is None and not unrecorded(call) and _in_backward(facts):
        return False  # DDP may have made that call for it
    if _passed_over(facts, call):
        # Nobody comes back from a meeting before all have come: one that is still waited for was not passed over.
        return not is_message(call) if unrecorded(call) else facts.recorded is not None
    if facts.watched and facts.recording and not lost:
        return True
    return facts.recorded is not None and not unrecorded(call)


def threads_inside(facts: RankFacts) -> list[Stack]:
    """Threads of a rank that are inside torch.distributed, or in a backward pass, which makes DDP's collectives."""
    return [
        stack
        for stack in facts.stacks or ((facts.stack,) if facts.stack is not None else ())
        if not stack.native and any(INSIDE_TORCH.search(f"{f.file}:{f.function}") for f in stack.frames[:3])
    ]


def _passed_over(facts: RankFacts, call: Collective) -> bool:
    """Whether the rank's record is full and holds nothing of the group: what it did there may have been passed over."""
    return len(facts.collectives) >= RING and all(own.group != call.group for own in facts.collectives)


def main_blocked(facts: RankFacts) -> bool:
    """Whether the rank's main thread itself is in such a wait: what a helper thread waits for ends nobody's work."""
    if facts.exit is not None or any(call.thread == facts.pid for call in blocked_in(facts)):
        return True
    main = [stack for stack in facts.stacks if stack.thread == facts.pid and not stack.native]
    return any(INSIDE_TORCH.search(f"{f.file}:{f.function}") for stack in main for f in stack.frames)


def final(waits: Iterable[tuple[RankFacts, Collective]]) -> bool:
    """Whether these ranks are blocked in these calls for good, as far as it may end them without being asked: each is
    so by two sources, and with its main thread."""
    return all(confirmed(facts, call) and main_blocked(facts) for facts, call in waits)


def _in_backward(facts: RankFacts) -> bool:
    return any(
        "_engine_run_backward" in frame.function for stack in threads_inside(facts) for frame in stack.frames[:3]
    )


def unrecorded(call: Collective) -> bool:
    """Whether torch's Flight Recorder keeps no entries of such calls."""
    return is_message(call) or call.group in MEETINGS or ":" in call.group or call.group.startswith("new_group")


def arrival(facts: RankFacts, call: Collective) -> Collective | None:
    """The rank's own call at the same number of the same group, or None where it has not come that far."""
    own, recorded = _made(facts, call.group), _recorded(facts, call.group)
    for candidate in (*own, *recorded):
        if candidate.seq == call.seq:
            return candidate
    # It has gone past: what it did at that number is not in its records any more.
    return min((c for c in (*own, *recorded) if c.seq > call.seq), key=lambda c: c.seq, default=None)


def differs(one: RankFacts, other: RankFacts, call: Collective) -> bool:
    """Whether two ranks came to one number with different operations.

    Like is compared with like: gloo's recorder calls things by other names than the program does (it records a
    `reduce_scatter_tensor` as an `all_reduce`; measured with torch 2.13). Without a record of both, nothing is said.
    """
    for records in (_made, _recorded):
        mine = next((c for c in records(one, call.group) if c.seq == call.seq), None)
        theirs = next((c for c in records(other, call.group) if c.seq == call.seq), None)
        if mine is not None and theirs is not None:
            roots = {mine.peer, theirs.peer} - {None}  # a root that was left out is not recorded
            return canonical(mine.op) != canonical(theirs.op) or len(roots) > 1
    mine, theirs = arrival(one, call), arrival(other, call)
    if mine is None or theirs is None or mine.seq != theirs.seq:
        return False
    return len({_as_recorded(mine.op), _as_recorded(theirs.op)}) > 1


def _made(facts: RankFacts, group: str) -> list[Collective]:
    return [c for c in current_calls(facts) if c.group == group and c.op != LEAVING and not is_message(c)]


def _recorded(facts: RankFacts, group: str) -> list[Collective]:
    return [c for c in facts.recorded or () if c.group == group]


def _as_recorded(op: str) -> str:
    name = canonical(op)
    return "allreduce" if name == "reducescatter" else name


def canonical(op: str) -> str:
    """One name for an operation, whoever recorded it: Python's `all_gather_into_tensor` is C++'s `_allgather_base`."""
    plain = op.replace("_", "").lower()
    for ending in ("intotensor", "tensor", "base", "coalesced", "single", "uneven"):
        plain = plain.replace(ending, "")
    return plain


def has_left(facts: RankFacts, group: str) -> bool:
    """Whether a rank has destroyed the group, or is shutting down."""
    if left_cleanly(facts) or facts.shut_down is not None:
        return True
    if group in MEETINGS or group.startswith("new_group"):
        return False  # a program may destroy its groups and make new ones
    last = facts.last_collective
    return last is not None and last.op == LEAVING and (last.group == group or last.group == WORLD)


def confirmed(facts: RankFacts, call: Collective) -> bool:
    """Whether a second source says that the rank is blocked in this call: torch's Flight Recorder, or, where it keeps
    no record of such calls, a stack inside torch.distributed. What is to be ended for good needs two sources."""
    if any((c.group, c.seq) == (call.group, call.seq) and not c.done for c in facts.recorded or ()):
        return True
    if not unrecorded(call):
        return False
    stack = next((s for s in facts.stacks if s.thread == call.thread), facts.stack)
    frames = stack.frames if stack is not None else ()
    elsewhere = facts.kernel is not None and call.thread == facts.pid and facts.kernel.syscall in ELSEWHERE
    return not elsewhere and any(TORCH_DISTRIBUTED.search(f.file) or f == call.location for f in frames)


def _answer(other: RankFacts, call: Collective, rank: int) -> Collective | None:
    """The other rank's part of a message, where it has done it: its own call that came as far as this one's number."""
    opposite = "recv" if "send" in call.op else "send"
    for own in other.collectives:
        from_anyone = own.peer is None and not own.done and not own.raised
        if opposite in own.op and ((own.peer == rank and own.seq >= call.seq) or from_anyone):
            return own
    return None


def _responsible(facts: RankFacts, group: str) -> int:
    """The thread from which a rank would enter a collective of this group."""
    own = [call.thread for call in facts.collectives if call.group == group and call.thread]
    return own[-1] if own else _main_thread(facts)


def _main_thread(facts: RankFacts) -> int:
    """The thread that makes the rank's collectives, else the main thread, whose id is the process's."""
    threads = [call.thread for call in facts.collectives if call.thread]
    return threads[-1] if threads else facts.pid


def _reaches(
    start: Wait, target: tuple[int, int], ranks: dict[int, RankFacts], by_node: dict[tuple[int, int], Wait]
) -> bool:
    """Whether the chain of waits from `start` comes back to `target`."""
    seen: set[tuple[int, int]] = set()
    queue = [start]
    while queue:
        wait = queue.pop()
        if (wait.rank, wait.thread) == target:
            return True
        if (wait.rank, wait.thread) in seen:
            continue
        seen.add((wait.rank, wait.thread))
        for blocker in wait.on:
            following = by_node.get((blocker, _responsible(ranks[blocker], wait.call.group)))
            if following is not None:
                queue.append(following)
    return False


def stack_of(facts: RankFacts, thread: int) -> Stack | None:
    """The stack of one thread of a rank."""
    return next((stack for stack in facts.stacks if stack.thread == thread), facts.stack)

"""What a rank's records say of its waits: which calls it is blocked in, and whether it has come to another's call."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from safelaunch.diagnosis.frames import is_torch_distributed, is_user_code, waits_for_gpu
from safelaunch.diagnosis.waitgraph.record import LEAVING, WORLD, current_calls, left_cleanly
from safelaunch.model import Collective, Location, RankFacts, Stack

# System calls in which a thread waits for something else than a collective: gloo waits in futex, a CUDA wait spins.
# (connect, accept and reads of sockets are how groups are made, so they prove nothing.)
ELSEWHERE = {
    "clock_nanosleep", "nanosleep", "read", "pread64", "wait4", "waitid", "select", "pselect6", "flock", "fcntl",
    "openat", "open", "fsync", "fdatasync", "pause",
}  # fmt: skip
AWAY_PHASES = ("loader", "checkpoint", "compile", "store.")  # phases of ours during which a thread makes no collective
LIBRARY_TORCH = re.compile(r"/torch/(?!utils/data/|serialization)")
INSIDE_TORCH = re.compile(
    r"/torch/distributed/(?:distributed_c10d|_functional_collectives)\.py:|:_engine_run_backward$"
)
IN_DDP = re.compile(r"/torch/nn/parallel/")
BACKWARD = "_engine_run_backward"
# Of a process and those below it: what it uses while it waits. NCCL's and torch's own threads wake a few times a
# second, which took 1 % of a core at most; an estimate with room above that.
IDLE_CPU = 0.05
STOPPED = ("T", "t")
ENDED = "X"  # the state of a rank whose process is not there any more
UNDER_WAY = ("enqueued", "started")
OF_DEVICE = -1  # instead of a thread: the host does something else, and does not wait for what it has enqueued
RING = 128  # calls that a rank's record holds
MAKING = "new_group"  # how the groups are called in which ranks meet to make one
MEETINGS = ("init",)  # groups of ours, for meetings that are no collectives of a group


def alive(facts: RankFacts) -> bool:
    return facts.exit is None


def stopped(facts: RankFacts) -> bool:
    """Whether the rank's process is stopped, and by nobody who debugs it."""
    return facts.kernel is not None and facts.kernel.state in STOPPED and not facts.kernel.tracer


def blocked_in(facts: RankFacts) -> list[Collective]:
    """The calls that a rank waits in: at most one for each thread, where threads are known; and on a device, where what
    was enqueued waits for itself, one for each group and for each rank that messages go to or come from."""
    found: dict[object, Collective] = {}
    for call in facts.collectives:
        if call.done or call.raised or call.op == LEAVING:
            continue
        if is_under_way(call):
            found[call.group, call.op, call.peer if call.is_message else None] = _on_device(facts, call)
        else:
            found[call.thread] = call
    # What C++ has made (DDP's backward) is in no record of Python's.
    known_groups = {call.group for call in found.values()}
    others = [call for call in first_on_device(facts) if facts.watched and call.group not in known_groups]
    found.update((call.group, _on_device(facts, call)) for call in others)
    return list(found.values()) or _pending(facts)


def first_on_device(facts: RankFacts) -> list[Collective]:
    """The first collective of each group that has not ended on the rank's device, as the Flight Recorder has it."""
    first: dict[str, Collective] = {}
    for call in facts.recorded or ():
        if is_under_way(call) and not call.is_message:
            first.setdefault(call.group, call)
    return list(first.values())


def _on_device(facts: RankFacts, call: Collective) -> Collective:
    """A call under way on the device, as that of the thread that may wait for it; of none where the host does something
    else: then it may still come to what others wait in."""
    return dataclasses.replace(call, thread=OF_DEVICE) if is_elsewhere(facts, call) else call


def _pending(facts: RankFacts) -> list[Collective]:
    """A collective that C++ has begun for the rank (DDP's backward), and that the rank waits for; in a backward pass
    that does not compute, also one that a hook of it has issued. Of a rank that was not watched, all that it waits for
    at once."""
    issued = {(call.group, call.seq) for call in facts.collectives if call.issued and not _waits_in_backward(facts)}
    open_ = [
        call
        for call in facts.recorded or ()
        if not (call.done or call.issued or (call.state and facts.watched)) and (call.group, call.seq) not in issued
    ]
    if not open_ or is_elsewhere(facts, open_[0]):
        return []
    return open_[:1] if facts.watched else open_


def _waits_in_backward(facts: RankFacts) -> bool:
    frames = facts.stack.frames if facts.stack is not None else ()
    inside = bool(frames) and BACKWARD in frames[0].function
    kernel = facts.kernel
    if not inside or kernel is None or kernel.state != "S" or facts.device is not None:
        return False  # on a GPU the threads of the device compute the pass, and the main thread always sleeps
    return (kernel.cores or 0.0) < IDLE_CPU


def is_elsewhere(facts: RankFacts, call: Collective) -> bool:
    """Whether a rank with an unfinished collective does something else by now, as far as evidence shows."""
    if any(phase.name.startswith(AWAY_PHASES) and phase.since >= call.t for phase in facts.phases):
        return True
    frames = facts.stack.frames if facts.stack is not None else ()
    if frames and LIBRARY_TORCH.search(frames[0].file):
        return False
    return facts.kernel is not None and facts.kernel.syscall in ELSEWHERE


def is_under_way(call: Collective) -> bool:
    """Whether a call is known to be on a device, and not to have ended there."""
    return call.state in UNDER_WAY


def absence_is_proof(facts: RankFacts, call: Collective) -> bool:
    """Whether a rank's absence from a call proves anything: its own record must be whole, and for what C++ begins by
    itself the Flight Recorder must have answered, or the stack show that the rank is somewhere else."""
    if not record_is_complete(facts) and threads_inside(facts):
        return False  # it waits in something that its own record alone would name, such as a message
    if not call.thread:
        return _is_known_of_cpp(facts, call)
    in_recorder = facts.recorded is not None and not unrecorded(call)
    if not in_recorder and not unrecorded(call) and _may_be_in_cpp(facts):
        return False  # DDP may have made that call for it
    in_recorder = in_recorder and not _is_overwritten(facts, call)
    if not _passed_over(facts, call):
        return record_is_complete(facts) or in_recorder
    # Nobody comes back from a meeting before all have come: one that is still waited for was not passed over.
    return in_recorder or (unrecorded(call) and not call.is_message)


def _is_known_of_cpp(facts: RankFacts, call: Collective) -> bool:
    """The same of a call that C++ has made, which is in no record of Python's."""
    if _is_overwritten(facts, call):
        return False
    elsewhere = facts.stack is not None and not threads_inside(facts)
    return facts.recorded is not None or (elsewhere and facts.watched)


def _is_overwritten(facts: RankFacts, call: Collective) -> bool:
    """Whether what the recorder had of the group may have been overwritten."""
    return facts.overwritten and all(own.group != call.group for own in facts.recorded or ())


def record_is_complete(facts: RankFacts) -> bool:
    """Whether the rank's own record of its calls could be had, and goes to its last one."""
    return facts.watched and facts.recording and not any(gap.source == "collectives" for gap in facts.missing)


def is_inside_torch(frame: Location) -> bool:
    """Whether a frame is one of torch.distributed, or of a backward pass, which makes DDP's collectives."""
    return bool(INSIDE_TORCH.search(f"{frame.file}:{frame.function}"))


def stands_inside(stack: Stack) -> bool:
    """Whether a thread is inside torch.distributed, or in a backward pass: near the top of its stack."""
    return any(map(is_inside_torch, stack.frames[:3]))


def in_backward(facts: RankFacts) -> bool:
    """Whether a thread of a rank is in a backward pass, where DDP's C++ makes collectives."""
    return any(BACKWARD in frame.function for stack in threads_inside(facts) for frame in stack.frames[:3])


def threads_inside(facts: RankFacts) -> list[Stack]:
    """Threads of a rank that are inside torch.distributed, or in a backward pass, which makes DDP's collectives."""
    return [
        stack
        for stack in facts.stacks or ((facts.stack,) if facts.stack is not None else ())
        if not stack.native and stands_inside(stack)
    ]


def _passed_over(facts: RankFacts, call: Collective) -> bool:
    """Whether the rank's record is full and holds nothing of the group: what it did there may have been passed over."""
    return len(facts.collectives) >= RING and all(own.group != call.group for own in facts.collectives)


def main_blocked(facts: RankFacts) -> bool:
    """Whether the rank's main thread itself is in such a wait: what a helper thread waits for ends nobody's work."""
    if facts.exit is not None or any(call.thread == facts.pid for call in blocked_in(facts)):
        return True
    main = [stack for stack in facts.stacks if stack.thread == facts.pid and not stack.native]
    return any(is_inside_torch(frame) for stack in main for frame in stack.frames)


def is_irreversible(waits: Iterable[tuple[RankFacts, Collective]]) -> bool:
    """Whether these ranks are blocked in these calls for good, as far as it may end them without being asked: each is
    so by two sources, and with its main thread."""
    return all(has_second_source(facts, call) and main_blocked(facts) for facts, call in waits)


def _may_be_in_cpp(facts: RankFacts) -> bool:
    """Whether the rank may wait in a collective that C++ has made: in its backward pass, in DDP's own code, for a GPU
    on which that may be under way, or where its stack could not be had."""
    if facts.stack is None:
        return any(gap.source == "stack" for gap in facts.missing) and not _is_seen_elsewhere(facts)
    inner = facts.stack.frames[:1]
    if any(IN_DDP.search(frame.file) or (facts.reducers and waits_for_gpu(frame)) for frame in inner):
        return True
    return in_backward(facts)


def _is_seen_elsewhere(facts: RankFacts) -> bool:
    """Whether the kernel alone shows that the rank's main thread is in no collective and no backward pass: gloo and
    autograd wait at a lock. Those who wait for a GPU may look at it again and again, and sleep in between."""
    on_gpus = facts.device is not None and bool(facts.device.count)
    return facts.kernel is not None and facts.kernel.syscall in ELSEWHERE and not on_gpus


def unrecorded(call: Collective) -> bool:
    """Whether torch's Flight Recorder keeps no entries of such calls."""
    return call.is_message or call.group in MEETINGS or ":" in call.group or call.group.startswith(MAKING)


def call_at_number(facts: RankFacts, call: Collective) -> Collective | None:
    """The rank's own call at the same number of the same group, or None where it has not come that far."""
    own, recorded = _made(facts, call.group), _recorded(facts, call.group)
    for candidate in (*own, *recorded):
        if candidate.seq == call.seq:
            return candidate
    # It has gone past: what it did at that number is not in its records any more.
    return min((c for c in (*own, *recorded) if c.seq > call.seq), key=lambda c: c.seq, default=None)


def differs(one: RankFacts, other: RankFacts, call: Collective) -> bool:
    """Whether two ranks came to one number with different operations, roots, or reductions.

    Like is compared with like: gloo's recorder calls things by other names than the program does (it records a
    `reduce_scatter_tensor` as an `all_reduce`; measured with torch 2.13). Without a record of both, nothing is said.
    """
    for records in (_made, _recorded):
        mine = next((c for c in records(one, call.group) if c.seq == call.seq), None)
        theirs = next((c for c in records(other, call.group) if c.seq == call.seq), None)
        if mine is not None and theirs is not None:
            roots = {mine.peer, theirs.peer} - {None}  # a root that was left out is not recorded
            if _exactly(mine.op) != _exactly(theirs.op) or len(roots) > 1:
                return True
            return bool(mine.how and theirs.how and mine.how != theirs.how)
    mine, theirs = call_at_number(one, call), call_at_number(other, call)
    if mine is None or theirs is None or mine.seq != theirs.seq:
        return False
    return len({_as_recorded(mine.op), _as_recorded(theirs.op)}) > 1


def call_signature(facts: RankFacts, call: Collective) -> object:
    """All that `differs` looks at of a rank that has come: ranks with the same word do not differ from one another."""
    at = [next((c for c in records(facts, call.group) if c.seq == call.seq), None) for records in (_made, _recorded)]
    came = call_at_number(facts, call)
    return (
        *((_exactly(c.op), c.peer, c.how) if c is not None else None for c in at),
        (came.seq, _as_recorded(came.op)) if came is not None else None,
    )


def _made(facts: RankFacts, group: str) -> list[Collective]:
    if not facts.watched:
        return []  # what there is, is its recorder's
    return [c for c in current_calls(facts) if c.group == group and c.op != LEAVING and not c.is_message]


def _recorded(facts: RankFacts, group: str) -> list[Collective]:
    return [c for c in facts.recorded or () if c.group == group and not c.issued and not c.is_message]


def _as_recorded(op: str) -> str:
    name = canonical(op)
    return "allreduce" if name == "reducescatter" else name


def canonical(op: str) -> str:
    """One name for an operation, whoever recorded it: Python's `all_gather_into_tensor` is C++'s `_allgather_base`."""
    plain = op.replace("_", "").lower()
    for ending in ("intotensor", "tensor", "base", "coalesced", "single", "uneven"):
        plain = plain.replace(ending, "")
    return plain


def _exactly(op: str) -> tuple[str, bool]:
    """An operation as one kind of record tells it of several ranks: there a coalesced call, of several tensors, is
    another one than that of a single tensor."""
    return canonical(op), "coalesced" in op


def has_left(facts: RankFacts, group: str) -> bool:
    """Whether a rank has destroyed the group, or is shutting down."""
    if left_cleanly(facts) or facts.shut_down is not None:
        return True
    if group in MEETINGS or group.startswith(MAKING):
        return False  # a program may destroy its groups and make new ones
    last = facts.last_collective
    return last is not None and last.op == LEAVING and (last.group == group or last.group == WORLD)


def has_second_source(facts: RankFacts, call: Collective) -> bool:
    """Whether a second source says that the rank is blocked in this call: torch's Flight Recorder, or, where it keeps
    no record of such calls, a stack inside torch.distributed. What is to be ended for good needs two sources."""
    if any((c.group, c.seq) == (call.group, call.seq) and not c.done for c in facts.recorded or ()):
        return True
    if not unrecorded(call):
        return False
    stack = next((s for s in facts.stacks if s.thread == call.thread), facts.stack)
    frames = stack.frames if stack is not None else ()
    elsewhere = facts.kernel is not None and call.thread == facts.pid and facts.kernel.syscall in ELSEWHERE
    return not elsewhere and any(is_torch_distributed(f) or f == call.location for f in frames)


def matching_message(other: RankFacts, call: Collective, rank: int) -> Collective | None:
    """The other rank's part of a message, where it has done it: its own call that came as far as this one's number, and
    has its tag; or one with its tag that is under way, whatever was sent before it."""
    opposite = "recv" if "send" in call.op else "send"
    others = (own for own in other.calls if opposite in own.op and (other.watched or not own.issued))
    return next((own for own in others if _is_part_of(own, call, rank)), None)


def _is_part_of(own: Collective, call: Collective, rank: int) -> bool:
    if own.peer is None and not own.done and not own.raised:
        return True  # from anyone
    came = own.seq >= call.seq or (own.tag > 0 and own.issued)
    return own.peer == rank and came and own.tag == call.tag


def responsible(facts: RankFacts, group: str) -> int:
    """The thread from which a rank would enter a collective of this group. One that runs no Python has made its calls
    for the main thread, in a backward pass."""
    own = [call.thread for call in facts.collectives if call.group == group and call.thread]
    thread = own[-1] if own else main_thread(facts)
    bare = any(stack.thread == thread and not (stack.frames or stack.native) for stack in facts.stacks)
    return facts.pid if bare else thread


def main_thread(facts: RankFacts) -> int:
    """The thread that makes the rank's collectives, else the main thread, whose id is the process's."""
    threads = [call.thread for call in facts.collectives if call.thread]
    return threads[-1] if threads else facts.pid


def stack_of(facts: RankFacts, thread: int) -> Stack | None:
    """The stack of one thread of a rank."""
    return next((stack for stack in facts.stacks if stack.thread == thread), facts.stack)


def frames_of(facts: RankFacts, thread: int) -> list[Location]:
    """The lines of the user's own program that a thread of a rank is at, innermost first."""
    stack = stack_of(facts, thread)
    return [frame for frame in (stack.frames if stack is not None else ()) if is_user_code(frame)]


def frames_at(facts: RankFacts, call: Collective, thread: int) -> list[Location]:
    """The lines of the user's own program that led to a call, innermost first.

    The host of a call that is under way on a device may have gone on: then only the line of the call itself is known,
    or none, where C++ has made it.
    """
    own = frames_of(facts, thread)
    place = call.location
    if not own or not call.state or (place is None and in_backward(facts)):
        return own
    if place is None or any((frame.file, frame.line) == (place.file, place.line) for frame in own):
        return own if place is not None else []
    return [place] if is_user_code(place) else []

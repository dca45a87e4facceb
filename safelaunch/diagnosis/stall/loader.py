"""A rank that waits for its DataLoader: which of its workers holds it up, and where."""

from __future__ import annotations

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.stall.activity import SHOWN, details, in_call
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import LOCKS, SLEEPS
from safelaunch.diagnosis.waitgraph.threads import thread_name, wanted_locks
from safelaunch.model import Child, Location, RankFacts

FORKED = "/multiprocessing/popen_fork.py"
HELD_AT_FORK = (
    "a lock that another thread held as the worker was forked stays locked in it: start workers with "
    "multiprocessing_context='forkserver' or 'spawn', or take no such lock in the data set"
)


def stall(facts: RankFacts, waited: str, place: Location | None, sources: tuple[str, ...], lines: Lines) -> Stall:
    """The stall of a rank that waits for its DataLoader, with the worker that holds it up.

    Args:
        facts: of the rank.
        waited: for how long, in words.
        place: where it waits in the program.
        sources: the kinds of evidence that were looked at.
        lines: describes the lines at which the rank and its workers are.
    """
    remedy = "look at the data that this line reads; DataLoader(timeout=...) turns such a wait into an error"
    workers = [child for child in facts.children if is_worker(child)]
    busy = [child for child in workers if not _idle(child)]
    if busy:
        child = busy[0]
        if _waits_for_a_lock(child):
            return _locked(facts, child, waited, place, sources, lines)
        at = child.kernel
        if child.stack is None and at.syscall in LOCKS:
            return _locked_unseen(child, waited, place, sources)
        which = f"its loader worker pid {child.pid} is in {in_call(at)}" if at.syscall or at.file else ""
        which = which or f"its loader worker pid {child.pid} is busy"
        own = (f"the rank itself waits at {place.file}:{place.line}",) if place else ()
        where = user_frame(child.stack) or place
        what = f"waits for its DataLoader for {waited}"
        return Stall("SL307", what, where, remedy, (which, *own), sources)
    if workers:
        because = ("its loader workers all wait for work: none of them holds the batch",)
        return Stall("SL307", f"waits for its DataLoader for {waited}", place, remedy, because, sources)
    remedy = "look at what this line does, in the rank's own process"
    return Stall("SL307", f"is in its DataLoader for {waited}", place, remedy, details(facts, facts.stack), sources)


def _locked(
    facts: RankFacts, child: Child, waited: str, place: Location | None, sources: tuple[str, ...], lines: Lines
) -> Stall:
    """The stall where a worker that was forked waits for a lock at a line of the program."""
    assert child.stack is not None
    wanted = wanted_locks(facts, child.stack, lines)
    lock = f"the lock `{wanted[0][1]}`" if len(wanted) == 1 else "a lock"
    threads = tuple(
        f"{thread_name(stack)} of the rank, which may have held it, is at {frame.file}:{frame.line}"
        for stack in facts.stacks
        if stack.name != "MainThread" and (frame := user_frame(stack)) is not None
    )
    own = (f"the rank itself waits at {place.file}:{place.line}",) if place else ()
    which = f"its loader worker pid {child.pid} was forked from the rank, without the rank's other threads"
    what = f"waits for its DataLoader for {waited}, whose worker waits for {lock}"
    return Stall("SL307", what, child.stack.frames[0], HELD_AT_FORK, (which, *threads[:SHOWN], *own), sources)


def _locked_unseen(child: Child, waited: str, place: Location | None, sources: tuple[str, ...]) -> Stall:
    """The stall where the kernel alone has seen a worker wait for a lock: whose, its stack would say."""
    because = (
        f"its loader worker pid {child.pid} is in futex(): a worker without work polls, so this one waits for a lock "
        "or for a thread of its own",
        f"its stack could not be had: `py-spy dump --pid {child.pid}`",
    )
    own = (f"the rank itself waits at {place.file}:{place.line}",) if place else ()
    what = f"waits for its DataLoader for {waited}, whose worker waits for a lock or a thread"
    return Stall("SL307", what, place, HELD_AT_FORK, (*because, *own), sources)


def _waits_for_a_lock(child: Child) -> bool:
    """Whether a worker that was forked waits for a lock at a line of the program: those of other processes are taken in
    Python's own files, and a worker has no other thread that could give one back."""
    frames = child.stack.frames if child.stack is not None else ()
    forked = any(frame.file.endswith(FORKED) for frame in frames)
    return forked and child.kernel.syscall in LOCKS and is_user_code(frames[0])


def is_worker(child: Child) -> bool:
    """Whether a process below a rank is one of a DataLoader."""
    if child.name.startswith("pt_data_worker"):  # from torch 2.6 on
        return True
    return child.stack is not None and any(frame.function == "_worker_loop" for frame in child.stack.frames)


def _idle(child: Child) -> bool:
    """Whether a loader worker waits for the next index: nothing of a data set is on its stack; without a stack, it is
    in no call on a file, and in none in which nobody waits for an index (that is a poll of a pipe)."""
    if child.stack is None:
        away = child.kernel.syscall in SLEEPS | LOCKS
        return not (child.kernel.file.startswith("/") or away or child.kernel.state in "TR")
    for frame in child.stack.frames:
        if frame.function == "_worker_loop":
            return True
        if frame.function.endswith("fetch") or is_user_code(frame):
            return False
    return False

"""A rank that waits for its DataLoader: which of its workers holds it up, and where."""

from __future__ import annotations

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.stall.activity import details, in_call
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import SLEEPS
from safelaunch.model import Child, Location, RankFacts


def stall(facts: RankFacts, waited: str, place: Location | None, sources: tuple[str, ...]) -> Stall:
    """The stall of a rank that waits for its DataLoader, with the worker that holds it up.

    Args:
        facts: of the rank.
        waited: for how long, in words.
        place: where it waits in the program.
        sources: the kinds of evidence that were looked at.
    """
    remedy = "look at the data that this line reads; DataLoader(timeout=...) turns such a wait into an error"
    workers = [child for child in facts.children if is_worker(child)]
    busy = [child for child in workers if not _idle(child)]
    if busy:
        child = busy[0]
        at = child.kernel
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


def is_worker(child: Child) -> bool:
    """Whether a process below a rank is one of a DataLoader."""
    if child.name.startswith("pt_data_worker"):  # from torch 2.6 on
        return True
    return child.stack is not None and any(frame.function == "_worker_loop" for frame in child.stack.frames)


def _idle(child: Child) -> bool:
    """Whether a loader worker waits for the next index: nothing of a data set is on its stack; without a stack, it is
    in no call on a file."""
    if child.stack is None:
        return not (child.kernel.file.startswith("/") or child.kernel.syscall in SLEEPS or child.kernel.state in "TR")
    for frame in child.stack.frames:
        if frame.function == "_worker_loop":
            return True
        if frame.function.endswith("fetch") or is_user_code(frame):
            return False
    return False

"""Why one rank does not come: reasons in an order, from what the kernel proves to what a stack shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.stall import gil, imports, loader
from safelaunch.diagnosis.stall.activity import (
    details,
    doing,
    in_call,
    still_running,
)
from safelaunch.diagnosis.stall.clues import CLUES, Clue
from safelaunch.diagnosis.stall.dead import waits_for_the_dead
from safelaunch.diagnosis.stall.look import Look
from safelaunch.diagnosis.stall.native import native_frames
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import LOCKS, POLLS, READS, WAITS_FOR_CHILD, advice
from safelaunch.diagnosis.waitgraph.calls import stack_of, stopped
from safelaunch.diagnosis.waitgraph.threads import left_running, thread_name, waits_for_another
from safelaunch.model import Child, Kernel, RankFacts, SourceLine

# A beat older than this: the thread that writes it every 0.2 s cannot get the GIL. Healthy ranks were never seen above
# 0.2 s on 2 busy cores; research measured 3.4 s and more with the GIL held.
STALE_BEAT_S = 2.0


Reason = Callable[[Look], Stall | None]


def stall_of(
    facts: RankFacts, thread: int, now: float, source: Iterable[SourceLine] = (), *, at_least: bool = False
) -> Stall:
    """The reason why a thread of a rank makes no collective: the first of `STALLS` that says one."""
    look = Look(facts, thread, now, tuple(source), at_least)
    return next(stall for reason in STALLS if (stall := reason(look)) is not None)


def is_stopped(look: Look) -> Stall | None:
    """A rank's process is stopped (SIGSTOP or SIGTSTP), and its peers wait for it. It does not run at all.

    Example:
        error[SL304]: rank 2 is stopped (SIGSTOP or SIGTSTP), and 3 peers wait for it in all_reduce #12

    How it was concluded: the kernel says so (state T in /proc/PID/stat), twice. All chains of waits end at this rank.

    What to do: `kill -CONT PID` lets it go on. See who stopped it: a terminal's Ctrl-Z, a scheduler that suspends jobs,
    a tool that takes snapshots.

    What it is not: a process that a debugger holds (state t). Then the job waits for a person, and the clocks stand
    still.
    """
    if not stopped(look.facts):
        return None
    remedy = f"`kill -CONT {look.facts.pid}` lets it go on"
    return Stall("SL304", "is stopped (SIGSTOP or SIGTSTP)", look.place, remedy, sources=look.sources)


def is_uninterruptible(look: Look) -> Stall | None:
    """A rank, or a process that it waits for, is held in the kernel, and its peers wait for it.

    Example:
        error[SL306]: rank 2 is in uninterruptible sleep in the kernel: read() on /mnt/nfs/shard-17 (data.py:31), and 3
            peers wait for it in all_reduce #12

    How it was concluded: the kernel says so (state D in /proc/PID/stat), with the system call, its file and the mount.
    All chains of waits end at this rank.

    What to do: look at that file system or device on this host: `dmesg`, the file server, the driver. Not even SIGKILL
    ends such a process; only an answer from what it waits for does.

    What it is not: a proof that the disk is dead. A slow one holds ranks there as well, and the run is not ended as
    long as data moves.
    """
    waits = _uninterruptible(look.facts)
    if not waits:
        return None
    process, kernel = waits[0]
    because = (
        *((f"that is its child {process.name}, pid {process.pid}",) if process is not None else ()),
        *((f"{kernel.file} is on {kernel.mount} ({kernel.filesystem})",) if kernel.mount else ()),
        *((f"held at the same place: {', '.join(kernel.beside[:3])}",) if kernel.beside else ()),
        *((f"kernel function: {kernel.wchan}",) if kernel.wchan else ()),
    )
    where = (user_frame(process.stack) if process is not None else None) or look.place
    what = f"is in uninterruptible sleep in the kernel: {in_call(kernel)}"
    return Stall("SL306", what, where, "look at that file system or device on this host", because, look.sources)


def _uninterruptible(facts: RankFacts) -> list[tuple[Child | None, Kernel]]:
    waits: list[tuple[Child | None, Kernel]] = []
    if facts.kernel is not None and facts.kernel.state == "D":
        waits.append((None, facts.kernel))
    # A child counts where the rank can be waiting for it; an uploader in the background explains nothing.
    may_wait = facts.kernel is None or facts.kernel.syscall in WAITS_FOR_CHILD | POLLS | READS | LOCKS
    waits += [(child, child.kernel) for child in facts.children if may_wait and child.kernel.state == "D"]
    return waits


def is_in_checkpoint(look: Look) -> Stall | None:
    """A rank saves or loads a checkpoint, and its peers wait for it in a collective.

    Example:
        error[SL308]: rank 0 is in a checkpoint save for 8 s, and 3 peers wait for it in all_reduce #12

    How it was concluded: the rank is inside `torch.save`, `torch.load` or `torch.distributed.checkpoint`, by its own
    record, and all chains of waits end at it. What it does there comes from its stack and the kernel.

    What to do: look at the file system of the checkpoint. Where one rank saves for all, let the others wait in a
    barrier with a timeout that fits, or save asynchronously.

    What it is not: a hang for certain. A run is not ended by it as long as data is written or read.
    """
    if look.phase is None or not look.in_phase("checkpoint"):
        return None
    kernel = look.facts.kernel
    has_peer = kernel is not None and kernel.peer is not None
    remedy = advice(kernel, False) if has_peer else "look at the file system of the checkpoint"
    what = f"is in a {look.phase.name} for {look.waited}"
    return Stall("SL308", what, look.place, remedy, details(look.facts, look.stack), look.sources_and_beat)


def holds_gil(look: Look) -> Stall | None:
    """Native code holds a rank's GIL, so that no thread of it runs Python, and its peers wait for it.

    Example:
        error[SL305]: rank 2 runs native code that holds the GIL, for 8 s (data.py:52), and 3 peers wait for it in
            all_reduce #12

    How it was concluded: a thread of safelaunch in each rank writes a heartbeat five times a second, in Python. It has
    stopped, while the process runs or sleeps. All chains of waits end at this rank. py-spy reads its line from outside.

    What to do: look at the native call at this line. It must release the GIL, or end. No Python tool inside the process
    can tell you more; `py-spy dump --native` can.

    What it is not: Python code that computes for long. That lets the heartbeat through, and is SL301.
    """
    age = look.facts.beat_age_s
    if age is None or age <= STALE_BEAT_S:
        return None
    what = f"runs native code that holds the GIL, for {age:.0f} s"
    remedy = "the native call at this line must release the GIL, or end"
    return Stall(
        "SL305", what, gil.holder(look) or look.place, remedy, details(look.facts, look.stack), look.sources_and_beat
    )


def waits_for_loader(look: Look) -> Stall | None:
    """A rank waits for its DataLoader, and its peers wait for it in a collective.

    Example:
        error[SL307]: rank 2 waits for its DataLoader for 8 s, and 3 peers wait for it in all_reduce #12

    How it was concluded: the rank is inside its loader's `next`, by its own record, and all chains of waits end at it.
    The line is that of the loader's worker which holds the batch, with the system call and the file that it is in. With
    `num_workers=0` it is the rank's own line. A lock for which a forked worker waits may have been held by another
    thread of the rank at the fork.

    What to do: look at the named line and file. `DataLoader(timeout=...)` raises an exception instead of waiting on.

    What it is not: a loader that is slow in every step. That is SL506, or SL503 for one rank.
    """
    if look.phase is None or look.phase.name != "loader":
        return None
    return loader.stall(look.facts, look.waited, look.place, look.sources_and_beat, by_place(look.source))


def compiles(look: Look) -> Stall | None:
    """torch.compile is at work."""
    if look.phase is None or look.phase.name != "compile":
        return None
    what = f"compiles for {look.waited}"
    remedy = "compile before the first collective, or raise the limit with safelaunch.phase"
    return Stall("SL301", what, look.place, remedy, details(look.facts, look.stack), look.sources_and_beat)


def has_locked_itself(look: Look) -> Stall | None:
    """Threads of one rank wait for one another, by locks, and its peers wait for that rank.

    Example:
        error[SL313]: rank 2 waits for a lock that it holds (train.py:160), and 3 peers wait for it in all_reduce #12

    How it was concluded: the stacks show threads inside `acquire`, and the source lines around them show which lock
    each of them holds (`with self._lock:`). Following them leads back to where it started. The lines are shown.

    What to do: take locks in one order in all threads. A lock that its holder takes again must be an `RLock`.

    What it is not: a lock that nobody is seen to hold. That is SL301, with the line that waits for it.
    """
    chain = look.chain
    if not chain.circle:
        return None
    what = "has threads that wait for one another" if len(chain.lines) > 1 else "waits for a lock that it holds"
    remedy = "take locks in one order in all threads; a lock that is taken again by its holder must be an RLock"
    return Stall("SL313", what, look.place, remedy, chain.lines, look.sources)


def waits_in_store(look: Look) -> Stall | None:
    """It waits until another rank has set a key."""
    if look.phase is None or not look.in_phase("store."):
        return None
    what = f"waits in {look.phase.name} for another rank, for {look.waited}"
    remedy = "see who is to set that key, and when"
    return Stall("SL301", what, look.place, remedy, look.chain.lines, look.sources_and_beat)


def has_ended_its_program(look: Look) -> Stall | None:
    """It has come to the end of its program, and something of its own still keeps its process."""
    facts, stack = look.facts, look.stack
    if not facts.ended or not (stack is None or look.own == stack_of(facts, facts.pid)):
        return None
    threads = left_running(facts)
    if user_frame(stack) is not None:
        what = f"has come to the end of its program, and {doing(facts, stack)} in what it calls there"
        remedy = "look at what is called at the end: an `atexit` handler, or the end of a context"
        return Stall("SL301", what, look.place, remedy, still_running(facts), look.sources_and_beat)
    alone = f", and its {thread_name(threads[0])} still runs" if len(threads) == 1 else ""
    at = next((found for found in (look.place, *map(user_frame, threads)) if found is not None), None)
    remedy = (
        "see why the program of this rank came to its end before those of its peers: fewer batches, an early return"
    )
    what = f"has come to the end of its program{alone}"
    return Stall("SL301", what, at, remedy, still_running(facts), look.sources_and_beat)


def does_something_else(look: Look) -> Stall:
    """What it does, whatever that is."""
    stack, lines = look.stack, look.chain.lines
    named = f"is in its phase {look.phase.name!r}: " if look.phase is not None else ""
    unseen = look.kernel is None or look.syscall in LOCKS | {"", "ioctl", "sched_yield"}
    because = (*lines, *imports.of(stack), *(native_frames(look.facts, stack) if unseen else ()))
    remedy = advice(look.kernel, bool(lines) or waits_for_another(stack))
    more = next((found for clue in CLUES if (found := clue(look)) is not None), Clue())
    place, remedy, because = more.place or look.place, more.remedy or remedy, because + more.lines
    return Stall("SL301", named + look.does, place, remedy, because, look.sources)


STALLS: tuple[Reason, ...] = (
    is_stopped,
    is_uninterruptible,
    is_in_checkpoint,
    holds_gil,
    waits_for_loader,
    compiles,
    has_locked_itself,
    waits_in_store,
    has_ended_its_program,
    waits_for_the_dead,
    does_something_else,
)

"""Why one rank does not come: reasons in an order, from what the kernel proves to what a stack shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.stall import imports, loader
from safelaunch.diagnosis.stall.activity import (
    FOR_POOL,
    IN_ASYNCIO,
    SHOWN,
    details,
    doing,
    in_call,
    kernel_of,
    still_running,
)
from safelaunch.diagnosis.stall.dead import waits_for_the_dead
from safelaunch.diagnosis.stall.native import native_frames
from safelaunch.diagnosis.stall.processes import UNREAD, is_unread, own_process
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import LOCKS, POLLS, READS, SLEEPS, WAITS_FOR_CHILD, advice
from safelaunch.diagnosis.waitgraph.calls import AWAY_PHASES, stack_of, stopped
from safelaunch.diagnosis.waitgraph.flags import looks_for
from safelaunch.diagnosis.waitgraph.threads import Chain, follow, left_running, thread_name, waits_for_another
from safelaunch.model import Child, Kernel, Location, Phase, RankFacts, SourceLine, Stack

# A beat older than this: the thread that writes it every 0.2 s cannot get the GIL. Healthy ranks were never seen above
# 0.2 s on 2 busy cores; research measured 3.4 s and more with the GIL held.
STALE_BEAT_S = 2.0


@dataclass(frozen=True)
class Look:
    """A rank as the reasons look at it.

    Args:
        facts: of the rank.
        thread: the one that makes no collective.
        now: of the look.
        source: describes the lines at which its threads are.
        at_least: it may have been there for longer, before anybody looked.
    """

    facts: RankFacts
    thread: int
    now: float
    source: tuple[SourceLine, ...]
    at_least: bool = False

    @cached_property
    def own(self) -> Stack | None:
        """The stack of that thread."""
        return stack_of(self.facts, self.thread)

    @cached_property
    def chain(self) -> Chain:
        """From that thread, over those that it waits for."""
        return follow(self.facts, self.own, self.source)

    @property
    def stack(self) -> Stack | None:
        """That of the thread which waits for no other one."""
        return self.chain.end

    @cached_property
    def kernel(self) -> Kernel | None:
        """Where the kernel has seen it."""
        return kernel_of(self.facts, self.stack)

    @property
    def syscall(self) -> str:
        return self.kernel.syscall if self.kernel is not None else ""

    @cached_property
    def does(self) -> str:
        """What it does, in words; with its name, where it is another thread than the first."""
        what = doing(self.facts, self.stack)
        if self.stack is not None and self.stack != self.own:
            return f"waits for {thread_name(self.stack)}, which {what}"
        return what

    @cached_property
    def place(self) -> Location | None:
        """Where that one is in the program."""
        return user_frame(self.stack) or user_frame(self.own)

    @cached_property
    def phase(self) -> Phase | None:
        """The innermost phase that the thread is in."""
        open_ = [phase for phase in self.facts.phases if phase.thread in (0, self.thread)]
        ours = [phase for phase in open_ if phase.name.startswith(AWAY_PHASES)]
        found = ours or open_
        return found[-1] if found else None

    def in_phase(self, name: str) -> bool:
        """Whether it is in a phase whose name begins so."""
        return self.phase is not None and self.phase.name.startswith(name)

    @property
    def since_s(self) -> float:
        """For how long it is in that phase."""
        return self.now - self.phase.since if self.phase is not None else 0.0

    @property
    def waited(self) -> str:
        """The same in words: `8 s`, `at least 8 s`."""
        return f"{'at least ' if self.at_least else ''}{self.since_s:.0f} s"

    @property
    def sources(self) -> tuple[str, ...]:
        """The kinds of evidence that were looked at."""
        there = (("stack", self.stack is not None), ("kernel", self.facts.kernel is not None))
        return tuple(name for name, known in there if known)

    @property
    def sources_and_beat(self) -> tuple[str, ...]:
        """The same, where the rank's own heartbeat says so too."""
        return (*self.sources, "heartbeat")


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
    return Stall("SL305", what, look.place, remedy, details(look.facts, look.stack), look.sources_and_beat)


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
    more = next((found for clue in CLUES if (found := clue(look)) is not None), _Clue())
    return Stall(
        "SL301",
        named + look.does,
        more.place or look.place,
        more.remedy or remedy,
        because + more.lines,
        look.sources,
    )


@dataclass(frozen=True)
class _Clue:
    """What else tells of what a thread waits for: lines, a place of its own, what to do where that is another thing."""

    lines: tuple[str, ...] = ()
    place: Location | None = None
    remedy: str = ""


def _of_processes(look: Look) -> _Clue | None:
    """It waits for processes of its own: what these do."""
    if look.syscall not in WAITS_FOR_CHILD:
        return None
    own = _own_processes(look.facts)
    unread = bool(own) and all(is_unread(look.facts, child) for child in own)
    return _Clue(tuple(own_process(look.facts, child) for child in own[:SHOWN]), remedy=UNREAD if unread else "")


def _of_tasks(look: Look) -> _Clue | None:
    """It waits in asyncio: where its tasks are."""
    if not look.does.startswith(IN_ASYNCIO):
        return None
    waits = [(task, where) for task in look.facts.tasks if (where := user_frame(task)) is not None]
    lines = (f"its task {task.name} waits in {at.function} at {at.file}:{at.line}" for task, at in waits[:SHOWN])
    return _Clue(tuple(lines), waits[0][1] if len(waits) == 1 else None)


def _of_flag(look: Look) -> _Clue | None:
    """It sleeps in a loop: what it looks for in between."""
    if look.syscall not in SLEEPS or look.thread not in (0, look.facts.pid):
        return None
    looks = looks_for(look.facts, by_place(look.source))
    return _Clue((f"it looks again and again: `{looks[1]}`",) if looks is not None else ())


def _of_pool(look: Look) -> _Clue | None:
    if FOR_POOL not in look.does or not _own_processes(look.facts):
        return None
    return _Clue(("a process of a pool that dies takes its task with it: the pool waits on, and nobody is told",))


CLUES = (_of_processes, _of_tasks, _of_flag, _of_pool)


def _own_processes(facts: RankFacts) -> list[Child]:
    return [child for child in facts.children if not loader.is_worker(child)]


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

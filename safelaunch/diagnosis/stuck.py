"""What a rank does that does not come: the reason, in words, from the evidence that proves most."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from safelaunch.diagnosis import imports
from safelaunch.diagnosis.alone import looks_for
from safelaunch.diagnosis.calls import (
    LOCKS,
    OPENS,
    POLLS,
    READS,
    RECEIVES,
    SLEEPS,
    WAITS_FOR_CHILD,
    WRITES,
    advice,
    computes,
)
from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.native import native_frames
from safelaunch.diagnosis.threads import follow, left_running, thread_name, waits_for_another
from safelaunch.diagnosis.waits import AWAY_PHASES, stack_of, stopped
from safelaunch.model import Child, Kernel, Location, Phase, RankFacts, SourceLine, Stack

# A beat older than this: the thread that writes it every 0.2 s cannot get the GIL. Healthy ranks were never seen above
# 0.2 s on 2 busy cores; research measured 3.4 s and more with the GIL held.
STALE_BEAT_S = 2.0

STORE = "the store of torch.distributed"  # as evidence.outside names the other end of a connection
TOO = "and waits for input from it, too"  # and says of whoever has that end
PIDS = re.compile(r"\(pid (\d+)\)")  # in `Kernel.other`
NETWORK = re.compile(r"^(?:nfs|cifs|smb|lustre|ceph|beegfs|gpfs|9p|afs|gfs|ocfs|panfs|wekafs|fuse)", re.IGNORECASE)

# Waits of libraries that look like a sleep or a poll: the file of a frame, and what it is that is waited for.
KNOWN = (
    (
        re.compile(r"/torch/utils/file_baton\.py$"),
        "waits for a lock file that the build of a C++ extension holds, or has left",
    ),
    (re.compile(r"/(?:site|dist)-packages/filelock/"), "waits for a file lock (package filelock)"),
    (re.compile(r"/torch/utils/cpp_extension\.py$"), "builds a C++ extension"),
)
# `file:function` of a frame; of the two innermost ones.
RESULT_OF_POOL = re.compile(r"/multiprocessing/pool\.py:(?:\w+\.)?(?:get|wait|next|join)$")
FOR_POOL = "waits for the results of a pool"
IN_ASYNCIO = "waits in asyncio"
LOOP_OF_ASYNCIO = re.compile(r"/selectors\.py:.*/asyncio/base_events\.py:(?:\w+\.)?_run_once$")
SHOWN = 3  # threads, or processes
UNREAD = "read what the process writes while it runs (`communicate()`), or let it write to a file"


Thread = tuple[int, int]  # rank and thread


@dataclass(frozen=True)
class Stuck:
    """Why a rank does not come. `what` completes "rank 3 ..."; `sources` names the kinds of evidence that agree."""

    code: str
    what: str
    location: Location | None
    remedy: str
    because: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def why(facts: RankFacts, thread: int, now: float, source: Iterable[SourceLine] = ()) -> Stuck:
    """The reason why a thread of a rank makes no collective. `source` describes the lines at which its threads are."""
    chain = follow(facts, stack_of(facts, thread), source)
    stack = chain.end
    place = user_frame(stack) or user_frame(stack_of(facts, thread))
    phase = _phase(facts, thread)
    sources = tuple(
        name for name, there in (("stack", stack is not None), ("kernel", facts.kernel is not None)) if there
    )
    if stopped(facts):
        return Stuck(
            "SL304",
            "is stopped (SIGSTOP or SIGTSTP)",
            place,
            f"`kill -CONT {facts.pid}` lets it go on",
            sources=sources,
        )
    for process, kernel in _uninterruptible(facts):
        what = f"is in uninterruptible sleep in the kernel: {_in_call(kernel)}"
        whose = () if process is None else (f"that is its child {process.name}, pid {process.pid}",)
        because = (
            *whose,
            *((f"{kernel.file} is on {kernel.mount} ({kernel.filesystem})",) if kernel.mount else ()),
            *((f"held at the same place: {', '.join(kernel.beside[:3])}",) if kernel.beside else ()),
            *((f"kernel function: {kernel.wchan}",) if kernel.wchan else ()),
        )
        where = _child_place(process) or place if process is not None else place
        return Stuck("SL306", what, where, "look at that file system or device on this host", because, sources)
    if phase is not None and phase.name.startswith("checkpoint"):
        what = f"is in a {phase.name} for {now - phase.since:.0f} s"
        apart = facts.kernel is not None and facts.kernel.other
        remedy = advice(facts.kernel, False) if apart else "look at the file system of the checkpoint"
        return Stuck("SL308", what, place, remedy, _details(facts, stack), (*sources, "heartbeat"))
    if _holds_gil(facts):
        what = f"runs native code that holds the GIL, for {facts.beat_age_s:.0f} s"
        remedy = "the native call at this line must release the GIL, or end"
        return Stuck("SL305", what, place, remedy, _details(facts, stack), (*sources, "heartbeat"))
    if phase is not None and phase.name == "loader":
        return _loader(facts, phase, place, now, (*sources, "heartbeat"))
    if phase is not None and phase.name == "compile":
        what = f"compiles for {now - phase.since:.0f} s"
        remedy = "compile before the first collective, or raise the limit with safelaunch.phase"
        return Stuck("SL301", what, place, remedy, _details(facts, stack), (*sources, "heartbeat"))
    if chain.circle:
        what = "has threads that wait for one another" if len(chain.lines) > 1 else "waits for a lock that it holds"
        remedy = "take locks in one order in all threads; a lock that is taken again by its holder must be an RLock"
        return Stuck("SL313", what, place, remedy, chain.lines, sources)
    if phase is not None and phase.name.startswith("store."):
        what = f"waits in {phase.name} for another rank, for {now - phase.since:.0f} s"
        return Stuck("SL301", what, place, "see who is to set that key, and when", chain.lines, (*sources, "heartbeat"))
    if facts.ended and (stack is None or stack_of(facts, thread) == stack_of(facts, facts.pid)):
        return _over(facts, stack, place, sources)
    named = f"is in its phase {phase.name!r}: " if phase is not None else ""
    what = doing(facts, stack)
    if stack is not None and stack != stack_of(facts, thread):
        what = f"waits for {thread_name(stack)}, which {what}"
    told = kernel_of(facts, stack)
    remedy = advice(told, bool(chain.lines) or waits_for_another(stack))
    unseen = told is None or told.syscall in LOCKS | {"", "ioctl", "sched_yield"}
    because = (*chain.lines, *imports.of(stack), *(native_frames(facts, stack) if unseen else ()))
    own = [child for child in facts.children if not _loader_worker(child)]
    if told is not None and told.syscall in WAITS_FOR_CHILD:
        because += tuple(_own_process(facts, child) for child in own[:SHOWN])
        remedy = UNREAD if own and all(_is_unread(facts, child) for child in own) else remedy
    elif what.startswith(IN_ASYNCIO):
        waits = [(task, where) for task in facts.tasks if (where := user_frame(task)) is not None]
        because += tuple(
            f"its task {task.name} waits in {where.function} at {where.file}:{where.line}"
            for task, where in waits[:SHOWN]
        )
        place = waits[0][1] if len(waits) == 1 else place
    elif told is not None and told.syscall in SLEEPS and thread in (0, facts.pid):
        looks = looks_for(facts, by_place(source))
        because += (f"it looks again and again: `{looks[1]}`",) if looks is not None else ()
    elif FOR_POOL in what and own:
        because += ("a process of a pool that dies takes its task with it: the pool waits on, and nobody is told",)
    return Stuck("SL301", named + what, place, remedy, because, sources)


def _own_process(facts: RankFacts, child: Child) -> str:
    does = "writes into a pipe that the rank itself has to read" if _is_unread(facts, child) else _of_child(child)
    return f"its process {child.name} (pid {child.pid}) {does}"


def _is_unread(facts: RankFacts, child: Child) -> bool:
    """Whether a process is held by a pipe that is full, of which the rank itself has the other end."""
    pids = PIDS.findall(child.kernel.other)
    return child.kernel.syscall in WRITES and str(facts.pid) in pids


def _of_child(child: Child) -> str:
    kernel = child.kernel
    if kernel.state == "R":
        return "computes"
    if kernel.syscall in SLEEPS:
        return "sleeps"
    return _inside(kernel, "")


def _over(facts: RankFacts, stack: Stack | None, place: Location | None, sources: tuple[str, ...]) -> Stuck:
    """Of a rank that has come to the end of its program, and whose process something of its own still keeps."""
    threads = left_running(facts)
    if user_frame(stack) is not None:
        what = f"has come to the end of its program, and {doing(facts, stack)} in what it calls there"
        remedy = "look at what is called at the end: an `atexit` handler, or the end of a context"
        return Stuck("SL301", what, place, remedy, still_running(facts), (*sources, "heartbeat"))
    alone = f", and its {thread_name(threads[0])} still runs" if len(threads) == 1 else ""
    at = next((found for found in (place, *map(user_frame, threads)) if found is not None), None)
    remedy = (
        "see why the program of this rank came to its end before those of its peers: fewer batches, an early return"
    )
    what = f"has come to the end of its program{alone}"
    return Stuck("SL301", what, at, remedy, still_running(facts), (*sources, "heartbeat"))


def still_running(facts: RankFacts) -> tuple[str, ...]:
    """What keeps the process of a rank that has come to the end of its program, in a line each."""
    said = []
    for stack in left_running(facts)[:SHOWN]:
        place = user_frame(stack)
        at = f" ({place.file}:{place.line})" if place is not None else ""
        what = "waits for a lock, a queue or a thread" if waits_for_another(stack) else doing(facts, stack)
        said.append(f"rank {facts.rank}: {thread_name(stack)} {what}{at}")
    if facts.children:
        who = ", ".join(f"{child.name} (pid {child.pid})" for child in facts.children[:SHOWN])
        said.append(f"rank {facts.rank} has processes that still run: {who}")
    return tuple(said)


def asks_store(facts: RankFacts) -> bool:
    """Whether a rank waits for an answer of the store: `store.get` and `store.wait` wait until another rank has set the
    key."""
    asks = any(phase.name.startswith("store.") for phase in facts.phases)
    connected = facts.kernel is not None and facts.kernel.other.startswith(STORE)
    return (asks or connected) and not stopped(facts)


def other_rank(facts: RankFacts, ranks: Iterable[RankFacts]) -> int | None:
    """The rank that alone is at the other end of the call that a rank is in, with its own process or one below it: it
    holds the lock, or has the other end of the pipe."""
    pids = set(map(int, PIDS.findall(facts.kernel.other))) if facts.kernel is not None else set()
    owners = {pid: each.rank for each in ranks for pid in (each.pid, *(child.pid for child in each.children))}
    found = {owners.get(pid) for pid in pids}
    other = found.pop() if len(found) == 1 else None
    return other if other != facts.rank else None


def last(sinks: tuple[Thread, ...], ranks: Mapping[int, RankFacts], size: int) -> tuple[Thread, ...]:
    """Of the ends of all chains those that wait for no other rank in the store, for a lock or at a pipe; all, where
    every one of them does. A rank of which the kernel has said nothing, at a line of the program itself, may wait for
    another in that way: among such ranks there is no end; nor where nothing is known of the rank at the other end, or
    of whoever waits there for input, too.

    Args:
        sinks: rank and thread at the end of each chain.
        ranks: all that is known of ranks.
        size: how many ranks the job has.
    """
    ends = {rank for rank, _ in sinks}

    def goes_on(facts: RankFacts) -> bool:
        return asks_store(facts) or other_rank(facts, ranks.values()) in ends

    def unseen(facts: RankFacts) -> bool:
        other = other_rank(facts, ranks.values())
        if other is not None:
            return not (ranks[other].stacks or ranks[other].stack or ranks[other].kernel)
        if len(ranks) < size and facts.kernel is not None and facts.kernel.other.endswith(TOO):
            return True
        inner = facts.stack.frames[0] if facts.stack is not None and facts.stack.frames else None
        return facts.kernel is None and not facts.phases and inner is not None and is_user_code(inner)

    found = tuple(sink for sink in sinks if not goes_on(ranks[sink[0]])) or sinks
    return () if any(unseen(ranks[rank]) for rank, _ in found) else found


def kernel_of(facts: RankFacts, stack: Stack | None) -> Kernel | None:
    """Where the kernel has seen this thread; of threads that only wait for work it has not been asked."""
    if stack is None or stack.thread in (0, facts.pid):
        return facts.kernel
    return next((call.kernel for call in facts.threads if call.thread == stack.thread), None)


def doing(facts: RankFacts, stack: Stack | None) -> str:
    """What the kernel and the stack say a thread does, in words."""
    kernel = kernel_of(facts, stack)
    at = _inner(stack)
    known = _known(stack)
    if known:
        return f"{known}, {at}".rstrip(" ,")
    if kernel is None:
        return f"is {at}" if at else "does something that could not be looked at"
    if kernel.syscall in SLEEPS:
        return f"sleeps {at}".rstrip()
    if kernel.syscall in POLLS and kernel.other:
        return _inside(kernel, at)
    if kernel.syscall in POLLS and stack is not None and LOOP_OF_ASYNCIO.search(_calls(stack)):
        return f"{IN_ASYNCIO} for what its tasks wait for, {at}".rstrip(" ,")
    if kernel.syscall in POLLS:
        return f"polls for something that does not come, {at}".rstrip(" ,")
    if kernel.syscall in WAITS_FOR_CHILD:
        return f"waits for a process of its own to end, {at}".rstrip(" ,")
    if kernel.syscall in READS | WRITES | RECEIVES | OPENS or kernel.other:
        return _inside(kernel, at)
    if waits_for_another(stack):
        return f"waits for a lock, a queue or a thread, {at}".rstrip(" ,")
    if computes(kernel):
        return f"computes {at}".rstrip()
    if kernel.syscall in LOCKS:
        return f"waits for a lock {at}".rstrip()
    return f"is {at}" if at else "does something else"


def _inside(kernel: Kernel, at: str) -> str:
    return f"is {at}, in {_in_call(kernel)}" if at else f"is in {_in_call(kernel)}"


def _calls(stack: Stack) -> str:
    return " ".join(f"{frame.file}:{frame.function}" for frame in stack.frames[:2])


def _inner(stack: Stack | None) -> str:
    frame = user_frame(stack)
    if frame is None:
        return ""
    if frame.function != "<module>":
        return f"in {frame.function}"
    imported = any(map(imports.is_import, stack.frames)) if stack is not None else False
    return f"at line {frame.line}" + (f" of {frame.file}, which is being imported" if imported else "")


def _known(stack: Stack | None) -> str:
    """What libraries are known to wait for, by the frames above the user's line."""
    for frame in stack.frames if stack is not None else ():
        if is_user_code(frame):
            break
        for file, words in KNOWN:
            if file.search(frame.file):
                return words
        if RESULT_OF_POOL.search(f"{frame.file}:{frame.function}"):
            return FOR_POOL
        if imports.waits_for_another(frame):
            return "waits for a module that another thread imports"
    return ""


def _in_call(kernel: Kernel) -> str:
    call = f"{kernel.syscall}()" if kernel.syscall else kernel.wchan or "an unknown call"
    if kernel.file.startswith("socket:[") and kernel.other:
        return f"{call} on a connection to {kernel.other}"
    there = f" on {kernel.file}" if kernel.file else ""
    if NETWORK.search(kernel.filesystem):
        there += f" ({kernel.filesystem} at {kernel.mount})"
    return call + there + (f": {kernel.other}" if kernel.other else "")


def _details(facts: RankFacts, stack: Stack | None) -> tuple[str, ...]:
    return (*((f"it {doing(facts, stack)}",) if facts.kernel is not None else ()), *native_frames(facts, stack))


def _phase(facts: RankFacts, thread: int) -> Phase | None:
    """The innermost phase that the thread is in."""
    own = [phase for phase in facts.phases if phase.thread in (0, thread)]
    ours = [phase for phase in own if phase.name.startswith(AWAY_PHASES)]
    found = ours or own
    return found[-1] if found else None


def _uninterruptible(facts: RankFacts) -> list[tuple[Child | None, Kernel]]:
    found: list[tuple[Child | None, Kernel]] = []
    if facts.kernel is not None and facts.kernel.state == "D":
        found.append((None, facts.kernel))
    # A child counts where the rank can be waiting for it; an uploader in the background explains nothing.
    waits = facts.kernel is None or facts.kernel.syscall in WAITS_FOR_CHILD | POLLS | READS | LOCKS
    found += [(child, child.kernel) for child in facts.children if waits and child.kernel.state == "D"]
    return found


def _holds_gil(facts: RankFacts) -> bool:
    return facts.beat_age_s is not None and facts.beat_age_s > STALE_BEAT_S


def _loader(facts: RankFacts, phase: Phase, place: Location | None, now: float, sources: tuple[str, ...]) -> Stuck:
    waited = f"{now - phase.since:.0f} s"
    remedy = "look at the data that this line reads; DataLoader(timeout=...) turns such a wait into an error"
    workers = [child for child in facts.children if _loader_worker(child)]
    busy = [child for child in workers if not _idle(child)]
    if busy:
        child = busy[0]
        at = child.kernel
        which = f"its loader worker pid {child.pid} is in {_in_call(at)}" if at.syscall or at.file else ""
        which = which or f"its loader worker pid {child.pid} is busy"
        own = (f"the rank itself waits at {place.file}:{place.line}",) if place else ()
        where = _child_place(child) or place
        what = f"waits for its DataLoader for {waited}"
        return Stuck("SL307", what, where, remedy, (which, *own), sources)
    if workers:
        because = ("its loader workers all wait for work: none of them holds the batch",)
        return Stuck("SL307", f"waits for its DataLoader for {waited}", place, remedy, because, sources)
    remedy = "look at what this line does, in the rank's own process"
    return Stuck("SL307", f"is in its DataLoader for {waited}", place, remedy, _details(facts, facts.stack), sources)


def _loader_worker(child: Child) -> bool:
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


def _child_place(child: Child | None) -> Location | None:
    return user_frame(child.stack) if child is not None else None

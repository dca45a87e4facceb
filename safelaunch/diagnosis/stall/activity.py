"""What a thread does, in words: by its system call, its stack, and what libraries are known to wait for."""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.stall import imports
from safelaunch.diagnosis.stall.endpoints import described
from safelaunch.diagnosis.stall.native import native_frames
from safelaunch.diagnosis.stall.syscalls import (
    LOCKS,
    OPENS,
    POLLS,
    READS,
    RECEIVES,
    SLEEPS,
    WAITS_FOR_CHILD,
    WRITES,
    computes,
)
from safelaunch.diagnosis.waitgraph.threads import left_running, thread_name, waits_for_another
from safelaunch.model import Kernel, RankFacts, Stack

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
PUTS_INTO_QUEUE = re.compile(r"/(?:multiprocessing/queues|queue)\.py:(?:\w+\.)?put$")
FOR_ROOM = "waits for room in a queue, which is full"
IN_ASYNCIO = "waits in asyncio"
LOOP_OF_ASYNCIO = re.compile(r"/selectors\.py:.*/asyncio/base_events\.py:(?:\w+\.)?_run_once$")
UNSEEN = "does something that could not be looked at"
SHOWN = 3  # threads, or processes


def kernel_of(facts: RankFacts, stack: Stack | None) -> Kernel | None:
    """Where the kernel has seen this thread; of threads that only wait for work it has not been asked."""
    if stack is None or stack.thread in (0, facts.pid):
        return facts.kernel
    return next((call.kernel for call in facts.threads if call.thread == stack.thread), None)


def doing(facts: RankFacts, stack: Stack | None) -> str:
    """What the kernel and the stack say a thread does, in words that complete "rank 3 ..."."""
    kernel, at = kernel_of(facts, stack), _inner(stack)
    words = _known(stack)
    if words:
        return f"{words}, {at}".rstrip(" ,")
    if kernel is None:
        return f"is {at}" if at else UNSEEN
    template = next((template for holds, template in ACTIVITIES if holds(kernel, stack)), None)
    if template is None:
        return f"is {at}" if at else "does something else"
    return template.format(at=at).rstrip(" ,") if template else _inside(kernel, at)


def _is_asyncio(stack: Stack | None) -> bool:
    return stack is not None and bool(LOOP_OF_ASYNCIO.search(_calls(stack)))


# What a thread does, by the first of these that holds of its system call and its stack; without words the call says it.
IN_CALL = ""
ACTIVITIES: tuple[tuple[Callable[[Kernel, Stack | None], bool], str], ...] = (
    (lambda kernel, _: kernel.syscall in SLEEPS, "sleeps {at}"),
    (lambda kernel, _: kernel.syscall in POLLS and kernel.peer is not None, IN_CALL),
    (
        lambda kernel, stack: kernel.syscall in POLLS and _is_asyncio(stack),
        IN_ASYNCIO + " for what its tasks wait for, {at}",
    ),
    (lambda kernel, _: kernel.syscall in POLLS, "polls for something that does not come, {at}"),
    (lambda kernel, _: kernel.syscall in WAITS_FOR_CHILD, "waits for a process of its own to end, {at}"),
    (lambda kernel, _: kernel.syscall in READS | WRITES | RECEIVES | OPENS or kernel.peer is not None, IN_CALL),
    (lambda _, stack: waits_for_another(stack), "waits for a lock, a queue or a thread, {at}"),
    (lambda kernel, _: computes(kernel), "computes {at}"),
    (lambda kernel, _: kernel.syscall in LOCKS, "waits for a lock {at}"),
)


def _inside(kernel: Kernel, at: str) -> str:
    return f"is {at}, in {in_call(kernel)}" if at else f"is in {in_call(kernel)}"


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


def library_wait(stack: Stack | None) -> str:
    """What a library that is known for it waits for in this thread, in words; empty for none."""
    return _known(stack)


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
        if PUTS_INTO_QUEUE.search(f"{frame.file}:{frame.function}"):
            return FOR_ROOM
        if imports.waits_for_another(frame):
            return "waits for a module that another thread imports"
    return ""


def in_call(kernel: Kernel) -> str:
    call = f"{kernel.syscall}()" if kernel.syscall else kernel.wchan or "an unknown call"
    other_end = described(kernel)
    if kernel.file.startswith("socket:[") and other_end:
        waits = kernel.peer is not None and kernel.peer.kind == "listener"
        return f"{call} for {other_end}" if waits else f"{call} on a connection to {other_end}"
    there = f" on {kernel.file}" if kernel.file else ""
    if NETWORK.search(kernel.filesystem):
        there += f" ({kernel.filesystem} at {kernel.mount})"
    return call + there + (f": {other_end}" if other_end else "")


def details(facts: RankFacts, stack: Stack | None) -> tuple[str, ...]:
    """What else is known of it, a line each."""
    return (*((f"it {doing(facts, stack)}",) if facts.kernel is not None else ()), *native_frames(facts, stack))


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

"""Stacks out of what tools say: py-spy's JSON, faulthandler's text. Our own frames and threads are not shown."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from safelaunch.model import Location, Stack

FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)$')
OWN = re.compile(r"/safelaunch/(worker/|(__init__|pulse|black_box)\.py$)")
BEAT = "safelaunch-beat"

# What is kept of a process that has more than any program: Python itself stops at 1,000 frames, and names a file by a
# path of 4,096 characters at most.
THREADS, FRAMES, WIDTH = 512, 1000, 4096


def parse_fault(text: str) -> Stack:
    """The stack of the thread that crashed. faulthandler marks it `Current thread`; a thread without Python state
    is not listed, and then the main thread, which comes last, is the one that tells most."""
    blocks = _blocks(text)
    block = next((block for block in blocks if block.startswith("Current thread")), blocks[-1])
    return Stack(_foreign(_frames(block)), "faulthandler", text)


def from_faulthandler(text: str, pid: int) -> tuple[Stack, ...]:
    """All threads of a living rank. They have the ids of pthreads here, which nothing else knows, and no names, but
    the last is the main thread."""
    blocks = [block for block in _blocks(text) if not _is_ours("", _frames(block))]
    stacks = []
    for number, block in enumerate(blocks, 1):
        who = (pid, "MainThread") if number == len(blocks) else (0, "")
        stacks.append(Stack(_foreign(_frames(block)), "faulthandler", block, *who))
    return tuple(stacks)


def from_py_spy(threads: list[dict[str, Any]], native: bool = False) -> tuple[Stack, ...]:
    """All threads that run Python."""
    stacks = []
    for thread in threads[:THREADS]:
        shown = thread["frames"][:FRAMES]
        frames = tuple(Location(f["filename"][-WIDTH:], int(f["line"]), f["name"][:WIDTH]) for f in shown)
        main = "MainThread" if thread.get("os_thread_id") == thread.get("pid") else ""
        name = str(thread.get("thread_name") or main)  # py-spy has names from `threading`, if the program imports it
        if _is_ours(name, frames):
            continue
        frames = _foreign(frames)
        state = "active" if thread.get("active") else "idle"
        lines = [f"Thread {thread.get('os_thread_id') or thread.get('thread_id')} ({state}): {name}"]
        lines += [f"    {f.function} ({f.file}:{f.line})" if f.line else f"    {f.function} ({f.file})" for f in frames]
        text = "\n".join(lines) + "\n"
        stacks.append(Stack(frames, "py-spy", text, int(thread.get("os_thread_id") or 0), name, native))
    return tuple(stacks)


def chosen(stacks: tuple[Stack, ...], thread: int, pid: int) -> Stack | None:
    """The stack of the thread `thread`, else of the main thread, with the text of all. A thread that runs no Python
    has made its calls for the main thread, in a backward pass."""
    if not stacks:
        return None
    by_thread = {stack.thread: stack for stack in stacks if stack.thread and stack.frames}
    named = [stack for stack in stacks if stack.name == "MainThread"]
    found = by_thread.get(thread) or by_thread.get(pid) or (named or stacks)[0]
    return dataclasses.replace(found, text="".join(stack.text for stack in stacks))


def _blocks(text: str) -> list[str]:
    return re.split(r"^(?=(?:Current thread|Thread) 0x)", text, flags=re.MULTILINE)[1:] or [text]


def _frames(block: str) -> tuple[Location, ...]:
    return tuple(
        Location(match["file"], int(match["line"]), match["function"])
        for line in block.splitlines()
        if (match := FRAME.match(line))
    )


def _foreign(frames: tuple[Location, ...]) -> tuple[Location, ...]:
    return tuple(frame for frame in frames if not OWN.search(frame.file))


def _is_ours(name: str, frames: tuple[Location, ...]) -> bool:
    """Whether a thread is our beat: by its name, or, where none is known, because beside the library that starts
    threads it runs our code only."""
    if name:
        return name == BEAT
    rest = [frame for frame in frames if not frame.file.endswith("/threading.py")]
    return bool(rest) and not _foreign(tuple(rest))

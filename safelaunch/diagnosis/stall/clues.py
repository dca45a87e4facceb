"""What else tells of what a thread waits for, beside its system call and its stack."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.stall import loader
from safelaunch.diagnosis.stall.activity import FOR_POOL, IN_ASYNCIO, SHOWN, library_wait
from safelaunch.diagnosis.stall.look import Look
from safelaunch.diagnosis.stall.processes import UNREAD, is_unread, own_process
from safelaunch.diagnosis.stall.syscalls import SLEEPS, WAITS_FOR_CHILD
from safelaunch.diagnosis.waitgraph.flags import looks_for
from safelaunch.diagnosis.waitgraph.threads import NOBODY, waits_for_another
from safelaunch.model import Child, Location, RankFacts

LEFT_BEHIND = "if no process still holds that lock file, remove it: a process that was killed leaves it behind"
NO_THREAD = (
    "see which thread was to end this wait: it has ended, or was never started; hand what it raised on to the one "
    "that waits"
)


@dataclass(frozen=True)
class Clue:
    """What else tells of what a thread waits for: lines, a place of its own, what to do where that is another thing."""

    lines: tuple[str, ...] = ()
    place: Location | None = None
    remedy: str = ""


def _of_processes(look: Look) -> Clue | None:
    """It waits for processes of its own: what these do."""
    if look.syscall not in WAITS_FOR_CHILD:
        return None
    own = _own_processes(look.facts)
    unread = bool(own) and all(is_unread(look.facts, child) for child in own)
    return Clue(tuple(own_process(look.facts, child) for child in own[:SHOWN]), remedy=UNREAD if unread else "")


def _of_tasks(look: Look) -> Clue | None:
    """It waits in asyncio: where its tasks are."""
    if not look.does.startswith(IN_ASYNCIO):
        return None
    waits = [(task, where) for task in look.facts.tasks if (where := user_frame(task)) is not None]
    lines = (f"its task {task.name} waits in {at.function} at {at.file}:{at.line}" for task, at in waits[:SHOWN])
    return Clue(tuple(lines), waits[0][1] if len(waits) == 1 else None)


def _of_flag(look: Look) -> Clue | None:
    """It sleeps in a loop: what it looks for in between."""
    if look.syscall not in SLEEPS or look.thread not in (0, look.facts.pid):
        return None
    looks = looks_for(look.facts, by_place(look.source))
    return Clue((f"it looks again and again: `{looks[1]}`",) if looks is not None else ())


def _of_pool(look: Look) -> Clue | None:
    if FOR_POOL not in look.does or not _own_processes(look.facts):
        return None
    return Clue(("a process of a pool that dies takes its task with it: the pool waits on, and nobody is told",))


def _of_lock_file(look: Look) -> Clue | None:
    """A library waits until a lock file goes: which one."""
    path = next((path for name, path in look.facts.looks_at if not name), "")
    if "lock" not in library_wait(look.stack):
        return None
    return Clue((f"the lock file is {path}",) if path else (), remedy=LEFT_BEHIND)


def _of_no_thread(look: Look) -> Clue | None:
    """Whoever was to end its wait is gone. A lock may be its own."""
    gone = any(line.endswith(NOBODY) for line in look.chain.lines)
    return Clue(remedy=NO_THREAD) if gone and waits_for_another(look.stack) and not library_wait(look.stack) else None


CLUES = (_of_processes, _of_tasks, _of_lock_file, _of_flag, _of_pool, _of_no_thread)


def _own_processes(facts: RankFacts) -> list[Child]:
    return [child for child in facts.children if not loader.is_worker(child)]

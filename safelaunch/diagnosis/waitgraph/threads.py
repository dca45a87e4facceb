"""Threads of one rank that wait for one another: who holds the lock, and at which thread the chain ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.lines import Lines, by_place
from safelaunch.diagnosis.waitgraph.calls import stack_of
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Resource
from safelaunch.diagnosis.wording import at
from safelaunch.model import Case, Location, RankFacts, SourceLine, Stack

LOCKS = {"", "futex"}  # system calls of a thread that waits for another one; nothing where the kernel was not asked
HANDS_OVER = re.compile(r"/(?:queue|concurrent/futures/\w+|multiprocessing/pool)\.py$")
POOL = re.compile(r"/concurrent/futures/thread\.py$")
THREADING = re.compile(r"/threading\.py$")
WAITING = {"wait", "wait_for", "get", "put", "acquire", "join", "result", "_wait_for_tstate_lock", "__enter__"}
WITH = re.compile(r"^(?:async\s+)?with\s+(?P<items>[^:]+):")
ACQUIRE = re.compile(r"(?P<lock>[\w.\[\]'\"]+)\.acquire\(")
# Names that mean one object in all of a module: not `self.lock`, of which every instance has its own.
OF_MODULE = re.compile(r"\w+|[A-Z]\w*(?:\.\w+)+")
OWN = re.compile(r"^self\.(?=\w+\.)")
CONSTANT = re.compile(r"_*[A-Z]")
RELEASED_BY_OTHERS = re.compile(r"\.acquire\([^)]*(?:timeout|blocking)")
STEPS = 8
THREAD = Kind("{}")
Lock = tuple[str, str]  # file and expression
NOBODY = "nobody can end that wait"
OURS = "safelaunch-"  # how threads of our own are called


@dataclass(frozen=True)
class Chain:
    """Where following who waits for whom has led: the thread that tells why, a line for each step, and whether the
    threads hold the very locks that they wait for (then nobody can end it)."""

    end: Stack | None
    lines: tuple[str, ...] = ()
    circle: bool = False


def follow(facts: RankFacts, stack: Stack | None, source: Iterable[SourceLine] = ()) -> Chain:
    """From a thread that waits for another one to the one that waits for none."""
    return _follow(facts, stack, by_place(source))


def waits(case: Case) -> Iterator[ExternalWait]:
    """Main threads that wait for another thread of their rank, each with the one at the end of the chain."""
    lines = by_place(case.source)
    for facts in case.ranks:
        own = stack_of(facts, facts.pid)
        end = _follow(facts, own, lines).end
        if own is not None and end is not None and end.thread != own.thread:
            thread = Resource(THREAD, thread_name(end))
            yield ExternalWait(facts.rank, own.thread, thread, "stack", on=facts.rank, on_thread=end.thread)


def _follow(facts: RankFacts, stack: Stack | None, lines: Lines) -> Chain:
    seen: list[Stack] = []
    told: list[str] = []
    steps = []  # what else a thread waits for is concluded from there being one other thread: that proves no circle
    while stack is not None and len(seen) < STEPS:
        seen.append(stack)
        step = _next(facts, stack, lines)
        told += [step.text] if step.text else []
        steps.append(step)
        if step.following is None:
            break
        again = [number for number, each in enumerate(seen) if each.thread == step.following.thread]
        if again:
            round_ = steps[again[0] :]
            circle = all(each.lock and each.same for each in round_)
            return Chain(seen[0] if all(each.lock for each in round_) else seen[-1], tuple(told), circle)
        stack = step.following
    return Chain(seen[-1] if seen else None, tuple(told))


@dataclass(frozen=True)
class _Step:
    """The thread that one waits for (itself, where it holds the lock), why that is so, whether a lock tells, and
    whether it is the same lock for certain, not one that is written the same way."""

    following: Stack | None = None
    text: str = ""
    lock: bool = False
    same: bool = False


def waits_for_thread(frame: Location) -> bool:
    """Whether a frame of the standard library waits for what another thread does."""
    known = HANDS_OVER.search(frame.file) or THREADING.search(frame.file)
    return bool(known) and frame.function.rpartition(".")[2] in WAITING


def waits_for_another(stack: Stack | None) -> bool:
    """Whether a thread waits for what another one does: near the top of its stack."""
    return stack is not None and any(map(waits_for_thread, stack.frames[:3]))


def _next(facts: RankFacts, stack: Stack, lines: Lines) -> _Step:
    """The thread that one waits for: for its end or its work, or for a lock that it holds."""
    others = [each for each in facts.stacks if each.thread != stack.thread and not each.native]
    alone = "" if others else f"no other thread of rank {facts.rank} runs Python: {NOBODY}"
    wait = f"{_who(facts, stack)} waits{at(user_frame(stack))} for"
    if _is_for_a_thread(stack):
        return _at_work(others, wait, alone)
    if waits_for_another(stack):
        return _Step(None, alone)
    wanted = wanted_locks(facts, stack, lines)
    return _holder(facts, stack, others, wanted, lines, wait, alone) if wanted else _Step()


def _at_work(others: list[Stack], wait: str, alone: str) -> _Step:
    """The one thread that is at work where another one waits for the end of a thread, or for what one hands over. Those
    that wait for threads themselves lead to one that does not."""
    busy = [each for each in others if user_frame(each) is not None or any(map(_given_work, each.frames))]
    ends = [each for each in busy if not _is_for_a_thread(each)]
    if len(busy) == 1:
        return _Step(busy[0], f"{wait} {thread_name(busy[0])}")
    if busy and len(ends) == 1:
        return _Step(ends[0], f"{wait} other threads, of which {thread_name(ends[0])} alone does not wait for one")
    return _Step(None, alone)


def _holder(
    facts: RankFacts, stack: Stack, others: list[Stack], wanted: list[Lock], lines: Lines, wait: str, alone: str
) -> _Step:
    """The thread that holds the lock for which one waits; it may be itself."""
    found = []
    for each in (stack, *others):
        held = held_locks(facts, each, lines, stack)
        found += [(each, lock, taken) for lock in wanted if (taken := _taken(lock, held)) is not None][:1]
    if not found:
        return _Step(None, alone)
    sure = [one for one in found if one[2].same]
    elsewhere = [one for one in found if one[0] is not stack]
    each, lock, taken = (sure or elsewhere or found)[0]
    if sure:
        own = f"it holds itself since line {taken.line}"
        whose = own if each is stack else f"{thread_name(each)} took at {lock[0]}:{taken.line}"
        return _Step(each, f"{wait} `{lock[1]}`, which {whose}", lock=True, same=True)
    who = "it took itself" if each is stack else f"{thread_name(each)} took"
    text = f"{wait} `{lock[1]}`: one written the same way {who} at {lock[0]}:{taken.line}, it may be another lock"
    return _Step(each if len(elsewhere) == 1 else None, text, lock=True)


@dataclass(frozen=True)
class _Taken:
    """The line at which a thread took a lock, and whether that lock is the one that is waited for, for certain."""

    line: int
    same: bool


def wanted_locks(facts: RankFacts, stack: Stack, lines: Lines) -> list[Lock]:
    """The locks that a thread may wait for at its innermost line, by what is written there."""
    frame = stack.frames[0] if stack.frames else None
    line = lines.get((frame.file, frame.line)) if frame is not None else None
    if frame is None or line is None or not is_user_code(frame):
        return []
    if stack.thread == facts.pid and facts.kernel is not None and facts.kernel.syscall not in LOCKS:
        return []
    entered = WITH.match(line.text)
    if entered:
        # What is called there (`open(path)`, `torch.no_grad()`) is made there: nobody else holds it.
        return [(frame.file, item) for item in reversed(_items(entered)) if not item.endswith(")")]
    called = ACQUIRE.search(line.text)
    return [(frame.file, called["lock"])] if called and not RELEASED_BY_OTHERS.search(line.text) else []


def held_locks(facts: RankFacts, stack: Stack, lines: Lines, waiting: Stack) -> dict[Lock, _Taken]:
    """The locks that a thread is inside of."""
    found: dict[Lock, _Taken] = {}
    # A thread that is in another call than that of a lock has come into the block of its `with`.
    inside = any(call.thread == stack.thread and call.kernel.syscall not in LOCKS for call in facts.threads)
    for frame in stack.frames:
        line = lines.get((frame.file, frame.line))
        if line is None or not is_user_code(frame):
            continue
        own = frame is waiting.frames[0]
        for number, text in line.holds:
            # At the line of the `with` itself nothing is certain, but that what it names twice is taken twice.
            sure = inside or number != frame.line or frame != stack.frames[0]
            if sure or (stack is waiting and _twice(line, text)):
                taken = _Taken(number, own or _of_module(text, frame, waiting.frames[0]))
                known = found.get((frame.file, text), taken)
                found[frame.file, text] = known if known.same else taken
    return found


def _taken(lock: Lock, held: dict[Lock, _Taken]) -> _Taken | None:
    """How a lock is held: by the same name, or by that of an object which was handed in (`self.sink.lock` here is
    `sink.lock` there, perhaps)."""
    if lock in held:
        return held[lock]
    alike = (
        taken for (file, text), taken in held.items() if (file, OWN.sub("", text)) == (lock[0], OWN.sub("", lock[1]))
    )
    first = next(alike, None)
    return None if first is None else _Taken(first.line, same=False)


def _of_module(text: str, frame: Location, other: Location) -> bool:
    """Whether two frames mean the same object by a name. What a function that is called twice calls `lock` may be an
    argument of each call, or its own variable."""
    if not OF_MODULE.fullmatch(text):
        return False
    return bool(CONSTANT.match(text)) or frame.function != other.function or frame.function == "<module>"


def _twice(line: SourceLine, text: str) -> bool:
    entered = WITH.match(line.text)
    return entered is not None and _items(entered).count(text) > 1


def _items(entered: re.Match[str]) -> list[str]:
    """What a `with` statement names."""
    items = re.split(r",\s*(?![^()\[\]]*[)\]])", entered["items"])
    return [item.partition(" as ")[0].strip() for item in items]


def _given_work(frame: Location) -> bool:
    """Whether a thread of a pool is at work: without work it is in no such frame."""
    return bool(POOL.search(frame.file)) and frame.function.rpartition(".")[2] == "run"


def _is_for_a_thread(stack: Stack) -> bool:
    """Whether a thread waits for the end of another one, or for what one hands over."""
    return any(map(_for_a_thread, stack.frames[:4]))


def _for_a_thread(frame: Location) -> bool:
    name = frame.function.rpartition(".")[2]  # py-spy gives `Thread.join` from Python 3.11 on
    joins = bool(THREADING.search(frame.file)) and name in ("join", "_wait_for_tstate_lock")
    return joins or (bool(HANDS_OVER.search(frame.file)) and name in WAITING)


def _who(facts: RankFacts, stack: Stack) -> str:
    return "its main thread" if stack.thread == facts.pid else f"its {thread_name(stack)}"


def thread_name(stack: Stack) -> str:
    """`thread loader-3`, or its number where it has no name."""
    return "the main thread" if stack.name == "MainThread" else f"thread {stack.name or stack.thread}"


def left_running(facts: RankFacts) -> list[Stack]:
    """The threads that may keep the process of a rank whose main thread has left the program: those of the program,
    else all others."""
    others = [
        stack
        for stack in facts.stacks
        if stack.thread != facts.pid and not stack.native and stack.frames and not stack.name.startswith(OURS)
    ]
    return [stack for stack in others if user_frame(stack) is not None] or others

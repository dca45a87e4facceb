"""Where a rank stands that was looked at twice from outside, and whether it moved in between."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from safelaunch.diagnosis.frames import is_user_code, user_frame
from safelaunch.diagnosis.stall.activity import doing
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import (
    FILE_LOCKS,
    OPENS,
    POLLS,
    READS,
    RECEIVES,
    SLEEPS,
    WAITS_FOR_CHILD,
    WRITES,
)
from safelaunch.diagnosis.waitgraph.calls import BACKWARD, IDLE_CPU, stopped
from safelaunch.diagnosis.wording import at, names
from safelaunch.model import Case, Kernel, Location, Phase, RankFacts, Stack

IDLE_BYTES = 64 << 10  # that a rank moves while it waits

# torch sleeps 1 to 10 ms at a time in a blocking wait for NCCL (ProcessGroupNCCL.cpp, kSynchronizeBusyWaitMillis), and
# that looks like a `sleep` at the user's line. Programs that poll sleep longer.
TORCH_POLLS = 50  # sleeps per second

C10D = re.compile(r"/torch/distributed/distributed_c10d\.py$")
WAITS = re.compile(r"/torch/distributed/(?!checkpoint/|elastic/|run\.py|launch\.py)|/torch/nn/parallel/")
PASSED = re.compile(r"/c10d_logger\.py$|/torch/(?:_ops|utils/_contextlib|_dynamo/.*)\.py$|/contextlib\.py$")
LOADER = re.compile(r"/torch/utils/data/")
CHECKPOINT = re.compile(r"/torch/serialization\.py$|/torch/distributed/checkpoint/")
HANDED = re.compile(r"/(?:threading|queue|concurrent/futures/\w+|multiprocessing/\w+)\.py$")
DEBUGGER = re.compile(r"/(?:pdb|bdb|cmd|code)\.py$|/(?:debugpy|pydevd|_pydevd_bundle|IPython|ipdb|pudb)/")
TERMINAL = re.compile(r"^/dev/(?:tty|pts/|console)")
ON_FILES = READS | WRITES | OPENS | FILE_LOCKS | {"mmap", "statx", "newfstatat", "stat"}
# A rank goes through it once: whoever is in it twice has not moved, also where it tries to connect again and again.
INIT = "init_process_group"


@dataclasses.dataclass(frozen=True)
class Waiter:
    """A rank inside a call of torch.distributed: which, and at which line of the program."""

    facts: RankFacts
    op: str
    place: Location | None


def is_same(facts: RankFacts) -> bool:
    """Whether both looks found the rank at the same place."""
    return facts.stack is not None and facts.earlier is not None and facts.stack.frames == facts.earlier.frames


def stays_inside(facts: RankFacts) -> bool:
    """Whether a rank was inside one and the same call of torch.distributed all the time."""
    if not is_same(facts) or not (op := inside(facts.stack)):
        return False
    kernel = facts.kernel
    return op == INIT or kernel is None or not kernel.switches


def has_moved(facts: RankFacts) -> bool:
    """Whether a rank went on between the looks: to another line, or, as a loop does, by waking and moving data."""
    kernel = facts.kernel
    if facts.stack is None or facts.earlier is None or kernel is None or stopped(facts):
        return False
    if is_same(facts) and inside(facts.stack) == INIT:
        return False
    return not is_same(facts) or bool(kernel.switches and kernel.io_bytes)


def tries_to_connect(facts: RankFacts) -> bool:
    """Whether a rank in init_process_group sleeps between attempts to reach the store: one that has reached it waits
    for an answer instead."""
    kernel = facts.kernel
    return (
        kernel is not None and kernel.syscall in SLEEPS and waiter_of(facts) is not None and inside(facts.stack) == INIT
    )


def is_busy(facts: RankFacts) -> bool:
    """Whether a rank is seen to get on with something."""
    if facts.stack is not None and facts.earlier is not None and not is_same(facts):
        return True
    kernel = facts.kernel
    return kernel is not None and kernel.worked(IDLE_CPU, IDLE_BYTES)


def waiter_of(facts: RankFacts) -> Waiter | None:
    """Where a rank waits inside torch.distributed: in its main thread, or in the one that this one waits for."""
    stack = facts.stack
    if stack is None or not is_same(facts):
        return None
    if not inside(stack) and stack.frames and HANDED.search(stack.frames[0].file):
        stack = next((other for other in facts.stacks if not other.native and inside(other)), stack)
    op = inside(stack)
    return Waiter(facts, op, user_frame(stack)) if op else None


def inside(stack: Stack | None) -> str:
    """The call of torch.distributed that a thread is in, as the user knows it; nothing where it is in none."""
    library = []
    for frame in stack.frames if stack is not None else ():
        if is_user_code(frame):
            break
        library.append(frame)
    telling = [frame for frame in library if not PASSED.search(frame.file)]
    if not telling:
        return ""
    if telling[0].function == BACKWARD:
        return "backward"
    if not WAITS.search(telling[0].file) or any(CHECKPOINT.search(frame.file) for frame in library[:1]):
        return ""
    calls = [frame.function for frame in telling if C10D.search(frame.file)]
    return calls[-1] if calls else telling[-1].function


def waits_for_a_person(facts: RankFacts) -> str:
    """Why a rank waits for somebody at a keyboard."""
    kernel = facts.kernel
    if kernel is not None and kernel.tracer:
        return f"rank {facts.rank} is traced by pid {kernel.tracer} (a debugger)"
    if kernel is not None and kernel.syscall == "read" and TERMINAL.search(kernel.file):
        return f"rank {facts.rank} reads from {kernel.file}"
    if facts.stack is not None and any(DEBUGGER.search(frame.file) for frame in facts.stack.frames):
        return f"rank {facts.rank} is in a debugger"
    return ""


def is_explained(facts: RankFacts, case: Case) -> bool:
    """Whether it is seen that a rank waits for something else than its peers.

    A call of torch that C++ makes from the user's own line (`work.wait()`, `loss.item()`, `store.get()`) leaves no
    frame and waits in a futex, a socket or a GPU; none of these is an explanation.
    """
    stack, kernel = facts.stack, facts.kernel
    if kernel is None or stack is None or not stack.frames or facts.earlier is None:
        return False
    inner = stack.frames[0]
    if kernel.state == "D" or _is_in_own_call(kernel) or any(LOADER.search(frame.file) for frame in stack.frames):
        return True
    if kernel.syscall in SLEEPS | POLLS and is_user_code(inner):
        return _sleeps_itself(inner, kernel, case)
    if kernel.syscall in POLLS | RECEIVES | READS:
        return not is_user_code(inner) and "/torch/" not in inner.file
    return bool(HANDED.search(inner.file)) and not any(map(inside, facts.stacks))


def _is_in_own_call(kernel: Kernel) -> bool:
    """Whether a thread is in a call that no wait of torch makes: on a file or a pipe, for a process, for a signal."""
    on_file = kernel.syscall in ON_FILES and kernel.file.startswith(("/", "pipe:"))
    return on_file or kernel.syscall in WAITS_FOR_CHILD | {"pause"}


def _sleeps_itself(line: Location, kernel: Kernel, case: Case) -> bool:
    """Whether it is the program that sleeps at a line of its own, and not torch that polls there."""
    texts = {(own.file, own.line): own.text for own in case.source}
    slow = (kernel.switches or 0) <= TORCH_POLLS * (kernel.since_s or 1.0)
    return "sleep" in texts.get((line.file, line.line), "") or (kernel.syscall in SLEEPS and slow)


def reason_of(facts: RankFacts, case: Case) -> Stall:
    """As the rules of watched runs tell it. What phase the rank is in, its stack says."""
    since = facts.kernel.since_s if facts.kernel is not None and facts.kernel.since_s else 0.0
    frames = facts.stack.frames if facts.stack is not None else ()
    kinds = (("loader", LOADER), ("checkpoint", CHECKPOINT))
    phase = next((name for name, files in kinds if any(files.search(frame.file) for frame in frames)), "")
    phases = (Phase(phase, 0.0),) if phase else ()
    return stall_of(dataclasses.replace(facts, phases=phases), facts.pid, since, case.source, at_least=True)


def places(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    """Where ranks are, and what they do there: one line for those that are alike."""
    alike: dict[str, list[int]] = {}
    for facts in ranks:
        alike.setdefault(place(facts), []).append(facts.rank)
    return tuple(f"{names(ranks)}: {text}" for text, ranks in alike.items())


def place(facts: RankFacts) -> str:
    frame = user_frame(facts.stack)
    if facts.stack is None:
        return "its stack could not be had"
    op = inside(facts.stack)
    what = f"in {op}" if op else doing(facts, facts.stack)
    return what + at(frame)


def waiting_lines(waiters: Iterable[Waiter]) -> tuple[str, ...]:
    sites: dict[tuple[str, Location | None], list[int]] = {}
    for waiter in waiters:
        sites.setdefault((waiter.op, waiter.place), []).append(waiter.facts.rank)
    return tuple(
        f"{names(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {op}" + at(place)
        for (op, place), ranks in sorted(sites.items(), key=lambda item: -len(item[1]))
    )

"""Crashes: one or more ranks ended, or raised, and nobody had asked them to."""

from __future__ import annotations

import dataclasses
import signal

from safelaunch.diagnosis.crash import bus_error
from safelaunch.diagnosis.crash.between_calls import between, sizes, waits_for_functional
from safelaunch.diagnosis.crash.first_failure import (
    NATIVE_SIGNALS,
    SIGKILL,
    Failure,
    aborted_inside,
    broken_by_gloo,
    exit_call,
    failures,
    left_group,
    roots,
    unexplained,
)
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import stands_inside
from safelaunch.diagnosis.waitgraph.record import SIGABRT, left_cleanly
from safelaunch.diagnosis.wording import at, last_collective, names, one_line
from safelaunch.model import Case, Space, Verdict
from safelaunch.sizes import plural, size

LIMIT_SIGNALS = {24, 25}  # SIGXCPU, SIGXFSZ: sent by the kernel for RLIMIT_CPU and RLIMIT_FSIZE


def out_of_memory(view: View) -> Verdict | None:
    """The kernel's OOM killer ended a rank with SIGKILL, or a rank raised an exception because it got no memory.

    Example:
        error[SL404]: rank 1 ran out of memory: the kernel's OOM killer ended it with SIGKILL

    How it was concluded: one of these holds, and no other failure explains it:
    - the rank died of SIGKILL, and the `oom_kill` counter of the memory cgroup grew during the run;
    - an exception says so (MemoryError, `DefaultCPUAllocator: can't allocate memory`, `Cannot allocate memory`);
    - in logs, Slurm or Kubernetes says so.

    The counter does not say whom the kernel killed. Confidence is medium where it counts fewer kills than ranks died.
    An exception comes with the rank's own limit (ulimit -v), or with what it had used and what the host had left.

    What to do: lower the batch size, the number or prefetch of DataLoader workers, or pinned memory. Or ask the
    scheduler for more memory.

    What it is not: the memory of a GPU (SL420), /dev/shm (SL421), or a loader worker that was killed (SL429). A SIGKILL
    without a count is SL403.
    """
    culprits = [root for root in roots(view.case) if _signal(root) == SIGKILL]
    if not culprits or not view.case.oom_kills:
        return None
    who = names(failure.rank for failure in culprits)
    return crash_verdict(
        view,
        "SL404",
        f"{who} ran out of memory: the kernel's OOM killer ended {'it' if len(culprits) == 1 else 'them'} with SIGKILL",
        culprits,
        because=(
            f"the memory cgroup counts {plural(view.case.oom_kills, 'OOM kill')} during this run",
            *last_call(culprits),
        ),
        remedy="use less host memory (batch, loader workers, prefetch, pinned memory) or ask for more",
        confidence="high" if view.case.oom_kills >= len(culprits) else "medium",
    )


def killed(view: View) -> Verdict | None:
    """A rank was ended by a signal that a process sent: another one, or its own.

    Example:
        error[SL403]: rank 1 was killed by SIGKILL

    How it was concluded: the exit status names a signal that a program does not get from its own fault, such as SIGKILL
    or SIGTERM. No other failure explains it. Of SIGKILL it is said whether the memory cgroup counted an OOM kill. Where
    that counter cannot be read, confidence is medium. SIGXCPU and SIGXFSZ come from the kernel, for a limit of the
    process itself (ulimit -t, -f).

    What to do: look for `Out of memory` in the kernel log, and for the scheduler's limits. Look also for a person or a
    script with `kill`, or for such a call in the program.

    What it is not: a SIGKILL while the OOM counter grew (SL404), or a crash in the rank's own code (SL405, SL406).
    """
    culprits = [root for root in roots(view.case) if _signal(root) and _signal(root) not in NATIVE_SIGNALS]
    if not culprits or (view.case.oom_kills and any(_signal(root) == SIGKILL for root in culprits)):
        return None
    number = _signal(culprits[0])
    who, was = names(failure.rank for failure in culprits), "was" if len(culprits) == 1 else "were"
    memory = {None: "the OOM counter of the memory cgroup cannot be read", 0: "no OOM kill was counted during this run"}
    because = (memory[view.case.oom_kills],) if number == SIGKILL and view.case.oom_kills in memory else ()
    return crash_verdict(
        view,
        "SL403",
        f"{who} {was} ended by {signal_name(number)}, for passing a limit of its own (ulimit -a)"
        if number in LIMIT_SIGNALS
        else f"{who} {was} killed by {signal_name(number)}",
        culprits,
        because=(*because, *last_call(culprits)),
        remedy="see the logs of the kernel and the scheduler for who sent it; the program may have sent it to itself",
        confidence="medium" if number == SIGKILL and view.case.oom_kills is None else "high",
    )


def native_crash(view: View) -> Verdict | None:
    """A rank ended by a signal of its own fault: it crashed (SL405) or aborted (SL406), unless it may be a victim."""
    culprits = [root for root in roots(view.case) if _signal(root) in NATIVE_SIGNALS]
    if not culprits or may_be_a_victim(view.case, culprits) or _may_have_lost_a_peer(view.case, culprits):
        return None
    if _gloo_may_have_aborted(view.case, culprits):
        return _aborted_inside_gloo(view, culprits)
    first, shm = culprits[0], view.case.shm
    number = _signal(first)
    if number == signal.SIGBUS and shm is not None and shm.full:
        return _shared_memory_full(view, culprits, shm)
    return aborted(view, culprits) if number == SIGABRT else segfault(view, culprits)


def segfault(view: View, culprits: list[Failure]) -> Verdict:
    """A rank crashed in native code: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP or SIGSYS.

    Example:
        error[SL405]: rank 1 crashed in native code (SIGSEGV)

    How it was concluded: the exit status names the signal, and no other failure explains it. The Python stack is the
    one that faulthandler wrote at that moment. The location is its innermost line of the user's program.

    What to do: look at the native call at the top of the stack. The whole stack is in the evidence folder.

    A SIGBUS comes from a memory map, such as `numpy.memmap`: most often the file has become shorter since.

    What it is not: an abort, with which a library ends the process itself (SL406). A SIGBUS while /dev/shm is full is
    SL421.
    """
    number = _signal(culprits[0])
    bus = number == signal.SIGBUS
    what = bus_error.WHAT if bus else f"crashed in native code ({signal_name(number)})"
    return crash_verdict(
        view,
        "SL405",
        f"{names(failure.rank for failure in culprits)} {what}",
        culprits,
        location=user_frame(culprits[0].facts.fault),
        because=(*(bus_error.WHY if bus else ()), *_at_its_end(culprits), *last_words(culprits[0])),
        remedy=bus_error.REMEDY if bus else "look at the native call at the top of the stack",
    )


def aborted(view: View, culprits: list[Failure]) -> Verdict:
    """A rank aborted: a library, or the program, ended the process with SIGABRT.

    Example:
        error[SL406]: rank 1 aborted (SIGABRT)

    How it was concluded: the exit status names the signal, and no other failure explains it. The Python stack is the
    one that faulthandler wrote at that moment. Who aborts may be a victim:

    - An abort inside a collective is left out where another rank had left or failed before it, or within 0.5 s after
      it.
    - Several ranks that abort without a stack are not named (SL499). Nor is one after a rank that had left in good
      order.
    - gloo aborts whichever rank receives what it did not expect. Where the others lose their connections in gloo, the
      line of each rank is shown, and nobody is named. Where its peers were in a later call, the last one that all had
      finished is shown instead: functional collectives are in no record. Sizes are told where its output is kept.

    What to do: read the last lines that the rank wrote to stderr. An abort often prints its reason just before.

    What it is not: a memory fault (SL405), or an abort after the program had ended (SL413). Where torch's watchdog
    aborted a rank after a timeout, the verdict is that of the hang, if it names a rank.
    """
    return crash_verdict(
        view,
        "SL406",
        f"{names(failure.rank for failure in culprits)} aborted ({signal_name(SIGABRT)})",
        culprits,
        location=user_frame(culprits[0].facts.fault),
        because=(*_at_its_end(culprits), *last_words(culprits[0])),
        remedy="its last words on stderr say why",
    )


def _aborted_inside_gloo(view: View, culprits: list[Failure]) -> Verdict:
    """Who aborted may only have received what did not fit."""
    facts = [failure.facts for failure in culprits]
    found = between(view.case, facts[0].rank) if len(facts) == 1 else None
    kind = "functional collective" if all(map(waits_for_functional, facts)) else "collective"
    where = f" {found.told}" if found is not None else ""
    read = "`Received data size doesn't match expected size` on its stderr says so"
    return crash_verdict(
        view,
        "SL406",
        f"{names(one.rank for one in facts)} aborted (SIGABRT) inside a {kind}{where}: ranks may have met "
        "in it with different tensors or operations",
        [],
        location=user_frame(facts[0].fault),
        because=(*sizes(facts), *(found.because if found is not None else _lines_of(view.case))),
        remedy=f"{read}: {'compare these lines' if found is None else found.remedy}",
        confidence="medium",
    )


def _shared_memory_full(view: View, culprits: list[Failure], shm: Space) -> Verdict:
    who = names(failure.rank for failure in culprits)
    return crash_verdict(
        view,
        "SL421",
        f"{who} crashed (SIGBUS): {shm.path} is full ({size(shm.free)} of {size(shm.total)} free)",
        culprits,
        location=user_frame(culprits[0].facts.fault),
        because=_at_its_end(culprits),
        remedy="give the container more (--shm-size, an emptyDir of medium Memory), or share less memory",
        confidence="medium",
    )


def _at_its_end(culprits: list[Failure]) -> tuple[str, ...]:
    """Where the first of them stood when it crashed, or else its last collective."""
    stack = culprits[0].facts.fault
    inner = next(iter(stack.frames), None) if stack is not None else None
    if inner is None:
        return last_call(culprits)
    return (f"innermost Python frame: {inner.function} ({inner.file}:{inner.line})",)


def connection_lost(view: View) -> Verdict | None:
    """Ranks lost their connections, and no rank of this node had failed or left before: no rank to blame.

    Example:
        error[SL412]: rank 0 lost the connection to a peer, and no rank here failed first

    How it was concluded: every failure on this node tells of a lost peer, or follows from one, and nobody here was
    first. Either a rank of another node was first, or the network between nodes broke.

    What to do: read the verdicts of the other nodes, and give all their logs. Without others, check links, interfaces
    and firewalls.

    What it is not: a wait that reached its own timeout (SL414), or a failure of which it is not known whether a lost
    peer explains it (SL499).
    """
    found = failures(view.case)
    if not found or any(not failure.consequence for failure in found):
        return None
    here = view.sees_all_ranks
    error = found[0].facts.error
    verdict = crash_verdict(
        view,
        "SL412",
        f"{names(failure.rank for failure in found)} lost the connection to a peer, and no rank here failed first",
        [],
        because=(f"rank {found[0].rank} said first: {one_line(error.message)}",) if error else (),
        remedy="look at the network interface that the ranks use" if here else "read the verdicts of the other nodes",
        confidence="medium",
    )
    return dataclasses.replace(verdict, traceback=error.traceback) if error else verdict


def torn_down(view: View) -> Verdict | None:
    """A rank's program had ended in good order; the process then aborted while its libraries were torn down.

    Example:
        error[SL413]: rank 3 aborted while shutting down, after the program had ended

    How it was concluded: the rank's interpreter had begun to shut down without an exception, the exit status is
    SIGABRT, and no rank has failed. It is known with gloo when ranks leave at slightly different moments (`terminate
    called without an active exception`), with torchrun as well. The program had run to its end.

    What to do: end the script with a `dist.barrier()` before `dist.destroy_process_group()`.

    What it is not: an abort in the middle of the program (SL406).
    """
    culprits = [
        Failure(facts, "abort", facts.exit.t, False)
        for facts in view.case.ranks
        if facts.exit is not None and facts.exit.code == -SIGABRT and left_cleanly(facts)
    ]
    if not culprits or failures(view.case):
        return None
    who = names(failure.rank for failure in culprits)
    return crash_verdict(
        view,
        "SL413",
        f"{who} aborted while shutting down, after the program had ended",
        culprits,
        because=last_call(culprits),
        remedy="end the script with dist.barrier() and dist.destroy_process_group()",
    )


def _signal(failure: Failure) -> int:
    """The signal that ended the rank, or 0."""
    ended = failure.facts.exit
    ours = failure.nature in ("signal", "abort") and ended is not None and ended.code < 0
    return -ended.code if ours and ended is not None else 0


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have no names of their own
        return f"signal {number}"


def may_be_a_victim(case: Case, culprits: list[Failure]) -> bool:
    """Whether culprits that left no reason may have followed a rank that left in good order, or each other."""
    silent = [failure for failure in culprits if unexplained(failure)]
    left = any(left_cleanly(facts) or left_group(facts) for facts in case.ranks)
    return bool(silent) and (left or len(culprits) > 1)


def _may_have_lost_a_peer(case: Case, culprits: list[Failure]) -> bool:
    """Whether an abort inside a collective may follow from a rank of which nothing is known here."""
    unknown = len(case.ranks) < case.world_size or any(
        not facts.collectives and bool(facts.missing or not facts.watched) for facts in case.ranks
    )
    return unknown and any(aborted_inside(failure) for failure in culprits)


def _gloo_may_have_aborted(case: Case, culprits: list[Failure]) -> bool:
    """Whether several aborted, or one, where they wait for others, and all others that tell of an error lost their
    connections in gloo."""
    found = failures(case)
    inside = {
        f.rank for f in found if _signal(f) == SIGABRT and (f.facts.fault is None or stands_inside(f.facts.fault))
    }
    lost = [f.facts.error for f in found if f.facts.error is not None]
    gloo = all("gloo" in error.message for error in lost) and broken_by_gloo(case)
    return {f.rank for f in culprits} <= inside and gloo and len(inside) + len(lost) > 1


def _lines_of(case: Case) -> tuple[str, ...]:
    """At which line of the program each rank was when it failed."""
    places: dict[str, list[int]] = {}
    for facts in case.ranks:
        where = user_frame(facts.fault) or (facts.error.location if facts.error is not None else None)
        if where is not None:
            places.setdefault(at(where), []).append(facts.rank)
    return tuple(f"{names(who)} {'was' if len(who) == 1 else 'were'}{where}" for where, who in places.items())


def last_call(culprits: list[Failure]) -> tuple[str, ...]:
    text = last_collective(culprits[0].facts, alone=len(culprits) == 1)
    return (text,) if text else ()


def last_words(failure: Failure) -> tuple[str, ...]:
    """What a rank wrote last, where it left nothing else that says why it ended."""
    lines = failure.facts.last_lines
    return (f"its last line: {one_line(lines[-1])}",) if lines else ()


def shortly(failure: Failure) -> str:
    if failure.facts.error is not None:
        return f"{failure.facts.error.type}: {one_line(failure.facts.error.message, 80)}"
    number = _signal(failure)
    if number:
        return signal_name(number)
    called = exit_call(failure.facts)
    place = at(called.location) if called is not None else ""
    return f"exit code {failure.facts.exit.code}{place}" if failure.facts.exit else "alive"

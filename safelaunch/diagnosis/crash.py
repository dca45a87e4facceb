"""Crashes: one or more ranks ended, or raised, and nobody had asked them to."""

from __future__ import annotations

import dataclasses
import re
import signal

from safelaunch.codes import CATALOGUE, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis import devices
from safelaunch.diagnosis.failures import (
    NATIVE_SIGNALS,
    SIGABRT,
    SIGKILL,
    Failure,
    failures,
    left_cleanly,
    left_group,
    primary,
    roots,
    secondary,
    unaccounted,
    unexplained,
    user_frame,
)
from safelaunch.diagnosis.wording import after_effects, last_collective, names, one_line, waiting
from safelaunch.model import Case, Confidence, Location, Verdict

ANOTHER = re.compile(r"\b(?:another|other|some|a) (?:rank|worker|process|peer)s?\b", re.IGNORECASE)
OTHER_RANK = re.compile(r"\b(?:rank|process)\s+(\d+)\b", re.IGNORECASE)
LIMIT_SIGNALS = {24, 25}  # SIGXCPU, SIGXFSZ: sent by the kernel for RLIMIT_CPU and RLIMIT_FSIZE
IMPORT_ERRORS = {"ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError"}


def _verdict(
    case: Case,
    code: str,
    summary: str,
    culprits: list[Failure],
    *,
    location: Location | None = None,
    because: tuple[str, ...] = (),
    remedy: str = "",
    confidence: Confidence = "high",
) -> Verdict:
    ranks = tuple(sorted(failure.rank for failure in culprits))
    error = culprits[0].facts.error if culprits else None
    lost = tuple(f"evidence of rank {f.rank} is missing: {gap}" for f in culprits[:1] for gap in f.facts.missing[:1])
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="crash",
        summary=summary,
        culprit_ranks=ranks,
        host=case.host,
        pid=culprits[0].facts.pid if culprits else None,
        location=location,
        because=(*because, *after_effects(case, ranks), *waiting(case, ranks), *lost),
        secondary=secondary(case, ranks),
        confidence=confidence,
        remedy=remedy,
        traceback=error.traceback if error is not None else "",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def exception(case: Case) -> Verdict | None:
    """A rank raised a Python exception that nothing caught, and the other failures follow from it.

    How it was concluded: every worker records an uncaught exception, with its time, before its interpreter shuts
    down and before its peers can notice. Exceptions that tell of a lost peer (gloo's `Connection closed by peer`,
    NCCL's remote error, a store that hung up) are consequences. Of the rest, one that stands alone is the root,
    else the one that was raised first; if several ranks raised the same at the same line, all of them are named.

    Errors about GPUs ("invalid device ordinal", "Duplicate GPU detected") come with the mapping of the ranks concerned:
    LOCAL_RANK, CUDA_VISIBLE_DEVICES, how many GPUs torch sees, and which one the rank took; the bundle has all ranks'.

    What to do: the traceback printed above the verdict is the root one; no `@record` is needed. For SL409 the
    program could not be imported or parsed on that rank: compare its environment and its copy of the code with
    the other ranks'.
    """
    culprits = [root for root in roots(case) if root.nature == "exception"]
    if not culprits or len(culprits) != len(roots(case)):
        return None
    if _points_elsewhere(case, culprits):
        return None
    error = culprits[0].facts.error
    assert error is not None
    code = "SL409" if error.type in IMPORT_ERRORS else "SL401"
    who = names(failure.rank for failure in culprits)
    message = one_line(error.message)
    rivals = [failure for failure in primary(case) if failure not in culprits]
    because = tuple(f"rank {rival.rank} failed too: {_shortly(rival)}" for rival in rivals[:2])
    of_gpus, way_out = devices.trouble(case, [culprit.facts for culprit in culprits], error.message)
    return _verdict(
        case,
        code,
        f"{who} raised {error.type}: {message}" if message else f"{who} raised {error.type}",
        culprits,
        location=error.location,
        because=(*of_gpus, *because),
        remedy="the environment or the code differs on this rank: compare it with a rank that started"
        if code == "SL409"
        else way_out or "the traceback above is where it started",
        confidence="medium" if rivals or len(culprits) > 1 else "high",
    )


def exception_everywhere(case: Case) -> Verdict | None:
    """Every rank raised the same exception at the same line, so no single rank is to blame.

    How it was concluded: type and line agree on all ranks of this node, no rank has a cause of its own beneath
    it, and none of them tells of a lost peer. Where the messages differ, or speak of a rank, confidence is lower: one
    rank may have spoilt what all of them met. Typical are a wrong argument, a missing file, a bug that all ranks
    reach. One traceback is printed; the others are the same.
    """
    found = roots(case)
    if len(found) < 2 or len(found) != len(case.ranks) or found[0].nature != "exception":
        return None
    error = found[0].facts.error
    assert error is not None
    messages = {f.facts.error.message for f in found if f.facts.error is not None}
    of_gpus, way_out = devices.trouble(case, [failure.facts for failure in found], error.message)
    alike = len(messages) == 1 and not ANOTHER.search(error.message) and not OTHER_RANK.search(error.message)
    verdict = _verdict(
        case,
        "SL402",
        f"every rank raised {error.type}: {one_line(error.message)}".rstrip(": "),
        [],
        location=error.location,
        because=(f"type and line are the same on {names(failure.rank for failure in found)}", *of_gpus),
        remedy=way_out or "no rank stands out: look at the arguments, the files and the code that all ranks share",
        confidence="high" if alike else "medium",
    )
    return dataclasses.replace(verdict, traceback=error.traceback, secondary=())


def out_of_memory(case: Case) -> Verdict | None:
    """The kernel's OOM killer ended a rank with SIGKILL.

    How it was concluded: the rank died of SIGKILL, which neither safelaunch nor torch had sent, and the `oom_kill`
    counter of the memory cgroup grew during the run. The counter does not say which process was meant, so the
    confidence is lower when several were killed.

    What to do: lower the batch size, the number or prefetch of DataLoader workers, or pinned memory; or ask the
    scheduler for more memory.
    """
    culprits = [root for root in roots(case) if _signal(root) == SIGKILL]
    if not culprits or not case.oom_kills:
        return None
    who = names(failure.rank for failure in culprits)
    return _verdict(
        case,
        "SL404",
        f"{who} ran out of memory: the kernel's OOM killer ended it with SIGKILL",
        culprits,
        because=(f"the memory cgroup counts {case.oom_kills} OOM kill(s) during this run", *_last(culprits)),
        remedy="use less host memory (batch, loader workers, prefetch, pinned memory) or ask for more",
        confidence="high" if case.oom_kills >= len(culprits) else "medium",
    )


def killed(case: Case) -> Verdict | None:
    """A rank was ended by a signal that came from outside of it.

    How it was concluded: the exit status names a signal such as SIGKILL or SIGTERM that a program does not get
    from its own fault, and neither safelaunch nor the agent had sent it. If it was the OOM killer, the memory
    cgroup's counter would have grown (SL404); where that counter cannot be read, the verdict says so.

    What to do: look for `Out of memory` in the kernel log, for the scheduler's limits, and for a person or a
    script with `kill`.
    """
    culprits = [root for root in roots(case) if _signal(root) and _signal(root) not in NATIVE_SIGNALS]
    if not culprits:
        return None
    number = _signal(culprits[0])
    who = names(failure.rank for failure in culprits)
    memory = {None: "the OOM counter of the memory cgroup cannot be read", 0: "no OOM kill was counted during this run"}
    because = (memory[case.oom_kills],) if number == SIGKILL and case.oom_kills in memory else ()
    return _verdict(
        case,
        "SL403",
        f"{who} was ended by {_name(number)}: it passed a limit of its own (ulimit -a)"
        if number in LIMIT_SIGNALS
        else f"{who} was killed by {_name(number)} from outside",
        culprits,
        because=(*because, *_last(culprits)),
        remedy="look at the kernel log and the scheduler's log for who sent it",
        confidence="medium" if number == SIGKILL and case.oom_kills is None else "high",
    )


def native_crash(case: Case) -> Verdict | None:
    """A rank crashed in native code: SIGSEGV, SIGBUS, SIGFPE, SIGILL (SL405) or SIGABRT (SL406).

    How it was concluded: the exit status names the signal; the Python stack is the one that faulthandler wrote
    at that moment, and the location is its innermost line of the user's program. An abort inside a collective
    after another rank had already left is a consequence, not a cause.

    What to do: the stack is in the evidence folder. A SIGBUS in a DataLoader worker usually means that /dev/shm
    is full; an abort often prints its reason to stderr just before.
    """
    culprits = [root for root in roots(case) if _signal(root) in NATIVE_SIGNALS]
    if not culprits or _may_be_a_victim(case, culprits):
        return None
    first = culprits[0]
    number = _signal(first)
    stack = first.facts.fault
    inner = stack.frames[0] if stack is not None and stack.frames else None
    because = (f"innermost Python frame: {inner.function} ({inner.file}:{inner.line})",) if inner else ()
    who = names(failure.rank for failure in culprits)
    verb = "aborted" if number == SIGABRT else "crashed in native code"
    return _verdict(
        case,
        "SL406" if number == SIGABRT else "SL405",
        f"{who} {verb} ({_name(number)})",
        culprits,
        location=user_frame(stack),
        because=because or _last(culprits),
        remedy="its last words on stderr say why"
        if number == SIGABRT
        else "look at the native call at the top of the stack",
    )


def silent_exit(case: Case) -> Verdict | None:
    """A rank ended with an error code and without an exception: `sys.exit`, `os._exit`, or native code.

    How it was concluded: the exit status is not 0, no signal was involved, and the rank recorded no exception.
    Where the program called `sys.exit` or `os._exit` from Python, the verdict names that line. A rank whose last
    collective never returned to it left because a peer was lost, whatever its program made of that.

    What to do: look at the named line; without one, at the rank's last output, and whether a library calls
    `exit` from native code.
    """
    culprits = [root for root in roots(case) if root.nature == "exit_code"]
    if len(culprits) != 1 or _may_be_a_victim(case, culprits):
        return None  # several ranks that leave alike and say nothing prove nothing
    first = culprits[0]
    assert first.facts.exit is not None
    who = names(failure.rank for failure in culprits)
    called = first.facts.exit_call if first.facts.shut_down is not None else None
    code = called.code if called else str(first.facts.exit.code)
    shell = first.facts.exit.code - 128
    because: tuple[str, ...] = ()
    if not called:
        because = (
            f"{128 + shell} is what a shell says of a child that {_name(shell)} ended"
            if 0 < shell < 65
            else "no Python line called sys.exit or os._exit",
        )
    return _verdict(
        case,
        "SL407",
        f"{who} left with exit code {code}{' and no exception' if first.facts.watched else ''}"
        if code.lstrip("-").isdigit()
        else f"{who} left by sys.exit: {one_line(code)}",
        culprits,
        location=called.location if called else user_frame(first.facts.fault),
        because=(*because, *(() if called else _last(culprits))),
        remedy="the line above ended the process" if called else "look at its last output; native code can call exit()",
        confidence="high" if called else "medium",
    )


def connection_lost(case: Case) -> Verdict | None:
    """Ranks lost their connections, and no rank of this node had failed or left before: no rank to blame.

    How it was concluded: every failure tells of a lost peer, and nobody on this node was lost. Either a rank of
    another node was first (its own node's verdict names it), or the network between nodes broke. A wait that reached
    its own timeout is SL414.

    What to do: read the verdicts of the other nodes; without one, check links, interfaces and firewalls.
    """
    found = failures(case)
    if not found or any(not failure.consequence for failure in found):
        return None
    here = len(case.ranks) == case.world_size
    error = found[0].facts.error
    verdict = _verdict(
        case,
        "SL412",
        f"{names(failure.rank for failure in found)} lost the connection to a peer, and no rank here failed first",
        [],
        because=(f"rank {found[0].rank} said first: {one_line(error.message)}",) if error else (),
        remedy="look at the network interface that the ranks use" if here else "read the verdicts of the other nodes",
        confidence="medium",
    )
    return dataclasses.replace(verdict, traceback=error.traceback) if error else verdict


def torn_down(case: Case) -> Verdict | None:
    """A rank's program had ended in good order; the process then aborted while its libraries were torn down.

    How it was concluded: the rank's interpreter had begun to shut down without an exception, and the exit status
    is SIGABRT; no other rank failed. Known with gloo when ranks leave at slightly different moments (`terminate
    called without an active exception`), with torchrun as well. The training had finished its own code.

    What to do: end the script with a `dist.barrier()` before `dist.destroy_process_group()`.
    """
    culprits = [
        Failure(facts, "abort", facts.exit.t, False)
        for facts in case.ranks
        if facts.exit is not None and facts.exit.code == -SIGABRT and left_cleanly(facts)
    ]
    if not culprits or failures(case):
        return None
    who = names(failure.rank for failure in culprits)
    return _verdict(
        case,
        "SL413",
        f"{who} aborted while shutting down, after the program had ended",
        culprits,
        because=_last(culprits),
        remedy="end the script with dist.barrier() and dist.destroy_process_group()",
    )


def cannot_tell(case: Case) -> Verdict:
    """Ranks failed, and the evidence does not say who was first.

    It is better to say so than to name a victim. The verdict lists who failed and how; stacks, exceptions and
    exit codes of every rank are in the evidence folder.
    """
    found = failures(case)
    said = tuple(f"rank {failure.rank}: {_shortly(failure)}" for failure in found[:2])
    for facts in unaccounted(case)[:1]:
        frame = user_frame(facts.stack)
        where = f"; it was at {frame.file}:{frame.line}" if frame else ""
        said += (f"rank {facts.rank} had neither failed nor entered a collective{where}",)
    return _verdict(
        case,
        "SL499",
        "ranks failed and the evidence does not say who was first",
        [],
        because=said or ("no rank left a trace",),
        remedy="read the evidence folder; the earliest line in the ranks' own output may tell",
        confidence="low",
    )


def _signal(failure: Failure) -> int:
    """The signal that ended the rank, or 0."""
    ended = failure.facts.exit
    ours = failure.nature in ("signal", "abort") and ended is not None and ended.code < 0
    return -ended.code if ours and ended is not None else 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have no names of their own
        return f"signal {number}"


def _may_be_a_victim(case: Case, culprits: list[Failure]) -> bool:
    """Whether culprits that left no reason may have followed a rank that left in good order, or each other."""
    silent = [failure for failure in culprits if unexplained(failure)]
    left = any(left_cleanly(facts) or left_group(facts) for facts in case.ranks)
    return bool(silent) and (left or len(culprits) > 1)


def _points_elsewhere(case: Case, culprits: list[Failure]) -> bool:
    """Whether what several ranks share may have its cause in a rank that is not among them.

    That is a living rank which has not spoken yet, or one that their own message speaks of (`another rank failed`;
    DDP: `appears not to match sizes of the same param in process 0`).
    """
    if len(culprits) < 2:
        return False
    ranks = {failure.rank for failure in culprits}
    error = culprits[0].facts.error
    said = error.message if error is not None else ""
    named = {int(number) for number in OTHER_RANK.findall(said)}
    others = {facts.rank for facts in case.ranks} - ranks
    return bool(unaccounted(case)) or bool(named & others) or bool(ANOTHER.search(said))


def _last(culprits: list[Failure]) -> tuple[str, ...]:
    text = last_collective(culprits[0].facts)
    return (text,) if text else ()


def _shortly(failure: Failure) -> str:
    if failure.facts.error is not None:
        return f"{failure.facts.error.type}: {one_line(failure.facts.error.message, 80)}"
    number = _signal(failure)
    if number:
        return _name(number)
    return f"exit code {failure.facts.exit.code}" if failure.facts.exit else "alive"

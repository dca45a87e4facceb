"""What the GPUs, their links and the network ports of a node add to a verdict. Pure.

A fault that the driver has logged since the ranks stopped explains a hang better than the line at which one of them
stands, and a crash in CUDA or NCCL better than its message. Everything else is told, and blames nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, Trait, has
from safelaunch.diagnosis.confidence import HIGHER
from safelaunch.diagnosis.refine.cuda import BUSY, IDLE, waits_for_gpu
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names, program, verb
from safelaunch.model import Case, GpuState, Verdict
from safelaunch.model.hosts import host_name
from safelaunch.model.ranks import runs
from safelaunch.model.xids import Xid, parse
from safelaunch.sizes import plural

# An exception counts where it speaks of CUDA.
OF_CUDA = re.compile(r"CUDA (?:driver )?error:|NCCL error|CUBLAS_STATUS_|CUDNN_STATUS_|CUFFT_|CUSPARSE_STATUS_")

# A fault is of this hang if it was logged when the ranks stopped, or later. The kernel's log has a clock of its own
# (100 ppm of the uptime, and a minute at most; estimates), and what was on its way may still have ended after it.
BEFORE_S = 60.0
# ... and of this crash within twice the longest time that torch waits for a collective unless it is told otherwise.
BEFORE_CRASH_S = 3600.0
DRIFT = 1e-4
MOST_DRIFT_S = 60.0

SHOWN = 2  # nodes
FULL = 0.9  # of the memory: what is left is not enough for a batch


@dataclass(frozen=True)
class Fault:
    """What is wrong with a GPU: in words, with the line of the log that says so (empty: NVML says it)."""

    gpu: GpuState
    what: str
    line: str = ""
    xid: Xid | None = None


def refine(verdict: Verdict, view: View) -> Verdict:
    """The verdict with what the hardware says of it."""
    case = view.case
    if not (case.gpus or case.ports_down) or has(verdict.code, Trait.NOTHING_WRONG):
        return verdict
    return _on_crash(verdict, case) if case.incident.kind == "exit" else _on_hang(verdict, case)


def _on_hang(verdict: Verdict, case: Case) -> Verdict:
    """The verdict on a hang: a fault since it began, under the ranks that are named, or under any where none is."""
    named = verdict.culprit_ranks
    concerned = [gpu for gpu in case.gpus if not named or set(gpu.ranks) & set(named)]
    fresh = [fault for fault in _faults(concerned) if _is_of_this_hang(fault, verdict, case)]
    broken = [fault for fault in fresh if _broke_work(fault, case, named)]
    failed = [fault for fault in fresh if fault.xid is not None and fault.xid.of_program]
    if has(verdict.code, Trait.MAYBE_GPU) and broken:
        return hardware_failed(verdict, broken, case, _stopped(verdict, case))
    if has(verdict.code, Trait.NOBODY) and (culprits := _whose(failed, case)):
        return kernel_failed(verdict, failed, culprits)
    lines = [*map(_said, fresh[:1]), *_beside(verdict, case, concerned)]
    place = 1 if named else 0
    return replace(verdict, because=(*verdict.because[:place], *lines, *verdict.because[place:]))


def _beside(verdict: Verdict, case: Case, concerned: Sequence[GpuState]) -> list[str]:
    """What else may bear on a hang, and blames nobody."""
    if verdict.culprit_ranks:
        others = [gpu for gpu in case.gpus if gpu not in concerned]
        broken = [fault for fault in _faults(others) if _broke_work(fault, case, ())]
        fresh = [fault for fault in broken if _is_of_this_hang(fault, verdict, case)]
        return [*waits_for_gpu(case, verdict.culprit_ranks[0], concerned), *map(_said, fresh[:1])]
    if has(verdict.code, Trait.NOBODY):
        return [*_links(case.gpus), *_ports(case), *_idle(case.gpus), *_silent(case.gpus)]
    return []


def _on_crash(verdict: Verdict, case: Case) -> Verdict:
    """The verdict on a crash: a fault of the hardware under a rank that is named, or that failed in CUDA's words as the
    one that is named did, or under any where none is."""
    named = set(verdict.culprit_ranks)
    of_cuda = verdict.code == "SL401" and OF_CUDA.search(_words(case, named))
    if not (has(verdict.code, Trait.MAYBE_GPU) or of_cuda) or not (named or has(verdict.code, Trait.NOBODY)):
        return verdict
    if of_cuda:
        named |= {facts.rank for facts in case.ranks if OF_CUDA.search(_words(case, {facts.rank}))}
    concerned = [gpu for gpu in case.gpus if not named or set(gpu.ranks) & named]
    since = case.incident.t - BEFORE_CRASH_S
    broken = [fault for fault in _faults(concerned) if _broke_work(fault, case, named) and _is_since(fault, since)]
    return hardware_failed(verdict, broken, case, since) if broken else verdict


def _words(case: Case, ranks: Iterable[int]) -> str:
    """What these ranks raised, and what lies beneath it."""
    errors = [facts.error for facts in case.ranks if facts.rank in set(ranks) and facts.error is not None]
    return "\n".join(text for error in errors for text in (f"{error.type}: {error.message}", *error.chain))


def _broke_work(fault: Fault, case: Case, named: Iterable[int]) -> bool:
    """Whether hardware has failed under these ranks (none: under any). A contained error ends the one process that the
    driver names, and no other."""
    xid = fault.xid
    if xid is None or xid.fatal:
        return True
    if not xid.ends_work or xid.pid is None:
        return False
    owners = {tenant.rank for tenant in fault.gpu.tenants if tenant.pid == xid.pid and tenant.rank is not None}
    owner = case.of_pid(xid.pid, fault.gpu.node)
    owners = owners or ({owner.rank} if owner is not None else set())
    wanted = set(named)
    return bool(owners & wanted) if wanted else bool(owners)


def strangers(case: Case, ranks: Iterable[int]) -> tuple[str, ...]:
    """Processes of others without which the GPUs of these ranks would not be full: a line for each GPU."""
    wanted, lines = set(ranks), []
    for gpu in case.gpus:
        others = [one for one in gpu.tenants if one.rank is None and one.command and one.memory_bytes]
        foreign_bytes = sum(one.memory_bytes or 0 for one in others)
        if not set(gpu.ranks) & wanted or not gpu.memory_total or (gpu.memory_used or 0) < FULL * gpu.memory_total:
            continue
        if foreign_bytes > (1 - FULL) * gpu.memory_total:
            most = max(others, key=lambda one: one.memory_bytes or 0)
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            lines.append(
                f"{label(gpu)} is full, and {foreign_bytes / 2**30:.1f} GiB of it belong to pid {most.pid}{more}, "
                f"not of this job: {program(most.command)}"
            )
    return tuple(lines)


def label(gpu: GpuState) -> str:
    """`GPU 3 of rank 3`."""
    return f"GPU {gpu.index} of {names(gpu.ranks)}" if gpu.ranks else f"GPU {gpu.index}"


# ---------------------------------------------------------------------------------------------------- faults


def _faults(gpus: Iterable[GpuState]) -> Iterable[Fault]:
    for gpu in gpus:
        logged = [entry for line in gpu.xids if (entry := parse(line)) is not None]
        # The one that says most comes first: hardware, then programs; of these the earliest.
        logged.sort(key=lambda entry: (not entry.fatal, not entry.ends_work, not entry.of_program, entry.at_s))
        telling = [entry for entry in logged if entry.ends_work or entry.of_program]
        yield from (Fault(gpu, entry.named, entry.text, entry) for entry in telling[:1])
        if gpu.lost and not any(entry.ends_work for entry in telling):
            yield Fault(gpu, "the driver has lost it, or wants it to be reset")


def _is_of_this_hang(fault: Fault, verdict: Verdict, case: Case) -> bool:
    since = _stopped(verdict, case)
    return since is None or _is_since(fault, since)


def _stopped(verdict: Verdict, case: Case) -> float | None:
    """CLOCK_MONOTONIC from which on a fault is of this hang; None where that is not known."""
    concerned = set(verdict.culprit_ranks) or set(verdict.waiting) or {facts.rank for facts in case.ranks}
    quiet = [facts.quiet_s for facts in case.ranks if facts.rank in concerned and facts.quiet_s is not None]
    return case.now - max(quiet) - BEFORE_S if case.now is not None and quiet else None


def _is_since(fault: Fault, t: float) -> bool:
    """Whether a fault was logged after a time of CLOCK_MONOTONIC, as far as the two clocks agree."""
    if fault.xid is None or not fault.xid.at_s:
        return True
    since_boot = t - fault.gpu.ahead_s
    return fault.xid.at_s >= since_boot - min(MOST_DRIFT_S, DRIFT * since_boot)


def hardware_failed(verdict: Verdict, broken: Sequence[Fault], case: Case, since: float | None) -> Verdict:
    """The driver logged a fault of a GPU, or has lost it, and that explains the crash or the hang.

    Example:
        error[SL428]: GPU 1 failed: Xid 94 (contained memory error); ranks failed and the evidence does not say who was
            first

    How it was concluded: NVML and the kernel log are read at the incident. A fault counts if NVIDIA's Xid catalogue
    asks for a reset, a reboot or a look at the GPU, or if NVML has lost the GPU. Xid 94 ends one process, and counts if
    the driver names a rank's. The fault is of this incident if it was logged

    - of a hang: since the ranks stopped, or up to a minute before (the clock of the log may differ);
    - of a crash: in the hour before it.

    It explains

    - a crash that a GPU may be behind, such as an error of CUDA or NCCL;
    - a hang, on the GPU of the rank that is waited for, or of one inside a collective that does not end.

    An error of CUDA that only faulty hardware gives (an uncorrectable ECC or NVLink error) counts as such, too.

    Of logs, the line itself leads: it belongs to a rank only where it names a process whose rank is known.

    What to do: run on another node, and have an admin look at the GPU. The exit code is 75: elsewhere the job would go
    on. A node that is named for the second time leaves a job that can go on without it: `--nnodes MIN:MAX`, or a spare
    waits.

    What it is not: an Xid of a program (13, 31, 43, 69), whose usual cause is the program's own kernel (SL427).
    """
    ranks = tuple(sorted({rank for fault in broken for rank in fault.gpu.ranks}))
    everybody = len(ranks) > 1 and set(ranks) >= {facts.rank for facts in case.ranks}
    culprits = verdict.culprit_ranks or (() if everybody else ranks)
    pid = next((facts.pid for facts in case.ranks if facts.rank in culprits), None)
    first = broken[0]
    return replace(
        verdict,
        code="SL428",
        slug=CATALOGUE["SL428"].slug,
        summary=f"{_gpus([fault.gpu for fault in broken])} failed: {first.what}; {verdict.summary}",
        culprit_ranks=culprits,
        pid=verdict.pid if verdict.culprit_ranks else pid,
        because=(*map(_said, broken[:2]), *_nvml_agrees(broken), *verdict.because),
        confidence=HIGHER[verdict.confidence] if _agrees(verdict, first, since) else verdict.confidence,
        remedy="run on another node, and have an admin look at "
        f"{_indices(broken)} of {host_name(first.gpu.host or case.host)}: "
        + ("reboot" if first.xid is not None and first.xid.number == 79 else "reset it, or reboot"),
        exit_code=EXIT_INFRASTRUCTURE,
    )


def _agrees(verdict: Verdict, fault: Fault, since: float | None) -> bool:
    """Whether two sources name one GPU: the driver, and those who wait or NVML. A fault that is later than `since` only
    if the clocks disagree makes nothing surer."""
    certain = fault.xid is None or since is None or fault.xid.at_s + fault.gpu.ahead_s >= since
    return certain and (bool(verdict.culprit_ranks) or (fault.xid is not None and fault.gpu.lost))


def _nvml_agrees(broken: Iterable[Fault]) -> tuple[str, ...]:
    lost = {fault.gpu.index for fault in broken if fault.gpu.lost and fault.xid is not None}
    said = verb(lost, "it is lost, or wants a reset", "they are lost, or want a reset")
    return (f"NVML says as well that {said}",) if lost else ()


def _indices(broken: Sequence[Fault]) -> str:
    """Those of the first one's node."""
    own = [fault.gpu.index for fault in broken if fault.gpu.node == broken[0].gpu.node]
    return f"GPU {','.join(map(str, own))}"


def _whose(failed: Sequence[Fault], case: Case) -> tuple[int, ...]:
    """The ranks whose kernels failed; none where that cannot be told, or all of them failed."""
    ranks: set[int] = set()
    for fault in failed:
        pid = fault.xid.pid if fault.xid is not None else None
        owners = {tenant.rank for tenant in fault.gpu.tenants if tenant.pid == pid and tenant.rank is not None}
        if len(fault.gpu.ranks) != 1 and not owners:
            return ()
        ranks |= owners or set(fault.gpu.ranks)
    return tuple(sorted(ranks)) if len(ranks) < len(case.ranks) else ()


def kernel_failed(verdict: Verdict, failed: Sequence[Fault], culprits: tuple[int, ...]) -> Verdict:
    """A hang names no rank, and the driver has logged the error of a program on the GPU of one.

    How it was concluded: the kernel log has an Xid of a program (13, 31, 43 or 69) since the ranks stopped. It belongs
    to the rank that uses that GPU alone, or whose process the line names. That rank's part of the collective will never
    run. Confidence is medium.

    What to do: the kernel most often reads out of bounds: `CUDA_LAUNCH_BLOCKING=1`, or compute-sanitizer, shows it.
    """
    gpus = _gpus([fault.gpu for fault in failed])
    return replace(
        verdict,
        code="SL427",
        slug=CATALOGUE["SL427"].slug,
        summary=f"a kernel of {names(culprits)} failed on {gpus}: {failed[0].what}; {verdict.summary}",
        culprit_ranks=culprits,
        because=(*(_said(fault) for fault in failed[:2]), *verdict.because),
        confidence="medium",
        remedy="most often a kernel that reads out of bounds: CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer, shows it",
    )


def _said(fault: Fault) -> str:
    if not fault.line:
        return f"{label(fault.gpu)}: NVML says that {fault.what}"
    return f"{label(fault.gpu)}: the kernel log says {fault.line!r}"


def _gpus(gpus: Sequence[GpuState]) -> str:
    """`GPU 3`, `GPUs 0-3`; of several nodes `GPU 3 of node-a, GPU 0 of node-b`."""
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus))
    if any(hosts):
        said = [f"{_numbered(gpu for gpu in gpus if gpu.host == host)} of {host}" for host in hosts[:SHOWN]]
        return ", ".join(said) + (f" and those of {plural(len(hosts) - SHOWN, 'more node')}" if hosts[SHOWN:] else "")
    return _numbered(gpus)


def _numbered(gpus: Iterable[GpuState]) -> str:
    numbers = sorted({gpu.index for gpu in gpus})
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs(numbers)]
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(parts)}"


# ------------------------------------------------------------------------------------- what blames nobody


def _links(gpus: Sequence[GpuState]) -> list[str]:
    """NVLinks that are down. Where none is up, or all GPUs are alike, it was built so."""
    down = [gpu for gpu in gpus if gpu.links and gpu.links_down]
    telling = [gpu for gpu in down if (gpu.links_down or 0) < (gpu.links or 0) or len(down) < len(gpus)]
    if len(telling) > 1 and len(telling) == len(gpus) and len({(gpu.links, gpu.links_down) for gpu in telling}) == 1:
        return []
    return [f"{gpu.links_down} of {gpu.links} NVLinks of {label(gpu)} are down" for gpu in telling[:2]]


def _ports(case: Case) -> list[str]:
    """Ports matter where ranks are on other nodes."""
    if case.world_size <= len(case.ranks) and len({facts.node for facts in case.ranks}) < 2:
        return []
    lines = []
    for host in list(dict.fromkeys(port.host for port in case.ports_down))[:SHOWN]:
        own = [port for port in case.ports_down if port.host == host]
        ports = ", ".join(f"{port.name} ({port.state}, {port.physical})" for port in own[:4])
        is_are = "is" if len(own) == 1 else "are"
        lines.append(f"{ports} {is_are} down on {host or case.host}, while ports of the same kind are up")
    return lines


def _idle(gpus: Sequence[GpuState]) -> list[str]:
    """GPUs that run nothing while others run the collective."""
    measured = [gpu for gpu in gpus if gpu.busy_percent is not None]
    idle = [gpu for gpu in measured if (gpu.busy_percent or 0) <= IDLE]
    busy = [gpu for gpu in measured if (gpu.busy_percent or 0) >= BUSY]
    if not idle or not busy or len(idle) + len(busy) < len(gpus):
        return []
    verb = ("runs", "does") if len(idle) == 1 else ("run", "do")
    who = names({rank for gpu in idle for rank in gpu.ranks})
    return [f"{_gpus(idle)} ({who}) {verb[0]} no kernel, and {_gpus(busy)} do: what comes before it on that GPU waits"]


def _silent(gpus: Sequence[GpuState]) -> list[str]:
    """What could not be looked at: that nothing was found there is no pass."""
    lines = [f"{label(gpu)} could not be looked at: {gpu.missing}" for gpu in gpus if gpu.missing][:1]
    unread = [gpu.log_unread for gpu in gpus if gpu.log_unread]
    return [*lines, *(f"Xid messages are not known: the kernel log may not be read ({why})" for why in unread[:1])]

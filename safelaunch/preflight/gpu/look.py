"""What the checks of GPUs share: which GPUs the job will use, and the course of a check that looks at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding, Severity
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu, Snapshot, Unread
from safelaunch.preflight.machine.visible import visible_gpus

NOT_USED = "the job does not use GPUs"
NO_GPU = "no GPU to look at"

# The fields of Gpu from which a check concludes, or how they follow from what a GPU supports.
Readings = Sequence[str] | Callable[[Gpu], Sequence[str]]


@dataclass(frozen=True)
class Fault:
    """What is wrong with a GPU, in words that follow its name: `GPU 3: <summary>`. Equal faults of several GPUs become
    one finding. INDEX in the remedy stands for their numbers, as `nvidia-smi -i` takes them."""

    severity: Severity
    summary: str
    because: tuple[str, ...] = ()
    remedy: str = ""


def needs_gpu(host: Host) -> bool:
    return host.job.uses_gpu or host.job.nproc_asked == "gpu"


def used_gpus(host: Host, snapshot: Snapshot) -> tuple[int, ...]:
    """The GPUs that ranks will take. Where they cannot be told, all count."""
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    return tuple(range(len(snapshot.gpus))) if visible is None else visible[: host.job.nproc]


def gpus_in_use(host: Host) -> tuple[Gpu, ...]:
    """The GPUs that ranks will take and that answer: those that do not are the matter of SL108 alone."""
    snapshot = host.nvml()
    wanted = used_gpus(host, snapshot)
    return tuple(gpu for gpu in snapshot.read if gpu.index in wanted)


def prevented(host: Host, code: str, what: str) -> Finding | None:
    """Why a check has nothing to look at: the job needs no GPU, or the driver does not answer."""
    if not needs_gpu(host):
        return skipped(code, NOT_USED)
    if not host.nvml().answers and not host.nvml().read:
        return not_asked(code, what)
    return None


def not_asked(code: str, what: str) -> Finding:
    return unchecked(code, f"{what}: not looked at", "the driver does not answer (see SL108)")


def each_gpu(
    host: Host,
    code: str,
    what: str,
    readings: Readings,
    judge: Callable[[Gpu], Iterable[Fault]],
    fine: str,
    nothing: str = "",
) -> Iterator[Finding]:
    """Look at every GPU that a rank will take.

    Args:
        host: the machine and the job.
        code: of the findings.
        what: the thing looked at, such as `ECC errors`.
        readings: the fields of Gpu that are needed. A GPU that does not have one of them does not support the thing;
            one that refuses one for another reason could not be looked at.
        judge: what is wrong with a GPU. Single readings may be missing.
        fine: what is said when nothing is wrong.
        nothing: what is said instead where there was nothing to look at; empty where there was.
    """
    stop = prevented(host, code, what)
    if stop:
        yield stop
        return
    found = [(gpu, fault) for gpu in gpus_in_use(host) for fault in judge(gpu)]
    yield from grouped(code, found)
    yield from conclude(host, code, what, readings, fine, nothing, found=bool(found))


def conclude(
    host: Host, code: str, what: str, readings: Readings, fine: str, nothing: str = "", *, found: bool
) -> Iterator[Finding]:
    """What is said of the GPUs of the job beside the faults: which of them could not be looked at, or that all is well.
    The arguments are those of `each_gpu`; `found` says that there are faults."""
    gpus = gpus_in_use(host)
    refused, without = unread(gpus, readings)
    for why, those in refused.items():
        yield could_not_look(code, f"{what} of {numbers(those)} not looked at", those, why)
    if not host.nvml().answers:
        yield not_asked(code, what)
    elif not found and not refused:
        yield _all_well(code, gpus, without, what, fine, nothing)


def unread(gpus: Sequence[Gpu], readings: Readings) -> tuple[dict[str, list[Gpu]], dict[str, list[Gpu]]]:
    """The GPUs that could not be looked at, and those that do not support it, each by the reason."""
    refused: dict[str, list[Gpu]] = {}
    without: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        needed = readings(gpu) if callable(readings) else readings
        missing = [entry for entry in map(gpu.why_unread, needed) if entry]
        barred = [entry for entry in missing if not entry.unsupported]
        if barred:
            refused.setdefault(reason(barred[0]), []).append(gpu)
        elif missing:
            text = missing[0].text if len(missing) == len(needed) else reason(missing[0])
            without.setdefault(text, []).append(gpu)
    return refused, without


def reason(entry: Unread) -> str:
    return f"{entry.call.partition(' of GPU')[0]}: {entry.text}"


def could_not_look(code: str, summary: str, gpus: Sequence[Gpu], *reasons: str) -> Finding:
    return Finding(code=code, severity="unchecked", summary=summary, because=reasons, where=full_names(gpus))


def grouped(code: str, found: Iterable[tuple[Gpu, Fault]]) -> Iterator[Finding]:
    """One finding for each fault, with all the GPUs that have it."""
    having: dict[Fault, list[Gpu]] = {}
    for gpu, fault in found:
        having.setdefault(fault, []).append(gpu)
    for fault, gpus in having.items():
        yield finding(code, gpus, fault)


def finding(code: str, gpus: Sequence[Gpu], fault: Fault) -> Finding:
    return Finding(
        code=code,
        severity=fault.severity,
        summary=f"{numbers(gpus)}: {fault.summary}",
        because=fault.because,
        remedy=fault.remedy.replace("INDEX", ",".join(str(gpu.index) for gpu in gpus)),
        where=full_names(gpus),
    )


def full_names(gpus: Sequence[Gpu]) -> str:
    return "; ".join(map(str, gpus))


def numbers(gpus: Sequence[Gpu]) -> str:
    """`GPU 3`, `GPUs 0-3, 6`."""
    return f"{'GPU' if len(gpus) == 1 else 'GPUs'} {spans([gpu.index for gpu in gpus])}"


def spans(values: Iterable[int]) -> str:
    """Numbers as the kernel lists CPUs, `0-3, 6`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _all_well(
    code: str, gpus: Sequence[Gpu], without: Mapping[str, Sequence[Gpu]], what: str, fine: str, nothing: str
) -> Finding:
    if not gpus:
        return skipped(code, NO_GPU)
    those = [gpu for group in without.values() for gpu in group]
    why = ", ".join(without)
    if len(those) == len(gpus):
        return skipped(code, f"{what}: not supported by {numbers(gpus)} ({why})")
    if nothing:
        return skipped(code, nothing)
    return ok(code, f"{fine} ({numbers(those)}, not looked at: {why})" if those else fine)

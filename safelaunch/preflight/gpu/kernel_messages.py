"""Check what the driver has logged about the GPUs since boot (Xid messages)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding, Severity
from safelaunch.model.xids import NVLINK5, REBOOT, Xid, parse
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.gpu.look import NO_GPU, Fault, conclude, finding, gpus_in_use, prevented
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.kernel_log import Message
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.preflight.machine.processes import duration

# Those after which the driver sets the recovery action: column "Xid 154 linkage" of the catalogue.
SETS_ACTION = {48, 62, 63, 64, 74, 79, 94, 95, 109, 110, 120, 136, 143, 155, 156, 158, 160, 161} | NVLINK5

LOOK = "look at the job that ran then; tell an admin if it happens to other jobs on the same GPU"
RESET = "reset the GPU (nvidia-smi --gpu-reset -i INDEX) or reboot"

_DRIVER_LOADED = re.compile(r"NVRM: loading NVIDIA")


@dataclass(frozen=True)
class Meaning:
    """What follows from the messages of one Xid about a GPU."""

    severity: Severity
    remedy: str
    because: tuple[str, ...] = ()


def xid(host: Host) -> Iterator[Finding]:
    """The driver has logged errors of a GPU (Xid messages) since it was loaded.

    Xids tell what no counter tells: a GPU that fell off the bus and came back, firmware that timed out, a link that
    failed. Many are the fault of a program and harm nobody else.

    How it is concluded: lines `NVRM: Xid` in /dev/kmsg, dmesg or the journal about GPUs of the job, since boot and
    since the driver was loaded. NVIDIA's Xid catalogue names the action. Where it is "reset GPU", "restart" or the
    workflow of 48 and 74 (of 144 to 150: where the line says Fatal), it is an error for 2 hours, as long as
    Azure/azurehpc-health-checks looks back (`gpu_xid_recent` in [preflight.thresholds]), and as long as a recovery
    action is due. After that it is a warning: a reset leaves no line in the log, and the message stays until the next
    boot. Where the driver sets a recovery action for that Xid (column "Xid 154 linkage"), SL112 speaks for it: none due
    means that it was cleared by a reset, which is a warning from the start. "Restart the app" and "ignore" are warnings
    for 2 hours and notes after that. Where the log may not be read, the recovery action stands for it.

    What to do: error: an admin resets the GPU or reboots the node. Where that was done already, wait until the message
    is 2 hours old, or turn the check down (`SL120 = "warning"` in [preflight.severity]). Warning: look at the job that
    ran then; if the same GPU fails in several jobs, tell an admin.
    """
    stop = prevented(host, "SL120", "Xid messages")
    if stop:
        yield stop
        return
    gpus = gpus_in_use(host)
    if not gpus and host.nvml().answers:
        yield skipped("SL120", NO_GPU)
        return
    log = host.kernel_log()
    if log.unreadable:
        if all(gpu.recovery_action is not None for gpu in gpus) and host.nvml().answers:
            yield ok("SL120", "the kernel log may not be read; the recovery action was looked at instead (SL112)")
        else:
            yield unchecked("SL120", "Xid messages: not looked at", f"the kernel log may not be read: {log.unreadable}")
        return
    by_address = {gpu.address.rpartition(".")[0]: gpu for gpu in gpus if gpu.address}
    logged = [entry for entry in _since_the_driver_was_loaded(log.messages) if entry.address in by_address]
    for number in sorted({entry.number for entry in logged}):
        entries = [entry for entry in logged if entry.number == number]
        yield from _judge(host, [(by_address[entry.address], entry) for entry in entries])
    fine = "no Xid messages about the GPUs"
    yield from conclude(host, "SL120", "Xid messages", ("address",), fine, found=bool(logged))


def _since_the_driver_was_loaded(messages: Sequence[Message]) -> list[Xid]:
    found: list[Xid] = []
    for message in messages:
        if _DRIVER_LOADED.match(message.text):
            found.clear()
        entry = parse(message.text, message.at_s)
        if entry is not None:
            found.append(entry)
    return found


def _judge(host: Host, entries: Sequence[tuple[Gpu, Xid]]) -> Iterator[Finding]:
    """What one Xid number means, for the GPUs that have it."""
    meanings: dict[Meaning, list[Gpu]] = {}
    for gpu in {gpu.index: gpu for gpu, _ in entries}.values():
        meaning = _meaning(host, gpu, [entry for other, entry in entries if other.index == gpu.index])
        meanings.setdefault(meaning, []).append(gpu)
    for meaning, gpus in meanings.items():
        yield _finding(host, meaning, gpus, [entry for gpu, entry in entries if gpu in gpus])


def _meaning(host: Host, gpu: Gpu, entries: Sequence[Xid]) -> Meaning:
    """What one Xid number means for one GPU."""
    number, limit_s, action = entries[0].number, host.threshold("gpu_xid_recent"), gpu.recovery_action
    fatal = [entry for entry in entries if entry.fatal]
    recent = _age_s(host, fatal or entries) <= limit_s
    if not fatal:
        return Meaning("warning" if recent else "note", LOOK)
    if number in SETS_ACTION and action:
        return Meaning("note", "what SL112 says", ("it is why a recovery action is due (SL112)",))
    if number in SETS_ACTION and action == 0:
        cleared = "the driver says that no recovery action is due: it was reset since"
        return Meaning("warning", "nothing now; tell an admin if it happens again", (cleared,))
    ask = "have an admin " + ("reboot the node" if number in REBOOT else RESET)
    if action or recent:
        if number not in REBOOT and not action:
            # A reset leaves no line in the log: only time tells that the message is over.
            ask += f"; the message counts as an error until it is {duration(limit_s)} old"
        return Meaning("error", ask)
    says = "does not tell whether one is due" if action is None else "says that none is due"
    because = f"it is more than {duration(limit_s)} old, and of recovery actions the driver {says}"
    return Meaning("warning", f"{ask}, unless that was done since; tell an admin if it happens again", (because,))


def _finding(host: Host, meaning: Meaning, gpus: Sequence[Gpu], entries: Sequence[Xid]) -> Finding:
    times = f"{len(entries)} times, the last time " if len(entries) > 1 else ""
    summary = f"{entries[0].named}, {times}{duration(_age_s(host, entries))} ago"
    because = (entries[-1].text, *meaning.because)
    return finding("SL120", gpus, Fault(meaning.severity, summary, because, meaning.remedy))


def _age_s(host: Host, entries: Sequence[Xid]) -> float:
    """Seconds since the last of these messages."""
    try:
        uptime_s = float(host.root.read("/proc/uptime").split()[0])
    except OSError:
        return 0.0
    return max(0.0, uptime_s - max(entry.at_s for entry in entries))

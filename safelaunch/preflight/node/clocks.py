"""Checks of how the CPUs run, and how they tell the time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped
from safelaunch.preflight.machine.host import Host
from safelaunch.sizes import plural

CPUS = "/sys/devices/system/cpu"
# Drivers with which `powersave` means the lowest frequency. intel_pstate and amd_pstate mean something else by it: the
# processor chooses, up to the highest (Linux admin-guide/pm/intel_pstate, amd-pstate).
FIXED = ("acpi-cpufreq", "cppc_cpufreq", "pcc-cpufreq")

CLOCK = "/sys/devices/system/clocksource/clocksource0"
# Clocks that cannot be read without a system call, and slowly: over a bus, or by a trap to the hypervisor.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit", "hyperv_clocksource_msr")


def governor(host: Host) -> Iterator[Finding]:
    """CPUs of a GPU node are held at their lowest frequency.

    A rank prepares and starts each kernel on a CPU: at half the frequency small kernels take twice as long, and the
    slowest node sets the pace of the job.

    How it is concluded: the governor `powersave` in /sys/devices/system/cpu/cpu*/cpufreq, with a driver for which that
    is the lowest frequency (acpi-cpufreq, cppc_cpufreq, pcc-cpufreq). With intel_pstate and amd_pstate `powersave` is
    the normal state and no fault. facebookresearch/gcm asks for `performance`. Virtual machines and most containers
    show no governor. Jobs without GPUs are left in peace.

    What to do: as root, `cpupower frequency-set -g performance`.
    """
    if not host.job.uses_gpu:
        yield skipped("SL137", "the job does not use GPUs")
        return
    folders = [f"{CPUS}/{name}/cpufreq" for name in host.root.names(CPUS) if re.fullmatch(r"cpu\d+", name)]
    # (driver, governor) of each CPU that has them
    states = [
        (host.root.text(f"{here}/scaling_driver"), host.root.text(f"{here}/scaling_governor")) for here in folders
    ]
    governed = [(driver, chosen) for driver, chosen in states if chosen]
    slow = [driver for driver, chosen in governed if chosen == "powersave" and driver in FIXED]
    if slow:
        yield Finding(
            code="SL137",
            severity="warning",
            summary=f"{len(slow)} of {plural(len(governed), 'CPU')} run at their lowest frequency",
            because=(f"their governor is powersave, and the driver {slow[0]} takes that to the letter",),
            remedy="an administrator can change it: cpupower frequency-set -g performance",
        )
    elif governed:
        yield ok("SL137", "governor " + ", ".join(sorted({chosen for _, chosen in governed})))
    else:
        yield skipped("SL137", "this machine shows no frequency governor")


def clocksource(host: Host) -> Iterator[Finding]:
    """The kernel tells the time by a slow clock.

    Each look at the clock is then a system call of a microsecond or more instead of 20 ns, and torch, NCCL and Python
    look often. It also means that the kernel found the processor's own counter not to be reliable.

    How it is concluded: /sys/devices/system/clocksource/clocksource0/current_clocksource is hpet, acpi_pm, jiffies, pit
    or hyperv_clocksource_msr. Those of processors and hypervisors that can be read without a system call (tsc,
    kvm-clock, hyperv_clocksource_tsc_page, arch_sys_counter) are fine. facebookresearch/gcm checks the same.

    What to do: `dmesg | grep -i clocksource` says why the kernel left the tsc. An administrator can look for a newer
    firmware, or set it back: write `tsc` into that file, or boot with clocksource=tsc.
    """
    current = host.root.text(f"{CLOCK}/current_clocksource")
    if current not in SLOW_CLOCKS:
        yield ok("SL138", current) if current else skipped("SL138", "this machine does not show its clock source")
        return
    others = host.root.text(f"{CLOCK}/available_clocksource").split()
    yield Finding(
        code="SL138",
        severity="warning",
        summary=f"the kernel tells the time by {current}, which makes every look at the clock slow",
        because=(f"available are {', '.join(others)}",) if others else (),
        remedy="`dmesg | grep -i clocksource` says why"
        + (f"; an administrator can set it back: echo tsc > {CLOCK}/current_clocksource" if "tsc" in others else ""),
    )

"""Check that ranks may run next to their GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Device, Finding
from safelaunch.preflight.gpu.look import Fault, conclude, gpus_in_use, grouped, numbers, prevented, spans
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu


def numa_affinity(host: Host) -> Iterator[Finding]:
    """The CPUs that this process may use leave out the NUMA node of a GPU that a rank will use.

    The rank then feeds its GPU across the link between CPU sockets: copies to the GPU are slower, and all ranks share
    that link. A batch system that gives out CPUs without regard to GPUs does this.

    How it is concluded: the CPU affinity of this process, which ranks inherit, has no CPU in common with
    /sys/bus/pci/devices/<GPU>/local_cpulist. With --numa-binding, torch binds each rank to the CPUs of its GPU's NUMA
    node (torch/numa/binding.py): then a GPU whose node sysfs does not know is a warning as well, since torch takes node
    0 for it, or fails. Without binding such GPUs are fine.

    What to do: ask the batch system for CPUs near the GPUs (Slurm: --gres-flags=enforce-binding or more CPUs), or start
    without taskset or numactl.
    """
    stop = prevented(host, "SL128", "the NUMA nodes of the GPUs")
    if stop:
        yield stop
        return
    topology = host.topology()
    places = [
        (gpu, place)
        for gpu in gpus_in_use(host)
        if not gpu.why_unread("address")
        for place in [topology.device(f"GPU{gpu.index}") if topology else None]
        if place
    ]
    found = [(gpu, fault) for gpu, place in places for fault in _judge(host, gpu, place)]
    yield from grouped("SL128", found)
    unknown = [gpu for gpu, place in places if not place.cpus]
    nothing = "this machine does not say which CPUs are near a GPU" if len(unknown) == len(places) else ""
    fine = "ranks may run next to their GPUs"
    if unknown:
        fine += f" (this machine does not say it of {numbers(unknown)})"
    yield from conclude(host, "SL128", "the NUMA node", ("address",), fine, nothing, found=bool(found))


def _judge(host: Host, gpu: Gpu, place: Device) -> Iterator[Fault]:
    binding = host.job.numa_binding
    here = host.affinity()
    near = _cpus(place.cpus)
    if near and not near & here:
        node = f"NUMA node {place.numa_node}, " if place.numa_node is not None else ""
        because = [f"it is next to {node}CPUs {place.cpus}; this process may use CPUs {spans(here)}"]
        if binding:
            because.append(f"--numa-binding {binding} has no CPU to bind its rank to")
        remedy = "ask the batch system for CPUs near the GPUs, or start without taskset or numactl"
        yield Fault("warning", "no CPU next to it may be used", tuple(because), remedy)
    elif binding and place.numa_node is None:
        because = [f"/sys/bus/pci/devices/{gpu.address}/numa_node does not say, and torch takes node 0"]
        remedy = "start without --numa-binding, or have an admin turn on NUMA in the firmware or virtual machine"
        yield Fault("warning", "its NUMA node is not known, for --numa-binding", tuple(because), remedy)


def _cpus(text: str) -> frozenset[int]:
    """The kernel's list of CPUs: `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)

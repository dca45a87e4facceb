"""Check that the GPUs of the job are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from safelaunch.model import Finding
from safelaunch.preflight.check import ok
from safelaunch.preflight.gpu.look import Fault, gpus_in_use, grouped, not_asked, prevented
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.preflight.machine.sizes import size

K = TypeVar("K")

REMEDY = "choose GPUs that are alike (CUDA_VISIBLE_DEVICES), or have an admin look at this one"


def alike(host: Host) -> Iterator[Finding]:
    """A GPU of the job is not like the others.

    The job runs at the speed, and within the memory, of the least of its GPUs. In a server with equal GPUs a difference
    is a wrong or a broken part.

    How it is concluded: model, memory, the PCIe width a GPU is made for and its number of NVLinks are compared between
    the GPUs of the job, and the ones that differ from most are named (a warning). Memory may differ by 2 %, for what
    the driver keeps (an estimate; `gpu_memory_difference` in [preflight.thresholds]), and is compared between GPUs with
    the same ECC mode only, which costs memory on some models. On systems with NVSwitch, where all GPUs are attached in
    the same way, a different PCIe path or no NUMA node is a note. No absolute numbers are asked for.

    What to do: choose GPUs that are alike (CUDA_VISIBLE_DEVICES). In a server have an admin look at the odd one.
    """
    stop = prevented(host, "SL127", "whether the GPUs are alike")
    if stop:
        yield stop
        return
    gpus = gpus_in_use(host)
    found = list(_differences(host, gpus))
    yield from grouped("SL127", found)
    if not host.nvml().answers:
        yield not_asked("SL127", "whether the GPUs are alike")
    elif not found:
        yield ok("SL127", "one GPU, nothing to compare" if len(gpus) == 1 else "the GPUs are alike")


def _differences(host: Host, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Fault]]:
    models = list(_odd(gpus, lambda gpu: gpu.name))
    for gpu, usual in models:
        yield gpu, _fault(f"it is a {gpu.name}", f"most others are {usual}")
    same = [gpu for gpu in gpus if gpu not in [odd for odd, _ in models]]
    for ecc in {gpu.ecc for gpu in same}:
        yield from _memory(host, [gpu for gpu in same if gpu.ecc == ecc and gpu.memory_total])
    for gpu, lanes in _odd([gpu for gpu in same if gpu.pcie_width_max], lambda gpu: gpu.pcie_width_max):
        yield gpu, _fault(f"it is made for PCIe x{gpu.pcie_width_max}", f"most others for x{lanes}")
    for gpu, links in _odd([gpu for gpu in same if not gpu.why_unread("links")], lambda gpu: len(gpu.links)):
        yield gpu, _fault(f"it has {len(gpu.links)} NVLinks", f"most others {links}")
    if any(link.kind == "switch" for gpu in same for link in gpu.links):
        yield from _places(host, same)


def _memory(host: Host, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Fault]]:
    usual = sorted(gpu.memory_total for gpu in gpus)[len(gpus) // 2] if gpus else 0
    for gpu in gpus:
        if abs(gpu.memory_total - usual) > host.threshold("gpu_memory_difference") * usual:
            yield gpu, _fault(f"it has {size(gpu.memory_total)} of memory", f"most others {size(usual)}")


def _places(host: Host, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Fault]]:
    """GPUs whose place on the PCI bus is of another kind."""
    topology = host.topology()
    places = {gpu.index: topology.device(f"GPU{gpu.index}") if topology else None for gpu in gpus}

    def pattern(gpu: Gpu) -> tuple[int, bool]:
        place = places[gpu.index]
        return (len(place.pci_path), place.numa_node is not None) if place else (0, False)

    for gpu, (usual, near) in _odd(gpus, pattern):
        depth, has_node = pattern(gpu)
        mine = [f"{depth} steps down the PCI bus" if depth != usual else "", "" if has_node else "no NUMA node"]
        others = [f"{usual} steps" if depth != usual else "", "" if near == has_node else "a NUMA node"]
        because = (f"it has {_words(mine)}", f"most others have {_words(others)}")
        yield gpu, Fault("note", "attached differently from the other GPUs", because)


def _words(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, parts)) or "none"


def _odd(gpus: Sequence[Gpu], key: Callable[[Gpu], K]) -> Iterator[tuple[Gpu, K]]:
    """The GPUs whose value is not the usual one, and the usual one."""
    if not gpus:
        return
    usual = Counter(map(key, gpus)).most_common(1)[0][0]
    for gpu in gpus:
        if key(gpu) != usual:
            yield gpu, usual


def _fault(what: str, usual: str) -> Fault:
    return Fault("warning", "not like the other GPUs", (f"{what}, {usual}",), REMEDY)

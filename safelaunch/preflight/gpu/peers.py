"""Check that the GPUs of the job are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from safelaunch.model import Finding, Severity
from safelaunch.preflight.gpu.look import Fault, conclude, gpus_in_use, grouped, numbers, prevented
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.sizes import plural, size

REMEDY = "choose GPUs that are alike (CUDA_VISIBLE_DEVICES), or have an admin look at the odd one"


def alike(host: Host) -> Iterator[Finding]:
    """A GPU of the job is not like the others.

    The job runs at the speed, and within the memory, of the least of its GPUs. In a server with equal GPUs a difference
    is a wrong or a broken part.

    How it is concluded: model, memory, the PCIe width a GPU is made for and its number of NVLinks are compared between
    the GPUs of the job. The ones that differ from most are named (a warning). All are named where there are not more of
    one kind than of all others together, such as two that differ. Memory may differ by 2 %, for what the driver keeps
    (an estimate; `gpu_memory_difference` in [preflight.thresholds]), and is compared between GPUs with the same ECC
    mode only, which costs memory on some models. On systems with NVSwitch, where all GPUs are attached in the same way,
    a different PCIe path or no NUMA node is a note. No absolute numbers are asked for.

    What to do: choose GPUs that are alike (CUDA_VISIBLE_DEVICES). In a server have an admin look at the odd one.
    """
    stop = prevented(host, "SL127", "whether the GPUs are alike")
    if stop:
        yield stop
        return
    gpus = [gpu for gpu in gpus_in_use(host) if not gpu.why_unread("name")]
    found = list(_differences(host, gpus))
    yield from grouped("SL127", found)
    nothing = "one GPU, nothing to compare" if len(gpus) < 2 else ""
    if nothing and len(gpus_in_use(host)) > 1:
        nothing = "the GPUs do not tell their models"
    yield from conclude(host, "SL127", "the model", ("name",), "the GPUs are alike", nothing, found=bool(found))


def _differences(host: Host, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Fault]]:
    yield from _compared(gpus, lambda gpu: gpu.name)
    # What else differs between models is no news.
    model = Counter(gpu.name for gpu in gpus).most_common(1)[0][0] if gpus else ""
    same = [gpu for gpu in gpus if gpu.name == model]
    for ecc in {gpu.ecc for gpu in same}:
        having = [gpu for gpu in same if gpu.ecc == ecc and gpu.memory_total]
        yield from _compared(having, _memory(host, having))
    yield from _compared(
        [gpu for gpu in same if gpu.pcie_width_max], lambda gpu: f"made for PCIe x{gpu.pcie_width_max}"
    )
    with_links = [gpu for gpu in same if not gpu.why_unread("links")]
    yield from _compared(with_links, lambda gpu: plural(len(gpu.links), "NVLink"))
    if any(link.kind == "switch" for gpu in same for link in gpu.links):
        yield from _compared([gpu for gpu in same if not gpu.why_unread("address")], _place(host), "note")


def _memory(host: Host, gpus: Sequence[Gpu]) -> Callable[[Gpu], str]:
    """The memory of a GPU in words; of all that are close to the middle one the same."""
    usual = sorted(gpu.memory_total for gpu in gpus)[len(gpus) // 2] if gpus else 0

    def words(gpu: Gpu) -> str:
        close = abs(gpu.memory_total - usual) <= host.threshold("gpu_memory_difference") * usual
        return f"{size(usual if close else gpu.memory_total)} of memory"

    return words


def _place(host: Host) -> Callable[[Gpu], str]:
    """The kind of place that a GPU has on the PCI bus, in words."""
    topology = host.topology()

    def words(gpu: Gpu) -> str:
        place = topology.device(f"GPU{gpu.index}") if topology else None
        steps = plural(len(place.pci_path), "step") if place else "unknown steps"
        return f"{steps} down the PCI bus{'' if place and place.numa_node is not None else ' without a NUMA node'}"

    return words


def _compared(
    gpus: Sequence[Gpu], words: Callable[[Gpu], str], severity: Severity = "warning"
) -> Iterator[tuple[Gpu, Fault]]:
    """The GPUs of which something else is said than of most; all where there is no majority that could be right."""
    groups: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(words(gpu), []).append(gpu)
    if len(groups) < 2:
        return
    remedy = REMEDY if severity == "warning" else ""
    usual, most = max(groups.items(), key=lambda group: len(group[1]))
    if 2 * len(most) <= len(gpus):
        fault = Fault(
            severity,
            "not like one another",
            tuple(f"{numbers(group)}: {said}" for said, group in groups.items()),
            remedy,
        )
        yield from ((gpu, fault) for gpu in gpus)
        return
    others = "all others" if len(most) == len(gpus) - 1 else "most others"
    for said, group in groups.items():
        if said != usual:
            fault = Fault(severity, "not like the other GPUs", (f"{said}; {others}: {usual}",), remedy)
            yield from ((gpu, fault) for gpu in group)

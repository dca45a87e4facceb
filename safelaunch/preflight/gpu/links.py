"""Checks of what connects the GPUs: PCIe, NVLink, peer-to-peer access, the fabric of NVSwitches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped
from safelaunch.preflight.gpu.look import (
    NO_GPU,
    Fault,
    could_not_look,
    each_gpu,
    finding,
    gpus_in_use,
    not_asked,
    numbers,
    prevented,
)
from safelaunch.preflight.gpu.pairs import Peers, between, gpus_of
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Fabric, Gpu, Pair
from safelaunch.sizes import plural

# nvmlGpuP2PStatus_t of nvml.h.
P2P_STATUS = {
    1: "not supported by the chipset",
    2: "not supported by the GPU",
    3: "not supported by the topology",
    4: "disabled by a driver setting",
    5: "not supported",
    6: "unknown",
}

# nvmlGpuFabricState_t and NVML_GPU_FABRIC_HEALTH_* of nvml.h.
FABRIC_STATES = {1: "has not begun", 2: "is in progress"}
COMPLETED = 3
SUMMARIES = {2: "unhealthy", 3: "limited capacity"}
# Shift of a field of two bits in the health mask, in which 1 says yes -> what is then the matter.
HEALTH = {
    0: "degraded bandwidth",
    2: "route recovery under way",
    4: "unhealthy routes",
    6: "recovery from an access timeout under way",
}
# Models whose NVLinks lead to a bridge between two boards, which is bought separately.
BRIDGED = re.compile(r"GeForce|RTX|Quadro|TITAN|PCIe| NVL\b|\bA[34]0\b", re.IGNORECASE)
ALL_DOWN = (
    "have an admin restart nvidia-fabricmanager, or reset the GPUs; if the links stay down, see `nvidia-smi nvlink -s`"
)

CONFIGURATION_SHIFT, CONFIGURED = 8, (0, 1)  # not supported, or nothing wrong


def pcie_width(host: Host) -> Iterator[Finding]:
    """A GPU has fewer PCIe lanes than its peers.

    Half the lanes are half the bandwidth to the host and to network cards: loading and collectives become slow. A card
    that sits badly, a broken riser or a bad lane does this.

    How it is concluded: nvmlDeviceGetCurrPcieLinkWidth below nvmlDeviceGetMaxPcieLinkWidth, and another GPU of this
    node has more lanes (error; facebookresearch/gcm, check_pci.py: CRITICAL; DCGM: PCIE_WIDTH). Where all GPUs have the
    same lesser width the board is wired so, and it is a note. The PCIe generation is not judged: idle GPUs lower it.

    What to do: an admin has the card or its riser reseated, or replaced.
    """
    widest = max((gpu.pcie_width or 0 for gpu in host.nvml().read), default=0)

    def judge(gpu: Gpu) -> Iterator[Fault]:
        now, most = gpu.pcie_width, gpu.pcie_width_max
        if now is None or most is None or now >= most:
            return
        because: tuple[str, ...] = (f"PCIe x{now}, and it is made for x{most}",)
        if now < widest:
            because += (f"other GPUs of this node have x{widest}",)
            remedy = "have an admin reseat or replace the card or its riser"
            yield Fault("error", f"only {now} of {most} PCIe lanes", because, remedy)
        else:
            yield Fault("note", f"{now} of {most} PCIe lanes", because, "nothing, where its slot is wired so")

    yield from each_gpu(
        host, "SL123", "PCIe width", ("pcie_width", "pcie_width_max"), judge, "all PCIe lanes are in use"
    )


def nvlink(host: Host) -> Iterator[Finding]:
    """NVLinks of a GPU are down that are up on its peers.

    NCCL then takes the slower way for the whole node, or fails when it sets up its rings.

    How it is concluded: nvmlDeviceGetNvLinkState of every link that the GPU has. GPUs of one node that differ are an
    error (NVIDIA Health Validation: CRITICAL; nvidia-resiliency-ext: any link down). There is no fixed count: H100 NVL
    has 12 of 18 links by design, and bridges join some GPUs of a workstation only. A GPU without any active link is at
    fault where its peers are connected to switches. Where GPUs have NVLinks and none of them is active, it is a warning
    for a job of several GPUs; a note for models that have NVLink over a bridge only, which is often left out (GeForce,
    RTX, PCIe boards; by the name of the model, an estimate). `gpu_nvlinks` in [preflight.thresholds] says how many
    there must be; fewer on all GPUs are a warning then.

    What to do: an admin resets the GPU, restarts nvidia-fabricmanager or reboots; if the link stays down the GPU, its
    baseboard or its bridge has to be replaced. Where the boards have no bridge there is nothing to do.
    """
    everyone = host.nvml().read
    most = max((gpu.active_links for gpu in everyone), default=0)
    switches = any(link.kind == "switch" for gpu in everyone for link in gpu.links)
    asked = host.threshold("gpu_nvlinks")
    remedy = "have an admin reset the GPU or reboot; if the link stays down, have the hardware replaced"
    several = sum(bool(gpu.links) for gpu in gpus_in_use(host)) > 1

    def judge(gpu: Gpu) -> Iterator[Fault]:
        now, there = gpu.active_links, len(gpu.links)
        if now < most and now < there and (now or switches):
            because = (f"{now} of {there} NVLinks are active, and {most} on other GPUs of this node",)
            yield Fault("error", f"{plural(there - now, 'NVLink')} down", because, remedy)
        elif now < asked:
            yield Fault("warning", f"{now} of {asked:g} NVLinks", ("the profile asks for more (gpu_nvlinks)",), remedy)
        elif there and not most and several:
            bridged = BRIDGED.search(gpu.name)
            because = ("no GPU of this node has an active NVLink" + (": is there a bridge?" if bridged else ""),)
            yield Fault(
                "note" if bridged else "warning",
                f"all {there} NVLinks are down",
                because,
                "nothing, where no bridge is meant to be there" if bridged else ALL_DOWN,
            )

    counts = {(gpu.active_links, len(gpu.links)) for gpu in gpus_in_use(host) if gpu.links}
    (alike,) = counts if len(counts) == 1 else (None,)
    fine = "no NVLink is down that is up on other GPUs"
    if alike and switches:
        fine = f"{alike[0]} of {alike[1]} NVLinks are active on each GPU"
    yield from each_gpu(
        host, "SL124", "NVLink", ("links",), judge, fine, "" if most else "no NVLink is active, and one GPU needs none"
    )


def p2p(host: Host) -> Iterator[Finding]:
    """GPUs that are connected by NVLink cannot access one another's memory.

    NCCL then copies through the host, at a tenth of the speed.

    How it is concluded: nvmlDeviceGetP2PStatus over NVLink of all pairs of GPUs of the job that share active NVLinks.
    All of them without access are an error (leptonai/gpud: unhealthy if all pairs are), some are a warning. GPUs
    without NVLink between them are not judged: PCIe often has no peer access. Nor are those that the fabric has not
    taken up, which are SL126's.

    What to do: an admin restarts nvidia-fabricmanager or reboots the node. Virtual machines may have it turned off.
    """
    stop = prevented(host, "SL125", "peer-to-peer access")
    if stop:
        yield stop
        return
    gpus = [gpu for gpu in gpus_in_use(host) if not _fabric_faults(gpu.fabric)]
    known = {(pair.a, pair.b): pair for pair in host.nvml().pairs}
    pairs = [Peers(a, b, known.get((a.index, b.index), Pair(a.index, b.index))) for a, b in combinations(gpus, 2)]
    linked = [pair for pair in pairs if pair.linked]
    barred: dict[str, list[Peers]] = {}
    for pair in pairs:
        why = pair.why_unknown
        if why:
            barred.setdefault(why, []).append(pair)
    broken = [pair for pair in linked if pair.status.p2p]
    if broken:
        yield _no_access(broken, everywhere=len(broken) == len(linked))
    for why, those in barred.items():
        concerned = gpus_of(those)
        summary = f"peer-to-peer access of {numbers(concerned)} not looked at"
        yield could_not_look("SL125", summary, concerned, why, between(those))
    if not host.nvml().answers:
        yield not_asked("SL125", "peer-to-peer access")
    elif not (broken or barred):
        yield _reached(linked) if linked else skipped("SL125", _nothing(host, gpus))


def _nothing(host: Host, gpus: Sequence[Gpu]) -> str:
    used = gpus_in_use(host)
    if len(used) < 2:
        return "one GPU, which has no peers" if used else NO_GPU
    return "no two GPUs of the job share an NVLink" if len(gpus) > 1 else "the fabric has not taken up the GPUs (SL126)"


def _reached(linked: Sequence[Peers]) -> Finding:
    unknown = [pair for pair in linked if pair.unsupported]
    if len(unknown) == len(linked):
        return skipped("SL125", f"peer-to-peer access: not supported by {numbers(gpus_of(linked))}")
    without = f" (not supported {between(unknown)})" if unknown else ""
    return ok("SL125", f"GPUs reach one another over NVLink{without}")


def _no_access(broken: Sequence[Peers], *, everywhere: bool) -> Finding:
    those = gpus_of(broken)
    common = [gpu for gpu in those if all(gpu in (pair.a, pair.b) for pair in broken)]
    words = sorted({P2P_STATUS.get(pair.status.p2p or 0, f"status {pair.status.p2p}") for pair in broken})
    return finding(
        "SL125",
        # One GPU that no other one reaches is the culprit; with two GPUs there is no telling.
        common if len(common) == 1 else those,
        Fault(
            "error" if everywhere else "warning",
            "no access to the memory of other GPUs in spite of NVLink",
            (f"peer-to-peer over NVLink: {', '.join(words)}", between(broken)),
            "have an admin restart nvidia-fabricmanager, or reboot the node",
        ),
    )


def fabric(host: Host) -> Iterator[Finding]:
    """A GPU has not been taken up by the NVLink fabric, or the fabric is unhealthy.

    On systems with NVSwitch, CUDA does not start on such a GPU ("system not yet initialized"), or NCCL fails later.

    How it is concluded: nvmlDeviceGetGpuFabricInfoV says one of these:
    - the state is not "completed";
    - its status is not success (Azure/azhpc-images issue 506 shows "completed" with "insufficient resources");
    - its summary is "unhealthy" or "limited capacity";
    - a bit of its health mask says so.
    leptonai/gpud (fabric_state.go) judges in the same way. "Not supported" is normal on systems without NVSwitch, as
    are a summary and mask that say so on HGX H100.

    What to do: an admin looks at nvidia-fabricmanager (systemctl status nvidia-fabricmanager) and restarts it; it must
    be of the version of the driver. After a reboot it may take a minute.
    """
    remedy = "have an admin restart it (systemctl restart nvidia-fabricmanager); it must match the driver's version"

    def judge(gpu: Gpu) -> Iterator[Fault]:
        faults = _fabric_faults(gpu.fabric)
        if faults:
            yield Fault("error", "not ready in the NVLink fabric", faults, remedy)

    used = any(gpu.fabric and gpu.fabric.state for gpu in gpus_in_use(host)) if host.nvml().read else False
    nothing = "" if used else "no NVLink fabric here"
    yield from each_gpu(host, "SL126", "the NVLink fabric", ("fabric",), judge, "the NVLink fabric is ready", nothing)


def _fabric_faults(found: Fabric | None) -> tuple[str, ...]:
    if found is None or found.state == 0:
        return ()
    if found.state != COMPLETED:
        return (f"its registration {FABRIC_STATES.get(found.state, f'has state {found.state}')}",)
    if found.status:
        return (f"its registration ended with error {found.status}",)
    faults = [SUMMARIES[found.summary]] if found.summary in SUMMARIES else []
    mask = found.mask or 0
    faults += [word for shift, word in HEALTH.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    if configuration not in CONFIGURED:
        faults.append(f"wrong configuration ({configuration})")
    return (f"health of the fabric: {', '.join(faults)}",) if faults else ()

"""Checks of what the driver and its settings say of a GPU: recovery action, compute mode, MIG, persistence mode."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu

# nvmlDeviceGpuRecoveryAction_t -> what the driver says is due, and how it is done.
ACTIONS = {
    1: ("a reset of the GPU", "have an admin reset it (nvidia-smi --gpu-reset -i INDEX)"),
    2: ("a reboot of the node", "have an admin reboot the node; run on another one until then"),
    3: ("draining its traffic to other GPUs", "end all programs on the GPUs of this node, then have an admin reset it"),
    4: (
        "draining and a reset of the GPU",
        "end all programs on it, then have an admin reset it (nvidia-smi --gpu-reset -i INDEX)",
    ),
    5: ("recovery of the IMEX domain", "have an admin restart nvidia-imex on the nodes of its NVLink domain"),
    6: ("a reset of its PCI bus", "have an admin reset the bus, or reboot the node"),
    7: ("a reboot of the whole system", "have an admin reboot the system"),
}


def recovery(host: Host) -> Iterator[Finding]:
    """The driver says that a GPU has to be reset, or the node rebooted.

    The GPU has had an error that only this clears. Jobs on it fail at once, or go wrong later. Other tools may call the
    same GPU healthy (NVIDIA/DCGM issue 263).

    How it is concluded: field 230 of NVML, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, is not 0; it needs no privilege and
    exists since driver 570. NVIDIA/DCGM (nvvs, checkGpuRecoveryState) and NVIDIA/nvidia-resiliency-ext (GPUHealthCheck)
    fail a GPU for any value but 0 as well.

    What to do: an admin resets the GPU or reboots the node, as the message says. Until then choose other GPUs
    (CUDA_VISIBLE_DEVICES) or another node.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if gpu.recovery_action:
            what, remedy = ACTIONS.get(
                gpu.recovery_action, (f"recovery action {gpu.recovery_action}", "have an admin reboot the node")
            )
            yield Fault(
                "error", f"the driver asks for {what}", ("it has had an error that nothing else clears",), remedy
            )

    yield from each_gpu(
        host, "SL112", "the recovery action", ("recovery_action",), judge, "no recovery action is due on any GPU"
    )


def compute_mode(host: Host) -> Iterator[Finding]:
    """The compute mode of a GPU keeps ranks out.

    In mode "Prohibited" no CUDA program can use the GPU: ranks die with "all CUDA-capable devices are busy or
    unavailable". In an exclusive mode only one process at a time can.

    How it is concluded: nvmlDeviceGetComputeMode. Prohibited is an error. An exclusive mode is a warning where another
    process is on the GPU already, or more ranks than GPUs are asked for; one rank on each GPU is fine with it.

    What to do: an admin sets the mode back (nvidia-smi -c DEFAULT -i INDEX). Where a batch system sets exclusive modes
    on purpose, end the other process, or start one rank for each GPU.
    """
    default = "have an admin set the mode back (nvidia-smi -c DEFAULT -i INDEX)"

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if gpu.compute_mode == 2:
            because = ("no CUDA program can use it: compute mode is Prohibited",)
            yield Fault("error", "closed to all programs", because, f"{default}, or choose other GPUs")
        elif gpu.compute_mode in (1, 3):
            others = [str(process.pid) for process in gpu.processes]
            if others:
                because = (f"compute mode is Exclusive, and pid {', '.join(others)} of the host is on it",)
                yield Fault(
                    "warning", "open to one process only, and taken", because, f"end that process, or {default}"
                )
            elif host.job.nproc > len(host.nvml().gpus):
                because = ("compute mode is Exclusive, and more ranks than GPUs are asked for",)
                yield Fault(
                    "warning", "open to one process only", because, f"start one rank for each GPU, or {default}"
                )

    yield from each_gpu(host, "SL113", "the compute mode", ("compute_mode",), judge, "the GPUs are open to programs")


def mig(host: Host) -> Iterator[Finding]:
    """A GPU is divided into MIG instances, or will be after its next reset.

    A process can use a single instance, and ranks on instances cannot talk to one another over NCCL: a job of several
    ranks fails in its first collective, or all its ranks crowd one instance.

    How it is concluded: nvmlDeviceGetMigMode says that MIG is on, and the job has more than one rank on this node
    (error; NVIDIA's MIG user guide, "CUDA device enumeration": a process sees one instance only). A mode that will
    change at the next reset is a warning.

    What to do: an admin turns MIG off (nvidia-smi -i INDEX -mig 0, then a reset of the GPU). Or choose GPUs without
    MIG, or run one rank on one instance (CUDA_VISIBLE_DEVICES=MIG-<uuid>, --nproc-per-node 1).
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        off = "have an admin turn MIG off (nvidia-smi -i INDEX -mig 0)"
        if gpu.mig and host.job.nproc > 1:
            because = ("a process sees one MIG instance only, and NCCL does not connect instances",)
            yield Fault("error", "divided into MIG instances", because, f"{off}, or choose GPUs without MIG")
        if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig:
            now, then = ("on", "off") if gpu.mig else ("off", "on")
            because = (f"MIG is {now}, and will be {then} after the next reset of the GPU",)
            yield Fault(
                "warning",
                "its MIG mode is about to change",
                because,
                "have an admin reset the GPU, or take the change back",
            )

    yield from each_gpu(host, "SL114", "MIG", ("mig", "mig_pending"), judge, "no GPU is divided into MIG instances")


def persistence(host: Host) -> Iterator[Finding]:
    """Persistence mode is off: the driver lets go of a GPU that no program uses.

    The next program then waits a second or more for the GPU to be initialised, and settings such as clock limits are
    lost in between. It is a note and never more: desktops have it off, and jobs run well without it.

    How it is concluded: nvmlDeviceGetPersistenceMode. NVIDIA/DCGM counts it among the configuration faults of servers.

    What to do: on a server an admin starts nvidia-persistenced, or sets it by hand (nvidia-smi -pm 1).
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if gpu.persistence is False:
            because = ("each first program on an idle GPU waits for its initialisation",)
            remedy = "an admin can start nvidia-persistenced (or nvidia-smi -pm 1)"
            yield Fault("note", "persistence mode is off", because, remedy)

    yield from each_gpu(host, "SL115", "persistence mode", ("persistence",), judge, "persistence mode is on")

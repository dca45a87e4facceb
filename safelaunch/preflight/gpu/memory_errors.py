"""Checks of errors in GPU memory: ECC mode, uncorrectable errors, row remapping."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu, gpus_in_use
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu

RESET = "have an admin reset the GPU (nvidia-smi --gpu-reset -i INDEX) or reboot the node"
COUNTERS = {"ecc_volatile": "since the driver was loaded", "ecc_sram": "of SRAM"}
REPLACE = "have an admin take the node out of service and the GPU replaced (RMA)"


def ecc_mode(host: Host) -> Iterator[Finding]:
    """A GPU that can correct memory errors (ECC) has this turned off.

    A flipped bit then goes unnoticed into weights and gradients.

    How it is concluded: nvmlDeviceGetEccMode; off now, or off after the next reset, is a warning.
    imbue-ai/cluster-health (health_checks.py) asks for both to be on. GPUs without ECC, such as GeForce, are fine.

    What to do: an admin turns it on (nvidia-smi -i INDEX -e 1) and reboots. Where it is off on purpose, turn the check
    down in a profile (`SL117 = "note"` in [preflight.severity]).
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        on = "have an admin turn it on (nvidia-smi -i INDEX -e 1) and reboot"
        if gpu.ecc is False:
            then = "it will be on after the next reboot" if gpu.ecc_pending else "memory errors go unnoticed"
            yield Fault("warning", "ECC is off", (then,), "have an admin reboot the node" if gpu.ecc_pending else on)
        elif gpu.ecc and gpu.ecc_pending is False:
            yield Fault("warning", "ECC will be off after the next reboot", ("it is on until then",), on)

    yield from each_gpu(host, "SL117", "ECC", ("ecc", "ecc_pending"), judge, "ECC is on")


def ecc_errors(host: Host) -> Iterator[Finding]:
    """A GPU has had memory errors that ECC could not correct.

    Since the driver was loaded: the memory is bad until the GPU is reset, programs die of it, and more errors are
    likely. Over its life: its on-chip memory (SRAM) wears out.

    How it is concluded: nvmlDeviceGetTotalEccErrors, uncorrectable. Any volatile one, counted since the driver was
    loaded, is an error (NVIDIA/DCGM: "Drain the GPU and reset it or reboot the node"; imbue-ai/cluster-health: != 0).
    More than 4 aggregate ones in SRAM are a warning: from there on NVIDIA replaces GPUs (stas00/ml-engineering,
    compute/accelerator/nvidia/debug.md). Both numbers can be set in [preflight.thresholds].

    What to do: an admin resets the GPU or reboots the node; if the errors come back, or SRAM is above its limit, the
    GPU is replaced. Until then choose other GPUs.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if (gpu.ecc_volatile or 0) > host.threshold("gpu_ecc_volatile"):
            because = (f"{gpu.ecc_volatile} uncorrectable since the driver was loaded",)
            yield Fault("error", "memory errors that ECC could not correct", because, RESET)
        elif (gpu.ecc_sram or 0) > host.threshold("gpu_ecc_sram"):
            because = (f"{gpu.ecc_sram} uncorrectable errors of SRAM in its life",)
            yield Fault("warning", "its on-chip memory wears out", because, REPLACE)

    counted = [name for name in COUNTERS if any(_counts(gpu, name) for gpu in gpus_in_use(host))]
    if len(counted) == 1:
        (other,) = (words for name, words in COUNTERS.items() if name not in counted)
        fine = f"no uncorrectable memory errors {COUNTERS[counted[0]]}; those {other} are not counted by these GPUs"
    else:
        fine = "no uncorrectable memory errors"
    yield from each_gpu(host, "SL118", "ECC errors", counted or tuple(COUNTERS), judge, fine)


def _counts(gpu: Gpu, counter: str) -> bool:
    why = gpu.why_unread(counter)
    return not (why and why.unsupported)


def row_remap(host: Host) -> Iterator[Finding]:
    """Bad rows of GPU memory wait to be replaced, or could not be.

    GPUs since A100 replace bad rows by spare ones at their next reset. Until then the bad row stays in use. When
    replacing has failed, or the spares run out, errors return.

    How it is concluded: nvmlDeviceGetRemappedRows. A failure is an error (leptonai/gpud: HARDWARE_INSPECTION; DCGM:
    FAIL). Pending ones are an error (gpud: REBOOT; facebookresearch/gcm: CRITICAL; Azure/azurehpc-health-checks:
    NHC2007). So are 512 rows after uncorrectable errors, the limit of DCGM and Azure.

    What to do: pending: an admin resets the GPU (nvidia-smi --gpu-reset -i INDEX), which takes seconds. Failed: the GPU
    is replaced.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        rows = gpu.remapped
        if rows is None:
            return
        if rows.failed:
            yield Fault("error", "a bad row of memory could not be replaced", ("a row remapping has failed",), REPLACE)
        elif rows.uncorrectable >= host.threshold("gpu_remapped_rows"):
            because = (f"{rows.uncorrectable} rows were replaced after uncorrectable errors",)
            yield Fault("error", "its spare rows of memory run out", because, REPLACE)
        elif rows.pending:
            because = ("a bad row of memory is in use until the GPU is reset",)
            yield Fault("error", "a row remapping is pending", because, RESET)

    yield from each_gpu(host, "SL119", "row remapping", ("remapped",), judge, "no bad rows of memory")

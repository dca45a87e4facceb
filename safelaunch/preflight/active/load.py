"""Checks of GPUs under load: speed, clocks, corrected errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_faults import count
from safelaunch.preflight.active.compute_report import Device
from safelaunch.preflight.active.compute_run import NO_GPU, judge
from safelaunch.preflight.active.load_faults import Speed, corrected, slow, throttled
from safelaunch.preflight.check import skipped
from safelaunch.preflight.machine.host import Host


def slow_gpu(host: Host) -> Iterator[Finding]:
    """A GPU computes more slowly than the others of this node.

    All ranks wait in every step for the slowest one: a single GPU at half speed halves the speed of the whole job.

    How it is concluded: all GPUs of the job multiply matrices of 8192 x 8192 in float16 for 2 s at the same time. The
    median time of a product counts, so that a moment's disturbance does not. Each is compared with the median of the
    GPUs of its model on this node: below 0.9 of it is a warning (an estimate of ours; microsoft/superbenchmark calls
    5 % below a baseline defective), below half an error (intelligent-machine-learning/dlrover calls twice the median
    time a straggler); thresholds slow_gpu and very_slow_gpu. There is a median from three GPUs on. Two that differ are
    a warning that names both, one is only measured. No number is absolute. A GPU whose clocks were held back by heat
    or power is left to SL154 if that is as severe. On the CPU ranks share cores, and speed is measured and not judged.

    What to do: see that nothing else runs on the GPU (`nvidia-smi`), and compare its clocks and power limit with its
    peers' (`nvidia-smi -q -d CLOCK,POWER`). Else have it reset or serviced by an admin, and leave it out with
    CUDA_VISIBLE_DEVICES until then.
    """
    speed = Speed(
        "SL151", "computes", "TFLOP/s", 1e12, lambda did: did.flops, *_limits(host, "slow_gpu", "very_slow_gpu")
    )
    yield from _speed(host, speed)


def memory_bandwidth(host: Host) -> Iterator[Finding]:
    """The memory of a GPU is slower than that of the others of this node.

    Most of what a model does beside matrix products is bound by it, and all ranks wait for the slowest one.

    How it is concluded: each GPU copies 512 MiB within its memory, 50 times, after the GEMM of SL151; bytes read and
    written over the median time. It is compared with the median of its model on this node as in SL151: below 0.9 a
    warning, below half an error (thresholds slow_memory and very_slow_memory, estimates of ours). Two that differ are
    a warning that names both. On the CPU it is measured and not judged.

    What to do: see that nothing else runs on the GPU (`nvidia-smi`), and its memory clock and ECC errors
    (`nvidia-smi -q -d CLOCK,ECC`). Else have it reset or serviced by an admin.
    """
    limits = _limits(host, "slow_memory", "very_slow_memory")
    yield from _speed(host, Speed("SL153", "copies", "GB/s", 1e9, lambda did: did.copied, *limits))


def throttled_under_load(host: Host) -> Iterator[Finding]:
    """The clocks of a GPU are held back under load by heat, or by a lack of power.

    An idle GPU looks well. In training it is slow, and all ranks wait for it.

    How it is concluded: during the GEMM of SL151 NVML is asked every 50 ms for the clock event reasons (nvml.h).
    Hardware thermal slowdown (0x40) and power brake (0x80) are errors, hardware slowdown (0x8) and software thermal
    slowdown (0x20) warnings, as NVIDIA/DCGM and leptonai/gpud have them; the power cap (0x4) is how GPUs
    run under full load, and no fault. A reason counts that was there in more than a tenth of the samples (threshold
    throttled_share, an estimate of ours).

    What to do: heat is a matter of fans, air flow and the room, a power brake of power supplies, cabling or the PDU:
    an admin's case both. Leave the GPU or the node out until then.
    """
    yield from _on_gpus(
        host,
        "SL154",
        "throttling under load was not checked",
        lambda devices: throttled(devices, host.threshold("throttled_share")),
    )


def ecc_rate(host: Host) -> Iterator[Finding]:
    """The memory of a GPU has errors all the time, which ECC corrects.

    Results are right, but the GPU stalls over it, and so does the driver when it is asked. NVIDIA/DCGM issue 313 saw
    17,700 errors a second on a GPU that was called healthy. Often uncorrectable errors follow.

    How it is concluded: NVML's count of corrected errors before and after the GEMM of SL151; more than 100 a second is
    a warning (threshold corrected_ecc_rate, an estimate of ours: healthy GPUs have some in a month). GPUs without ECC
    are not judged.

    What to do: have the GPU reset by an admin (`nvidia-smi --gpu-reset -i N`), and serviced if the errors come back.
    """
    yield from _on_gpus(
        host,
        "SL155",
        "ECC errors under load were not checked",
        lambda devices: corrected(devices, host.threshold("corrected_ecc_rate")),
    )


def _limits(host: Host, *names: str) -> Sequence[float]:
    return [host.threshold(name) for name in names]


def _speed(host: Host, speed: Speed) -> Iterator[Finding]:
    if host.job.uses_gpu:
        share = host.threshold("throttled_share")
        yield from judge(host, speed.code, "the speed was not checked", lambda devices: slow(devices, speed, share))
    else:
        yield from judge(host, speed.code, "the speed was not checked", lambda devices: [_measured(devices, speed)])


def _measured(devices: Sequence[Device], speed: Speed) -> Finding:
    rates = [rate for device in devices if (rate := speed.rate(device.did))]
    what = f"{count(devices)}: {speed.text(*rates)} each; " if rates else ""
    return skipped(speed.code, f"{what}not judged on the CPU")


def _on_gpus(
    host: Host, code: str, otherwise: str, judgement: Callable[[Sequence[Device]], Iterable[Finding]]
) -> Iterator[Finding]:
    if host.job.uses_gpu:
        yield from judge(host, code, otherwise, judgement)
    else:
        yield skipped(code, NO_GPU)

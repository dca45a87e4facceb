"""Checks that the devices of the job compute, and that what they compute is right."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_faults import broken, corrupt
from safelaunch.preflight.active.compute_run import deadline_s, judge
from safelaunch.preflight.machine.host import Host


def gpu_context(host: Host) -> Iterator[Finding]:
    """A GPU does not come through a few seconds of work: it hangs, dies or returns an error.

    A rank on it would do the same, and all others would wait for it. NVML may call such a GPU healthy: it only asks the
    driver.

    How it is concluded: one process for each GPU makes a CUDA context, allocates, runs a kernel and checks its result
    (as NVIDIA/NVSentinel's cuda-validation does). Then it does the GEMM of SL151 and SL152 and the copies of SL153. All
    GPUs work at the same time, for 30 s at most; what has not come to its end by then is killed and is the finding, and
    so is a process that died or raised an error. Of a job on the CPU, each rank does the same with small numbers,
    within 20 s. A GPU that has not the memory for it (about 2 GiB) is left unchecked.

    What to do: for errors that are known the message says it, such as a torch that was not built for this GPU. One GPU
    of several that hangs or fails wants a reset (`nvidia-smi --gpu-reset -i N`, by an admin) or a reboot, and service
    if it comes back; leave it out with CUDA_VISIBLE_DEVICES until then. `dmesg | grep -i xid` may say more.
    """
    yield from judge(host, "SL150", "the devices were not checked", lambda devices: broken(devices, deadline_s(host)))


def silent_corruption(host: Host) -> Iterator[Finding]:
    """A GPU computes wrong results, without any error (silent data corruption).

    Training goes on with wrong gradients, on all ranks. Nothing else tells: ECC protects memory and not arithmetic.

    How it is concluded: every GPU of the job gets the same two matrices, made once from a fixed seed, multiplies them
    eight times between spells of full load, and hashes each product. The numbers are whole and so small that no step
    is rounded: whatever algorithm is taken, the product is the same to the bit, so that any difference is a fault.
    A GPU that disagrees with itself is wrong for certain. Among three and more the minority is named; of two that
    differ, and where there is no majority, it cannot be told which is wrong. One GPU is compared with itself alone.
    NVIDIA/nccl-tests issue 172 shows why once is not enough; imbue-ai/cluster-health and microsoft/superbenchmark
    compare results in the same way. Ranks on the CPU do it with small matrices.

    What to do: do not train on this GPU. Run the check again with CUDA_VISIBLE_DEVICES set to it and another, to be
    sure; then have it tested and replaced by an admin (`dcgmi diag -r 4`).
    """
    yield from judge(host, "SL152", "the results were not checked", corrupt)

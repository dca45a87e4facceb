"""Check for variables that are meant for debugging and left in the environment."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped
from safelaunch.preflight.gpu.look import NOT_USED, gpus_in_use, needs_gpu
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.topology import NETWORK_CARDS

PROFILED = "a profiler is loaded into every rank"
DUMPS = "a rank that fails writes a core dump of its GPU, which takes minutes"

# Variable -> what it does. The first ten are those of NVIDIA/DCGM, nvvs/src/Software.cpp.
ALWAYS = {
    "NSIGHT_CUDA_DEBUGGER": "the debugger is attached",
    "CUDA_INJECTION32_PATH": PROFILED,
    "CUDA_INJECTION64_PATH": PROFILED,
    "CUDA_AUTO_BOOST": "it overrides the clocks of the GPUs",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": DUMPS,
    "CUDA_COREDUMP_FILE": DUMPS,
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "a rank that fails waits for a debugger, and the job hangs",
    "CUDA_PROFILE": PROFILED,
    "COMPUTE_PROFILE": PROFILED,
    "OPENCL_PROFILE": PROFILED,
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for, which is slow",
}
OFF = ("", "0")


def debug_variables(host: Host) -> Iterator[Finding]:
    """A variable for debugging is set, which slows the job down or changes how it fails.

    It was set once to look for an error, and stayed in a shell profile or a job script.

    How it is concluded: the environment has one of the variables that NVIDIA/DCGM warns about (nvvs/src/Software.cpp),
    or CUDA_LAUNCH_BLOCKING, with a value other than 0. NCCL_P2P_DISABLE counts where GPUs of the job have NVLink, and
    NCCL_IB_DISABLE where there are network cards for InfiniBand or RoCE and the job has several nodes: elsewhere they
    do no harm (an estimate).

    What to do: unset it, unless you are looking for an error right now.
    """
    if not needs_gpu(host):
        yield skipped("SL116", NOT_USED)
        return
    found = {name: why for name, why in _harmful(host).items() if host.environ.get(name, "") not in OFF}
    for name, why in found.items():
        yield Finding(
            code="SL116",
            severity="warning",
            summary=f"{name}={host.environ[name]} is set",
            because=(why,),
            remedy=f"unset {name}, unless you are looking for an error",
            where=f"environment variable {name}",
        )
    if not found:
        yield ok("SL116", "no variables for debugging are set")


def _harmful(host: Host) -> dict[str, str]:
    found = dict(ALWAYS)
    if host.environ.get("NCCL_P2P_DISABLE") and any(gpu.active_links for gpu in gpus_in_use(host)):
        found["NCCL_P2P_DISABLE"] = "NCCL goes through the host instead of NVLink"
    if host.job.max_nodes > 1 and host.root.names(NETWORK_CARDS):
        found["NCCL_IB_DISABLE"] = "NCCL uses TCP sockets instead of the network cards of this node"
    return found

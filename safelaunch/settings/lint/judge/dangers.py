"""Single values that hang, crash, fill memory, or switch off what would end a hang: one table, by variable."""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.judge.flags import TORCH_ON
from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.wording import Fault, literal, source

# One entry of the Flight Recorder. Measured with gloo on torch 2.13.0.
ENTRY_BYTES = 992
ENTRY_DUMP_BYTES = 143
ENTRY_DUMP_S = 37e-6
DUMP_BUDGET_S = 15.0  # TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC, torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
MANY_ENTRIES = 100_000  # 99 MB and 4 s: more than any search needs (an estimate)
MOST_ENTRIES = 2**31 - 1

# Seconds below which a busy rank is taken for a dead one: a checkpoint or a lazy load of CUDA modules can hold the
# watchdog that long (an estimate; torch's default is 480).
SHORT_HEARTBEAT_S = 60

ON = ("1", "true", "True", "TRUE")

# What torch's watchdog does, by the variables that ask for it.
NEED_WATCHDOG = (
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"),
    *("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
)

Danger = Callable[[Setting, str, InForce], "Fault | None"]


def judge(setting: Setting, env: InForce) -> Fault | None:
    """The danger of one setting; None where there is none, or its value cannot be told."""
    danger = DANGERS.get(setting.name)
    text = literal(setting)
    return danger(setting, text, env) if danger and text is not None else None


def recorder(setting: Setting, text: str, env: InForce) -> Fault | None:  # noqa: ARG001
    """The size of the Flight Recorder, which is a number of entries."""
    remedy = "write TORCH_FR_BUFFER_SIZE=2000, torch's default, or 20000 for a search"
    flight_recorder = source("torch/csrc/distributed/c10d/FlightRecorder.hpp (measured, torch 2.13)")
    match = re.match(r"\s*[+-]?\d+", text)
    if match is None or abs(int(match[0])) > MOST_ENTRIES:
        says = "hangs init_process_group: " + (
            "it is no whole number" if match is None else "it does not fit into 32 bits"
        )
        return Fault("error", says, (flight_recorder,), remedy)
    entries = int(match[0])
    if entries <= MANY_ENTRIES:
        return None
    dump_s = entries * ENTRY_DUMP_S
    lost = f", and torch waits {DUMP_BUDGET_S:g} s for it" if dump_s > DUMP_BUDGET_S else ""
    return Fault(
        "error" if dump_s > DUMP_BUDGET_S else "warning",
        f"counts entries, not bytes: {_bytes(entries * ENTRY_BYTES)} of memory in each rank once it is full",
        (
            f"{entries} entries of {ENTRY_BYTES} bytes; one is taken by each collective",
            f"its dump has {_bytes(entries * ENTRY_DUMP_BYTES)} and takes {_time(dump_s)}{lost}",
            flight_recorder,
        ),
        remedy,
    )


def detail(setting: Setting, text: str, env: InForce) -> Fault | None:  # noqa: ARG001
    """TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    if text.upper() != "DETAIL":
        return None
    if env.context.backend != "gloo":
        return None  # then it only costs
    crash = (
        "with gloo on torch 2.13.0 (CPU), every rank that uses DDP dies of a segmentation fault: 4 of 4 runs, measured"
    )
    slow = "every collective is checked first, through a second group over gloo: about 3 times as slow (measured)"
    remedy = "write TORCH_DISTRIBUTED_DEBUG=INFO; DETAIL only while you look for mismatched collectives"
    where = source("torch/distributed/distributed_c10d.py, _create_process_group_wrapper")
    return Fault("error", "crashes ranks that use DDP with gloo", (crash, slow, where), remedy)


def loopback(setting: Setting, text: str, env: InForce) -> Fault | None:
    """The loopback interface where there are several nodes."""
    nodes = env.context.nodes
    if nodes is None or nodes < 2 or text.removeprefix("=") != "lo":
        return None
    return Fault(
        "error",
        f"gives {nodes} nodes an interface over which they cannot reach one another",
        ("lo ends on its own node",),
        f"unset {setting.name}, or name an interface between the nodes; `ip -brief address` shows them",
    )


def core_dump(setting: Setting, text: str, env: InForce) -> Fault | None:  # noqa: ARG001
    """CUDA_ENABLE_COREDUMP_ON_EXCEPTION, which writes everything unless told what to leave out."""
    if (
        text not in ON
        or env.has("CUDA_COREDUMP_GENERATION_FLAGS")
        or env.text("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP") in ON
    ):
        return None
    return Fault(
        "warning",
        "makes each rank that fails write all of its GPU memory to disk",
        (
            "without CUDA_COREDUMP_GENERATION_FLAGS a dump leaves nothing out",
            source("NVIDIA cuda-gdb manual, GPU core dumps"),
        ),
        "add CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,"
        "skip_local_memory,skip_constbank_memory",
    )


def waits_for_debugger(setting: Setting, text: str, env: InForce) -> Fault | None:  # noqa: ARG001
    """CUDA_DEVICE_WAITS_ON_EXCEPTION."""
    if text in ("", "0"):
        return None
    return Fault(
        "note" if env.context.debugging else "warning",
        "makes a rank that fails on its GPU wait for a debugger: the job hangs instead of ending",
        (source("NVIDIA/DCGM nvvs/src/Software.cpp; NVIDIA cuda-gdb manual"),),
        "unset it, unless cuda-gdb is going to be attached",
    )


def heartbeat(setting: Setting, text: str, env: InForce) -> Fault | None:
    """TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, which is no timeout of collectives."""
    match = re.fullmatch(r"\s*\d+\s*", text)
    if match is None or not 0 < int(match[0]) < SHORT_HEARTBEAT_S or env.text("TORCH_NCCL_ENABLE_MONITORING") == "0":
        return None
    return Fault(
        "warning",
        "kills healthy ranks: it limits how long torch's watchdog may stand still, not how long a collective takes",
        (
            f"a checkpoint or a long CUDA call holds the watchdog longer than {int(match[0])} s; the default is 480",
            source("torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, HeartbeatMonitor::runLoop"),
        ),
        f"unset {setting.name}; to limit collectives use `process_group` in [timeouts] or init_process_group(timeout=)",
    )


def errors_ignored(setting: Setting, text: str, env: InForce) -> Fault | None:
    """TORCH_NCCL_ASYNC_ERROR_HANDLING=0, where nothing else ends a collective."""
    if text != "0" or env.torch_on("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"):
        return None
    return Fault(
        "warning",
        "leaves ranks hanging: a collective that fails or times out ends nothing",
        (source("torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, ErrorHandlingMode::NoHandling"),),
        f"unset {setting.name}, or write 1",
    )


def blocking_wait(setting: Setting, text: str, env: InForce) -> Fault | None:
    """TORCH_NCCL_BLOCKING_WAIT by itself; beside what it switches off, it is a pair (SL215)."""
    if text.lower() not in TORCH_ON or env.has(*NEED_WATCHDOG):
        return None
    return Fault(
        "warning",
        "switches off torch's watchdog: no error handling, no heartbeat, no dump of the Flight Recorder",
        (source("torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: the watchdog starts only without blocking wait"),),
        f"unset {setting.name}; torch ends a collective that times out without it",
    )


def low_latency_128(setting: Setting, text: str, env: InForce) -> Fault | None:  # noqa: ARG001
    """NCCL_PROTO that allows nothing but LL128."""
    words = {word.strip().upper() for word in text.split(",") if word}
    if words != {"LL128"}:
        return None
    return Fault(
        "warning",
        "forces LL128, which can corrupt data on hardware that does not support it",
        ("NCCL picks LL128 by itself where it is safe", source("NCCL user guide, NCCL_PROTO")),
        "unset NCCL_PROTO",
    )


def _bytes(count: int) -> str:
    return (
        f"{count / 1e9:.0f} GB"
        if count >= 9.5e9
        else f"{count / 1e9:.1f} GB"
        if count >= 1e9
        else f"{count / 1e6:.0f} MB"
    )


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


DANGERS: dict[str, Danger] = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": recorder,
    "TORCH_FR_BUFFER_SIZE": recorder,
    "TORCH_DISTRIBUTED_DEBUG": detail,
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": core_dump,
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": waits_for_debugger,
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": heartbeat,
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": errors_ignored,
    "TORCH_NCCL_BLOCKING_WAIT": blocking_wait,
    "NCCL_BLOCKING_WAIT": blocking_wait,
    "NCCL_PROTO": low_latency_128,
    "NCCL_SOCKET_IFNAME": loopback,
    "GLOO_SOCKET_IFNAME": loopback,
}

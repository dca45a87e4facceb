"""Settings of torch and of CUDA that do not go together."""

from __future__ import annotations

from safelaunch.settings.lint.judge import alloc_conf, versions
from safelaunch.settings.lint.judge.flags import TORCH_OFF
from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.pair import Pair
from safelaunch.settings.lint.judge.wording import source

PG = "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
ASYNC = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DUMP = "TORCH_NCCL_DUMP_ON_TIMEOUT"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
MONITORING = "TORCH_NCCL_ENABLE_MONITORING"
HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
FSDP = "ACCELERATE_USE_FSDP"


def blocking_wait(env: InForce) -> bool:
    """Blocking wait, and something that only the watchdog does."""
    handled = env.has(*ASYNC) and not env.off(*ASYNC) and env.text(*ASYNC) is not None
    return env.torch_on(*BLOCKING) and (handled or env.torch_on(DUMP) or env.has(PIPE))


def nothing_recorded(env: InForce) -> bool:
    """A dump is asked for, and the recorder has no room."""
    asked = env.torch_on(DUMP) or env.has(PIPE)
    return asked and any(env.off(name) for name in RECORDER) and not recorders_differ(env)


def recorders_differ(env: InForce) -> bool:
    """Two sizes for one recorder."""
    return env.differ(*RECORDER)


def pipe_without_size(env: InForce) -> bool:
    """Before torch 2.11, the pipe wants its size said."""
    old = versions.older("torch", env.context.installed, "2.11")
    return old and env.has(PIPE) and not env.has("TORCH_NCCL_TRACE_BUFFER_SIZE")


def nobody_listens(env: InForce) -> bool:
    """A limit for torch's watchdog, and nobody who watches it."""
    return env.has(HEARTBEAT) and (env.text(MONITORING) or "").lower() in TORCH_OFF


def async_allocator(env: InForce) -> bool:
    """cudaMallocAsync with an option that only the native allocator knows."""
    conf = env.text(*alloc_conf.NAMES) or ""
    keys = dict(alloc_conf.options(conf))
    return keys.get("backend") == "cudaMallocAsync" and any(key in keys for key in alloc_conf.NATIVE_ONLY)


def register_hook(env: InForce) -> bool:
    """torch of the 2.2 era: the hook and expandable segments."""
    old = versions.older("torch", env.context.installed, "2.3")
    hook = env.torch_on("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")
    return old and hook and alloc_conf.option(env.text(*alloc_conf.NAMES) or "", "expandable_segments") == "True"


def pipe_without_trigger(env: InForce) -> bool:
    """A pipe for dumps on request, and no requests."""
    trigger = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
    return env.has("CUDA_COREDUMP_PIPE") and (not env.has(trigger) or env.text(trigger) in ("", "0"))


PAIRS = (
    Pair(
        (*BLOCKING, *ASYNC, DUMP, PIPE),
        blocking_wait,
        "error",
        "with blocking wait there is no watchdog, which would handle errors and write dumps",
        (source(f"{PG}, constructor: the watchdog starts only without blocking wait"),),
        "unset the blocking wait; torch ends a collective that times out without it",
    ),
    Pair(
        RECORDER,
        recorders_differ,
        "error",
        "the first sizes the Flight Recorder, the second decides whether it is dumped",
        (source(f"torch/csrc/distributed/c10d/FlightRecorder.hpp, and traceBufferSize_ in {PG}"),),
        "set both to the same number, or only TORCH_FR_BUFFER_SIZE from torch 2.11 on",
    ),
    Pair(
        (DUMP, PIPE, *RECORDER),
        nothing_recorded,
        "error",
        "there is nothing to dump: the Flight Recorder is off",
        (source(f"{PG}, dumpDebuggingInfo"),),
        "write TORCH_FR_BUFFER_SIZE=2000, or leave out the dump",
    ),
    Pair(
        (PIPE,),
        pipe_without_size,
        "error",
        "there will be no pipe: before torch 2.11 it needs TORCH_NCCL_TRACE_BUFFER_SIZE as well",
        (source("torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, DumpPipe"),),
        "write TORCH_NCCL_TRACE_BUFFER_SIZE=2000 too",
    ),
    Pair(
        (MONITORING, HEARTBEAT),
        nobody_listens,
        "warning",
        "the limit does nothing: without the monitor nothing waits for the heartbeat",
        (source(f"{PG}, HeartbeatMonitor: it is started where {MONITORING} is on"),),
        f"unset {MONITORING}, or {HEARTBEAT}",
    ),
    Pair(
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        lambda env: env.differ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        "error",
        "torch takes PYTORCH_CUDA_ALLOC_CONF only, even when it is empty",
        (source("c10/cuda/CUDAAllocatorConfig.h (measured, torch 2.13)"),),
        "put all options into one of them, and unset the other",
    ),
    Pair(
        alloc_conf.NAMES,
        async_allocator,
        "warning",
        f"cudaMallocAsync ignores {', '.join(alloc_conf.NATIVE_ONLY)}",
        (source("c10/cuda/CUDAAllocatorConfig.cpp, parseArgs"),),
        "leave out the backend, or the options of the native allocator",
    ),
    Pair(
        ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", *alloc_conf.NAMES),
        register_hook,
        "warning",
        "this torch switches the hook off where segments are expandable",
        (source("ProcessGroupNCCL.cpp of torch 2.2, constructor"),),
        "choose one of the two",
    ),
    Pair(
        ("TORCH_SHOW_CPP_STACKTRACES",),
        lambda env: env.text("TORCH_SHOW_CPP_STACKTRACES") == "1" and not env.has("TORCH_DISABLE_ADDR2LINE"),
        "note",
        "an exception can hold a rank for minutes, while symbols are looked up",
        ("torch says so itself: if this hangs, rerun with TORCH_DISABLE_ADDR2LINE=1 (measured, 2.13)",),
        "add TORCH_DISABLE_ADDR2LINE=1 where it takes too long",
    ),
    Pair(
        ("CUDA_COREDUMP_PIPE",),
        pipe_without_trigger,
        "warning",
        "there will be no pipe without CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
        (source("NVIDIA cuda-gdb manual, GPU core dumps"),),
        "add CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
    ),
    Pair(
        ("CUDA_DEVICE_MAX_CONNECTIONS", FSDP),
        lambda env: env.number("CUDA_DEVICE_MAX_CONNECTIONS") == 1 and env.torch_on(FSDP),
        "warning",
        "one work queue keeps FSDP from overlapping computation and communication",
        ("tensor parallelism wants 1, FSDP does not", source("NVIDIA/Megatron-LM megatron/training/arguments.py")),
        "unset CUDA_DEVICE_MAX_CONNECTIONS with FSDP",
    ),
)

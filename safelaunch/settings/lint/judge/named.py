"""Values of single variables that follow rules of their own."""

from __future__ import annotations

import dataclasses
import re

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import integers
from safelaunch.settings.lint.judge.integers import strtoll
from safelaunch.settings.lint.judge.wording import Fault, listed, quoted, source

# Whole words that hide every GPU, as they are meant to; NoDevFiles is what Slurm sets where a job has no GPU.
_NO_GPU = re.compile(r"\s*(-\d+|NoDevFiles|none|void|null|)\s*", re.IGNORECASE)
_UUID = re.compile(r"GPU-[0-9a-fA-F-]*|MIG-.*")
_NUMBER = re.compile(r"[+-]?\d+")

# What libgomp reads: whole numbers above 0, one for each level of nesting. Anything else voids the whole value.
_THREADS = re.compile(r"\s*\+?0*[1-9]\d*\s*")
_GOMP = source("measured with the libgomp of torch 2.13: `Invalid value for environment variable`")
_BINDINGS = frozenset({"true", "false", "master", "primary", "close", "spread"})

# :SIZE:COUNT, once or more. Source: aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize.
_WORKSPACE = re.compile(r"(?::\d+:\d+)+")


def one_file_per_process(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """Paths that each rank opens for itself: without %p, ranks of one host share a file."""
    if not text or "%p" in text or text.startswith("/dev/"):
        return None
    by = "NCCL opens it with mode w" if variable.owner == "nccl" else "each rank writes its own dump"
    return Fault(
        "warning",
        "is one file for all ranks of a host, and they overwrite one another"
        if "%h" in text
        else "is one file for all ranks, and they overwrite one another",
        (f"{by}; %p becomes the process id, %h the host", source(variable.source)),
        f"write {variable.name}={_with_marks(text)}",
    )


def _with_marks(path: str) -> str:
    stem, dot, ending = path.rpartition(".")
    marks = ".%p" if "%h" in path else ".%h.%p"
    return f"{stem}{marks}.{ending}" if dot and "/" not in ending else path + marks


def visible_devices(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """CUDA_VISIBLE_DEVICES: the list ends, without a word, at the first entry that is no device; and of an entry only
    the number at its beginning is read. A device that is named twice hides all."""
    entries = [entry.strip() for entry in text.split(",")]
    if _NO_GPU.fullmatch(entries[0]) and not any(entries[1:]):
        return None
    why = (
        "CUDA takes indices and UUIDs (GPU-..., MIG-...), reads a number as C does, and stops at the first other entry",
        source("torch/cuda/__init__.py, _parse_visible_devices"),
    )
    remedy = "write indices with commas between them, or unset it to see all"
    visible: list[str] = []
    odd = ""
    for number, entry in enumerate(entries):
        match = _NUMBER.match(entry)
        device = entry if _UUID.fullmatch(entry) else str(int(match[0])) if match else "-1"
        if device in visible:
            return Fault("error", f"names {device} twice, and hides every GPU", why[1:], f"name {device} once")
        if device.startswith("-"):
            if not any(entries[number + 1 :]) and _NO_GPU.fullmatch(entry):
                break  # a comma or -1 at the end of the list, which ends it anyway
            return Fault("error", f"has an entry that is no GPU, {quoted(entry)}: {_only(visible)}", why, remedy)
        visible.append(device)
        odd = odd or (entry if match and match.end() < len(entry) and not _UUID.fullmatch(entry) else "")
    if not odd:
        return None
    more = re.search(r"\D[1-9]|[-:;\s]\d", odd)  # 0-3 names more than it gives; 1gpu and 1.0 name what they give
    says = f"has {quoted(odd)}, of which only the number at its beginning is read: {_only(visible)}"
    return Fault("error" if more else "warning", says, why, remedy)


def _only(visible: list[str]) -> str:
    if not visible:
        return "every GPU is hidden"
    of_numbers = "GPU " if all(device.isdecimal() for device in visible) else ""
    if len(visible) == 1:
        return f"only {of_numbers}{visible[0]} is visible"
    return f"only {of_numbers.replace('GPU', 'GPUs')}{listed(visible)} are visible"


def threads(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """OMP_NUM_THREADS, as libgomp reads it."""
    if all(_THREADS.fullmatch(entry) for entry in text.split(",")):
        return None
    says = "is ignored: it takes a number from 1 on, or several with commas between them"
    why = ("each rank then has a thread for every core, for torchrun sets 1 only where nothing is set", _GOMP)
    return Fault("warning", says, why, "write the number of threads of a rank, such as 4, or unset it")


def binding(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """OMP_PROC_BIND, as libgomp reads it."""
    words = [word.strip().lower() for word in text.split(",")]
    if all(word in _BINDINGS for word in words) and (len(words) == 1 or not {"true", "false"} & set(words)):
        return None
    return Fault("warning", "is ignored", (_GOMP,), f"it takes {', '.join(variable.values)}")


def workspace(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """CUBLAS_WORKSPACE_CONFIG, which torch and cuBLAS read."""
    if not text or _WORKSPACE.fullmatch(text):
        return None
    says = "is not understood, and the default is used: it wants :SIZE:COUNT"
    colon = f":{text}" if re.fullmatch(r"\d+:\d+", text) else ":4096:8"
    why = "torch's deterministic algorithms raise without :4096:8 or :16:8"
    return Fault(
        "warning",
        says,
        (why, source("aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize (read, not run)")),
        f"write {variable.name}={colon}",
    )


def connections(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """CUDA_DEVICE_MAX_CONNECTIONS. What CUDA makes of other values is not documented."""
    if not text or (re.fullmatch(r"\s*\d+\s*", text) and 1 <= int(text) <= 32):
        return None
    says = "is out of range: it takes 1 to 32"
    return Fault("warning", says, (source(variable.source),), "use 1 to 32; the default is 8")


def gloo_transport(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """GLOO_DEVICE_TRANSPORT: a word in exactly this case, of those that torch was built with."""
    if text in ("TCP", "TCP_TLS", "IBVERBS"):
        return None
    why = (
        "RuntimeError: makeDeviceForInterface(): unsupported gloo device (measured, torch 2.13)",
        "torch's wheels for Linux have TCP; other builds can have TCP_TLS or IBVERBS",
    )
    remedy = f"unset {variable.name}, which gives TCP"
    return Fault("error", "makes every Gloo process group raise: it takes TCP", why, remedy)


def ib_timeout(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """NCCL_IB_TIMEOUT, an exponent, which has no "longer than the longest"."""
    value, rest = strtoll(text)
    because = (
        "it is an exponent: 4.096 us * 2^n, so that 20, the default, is 4.3 s; 0 and 32 or more mean no timeout at all",
        source("NCCL user guide, NCCL_IB_TIMEOUT; NVIDIA/nccl src/transport/net_ib"),
    )
    remedy = f"use 1 to 31; 22 is 17 s, 23 is 34 s; unset it for {variable.default}"
    if value > 31 and not rest:
        return Fault("error", "is out of range: it takes 1 to 31, and this waits without end", because, remedy)
    if value == 0 and rest != text and not rest:
        return Fault("warning", "means no timeout at all: a lost peer is waited for without end", because, remedy)
    fault = integers.of_c(variable, text, installed)
    if fault is not None and rest and 0 < value <= 31 and re.fullmatch(r"s(ec)?|\.0*", rest.strip()):
        return dataclasses.replace(fault, severity="warning")  # it acts much as it was meant
    return fault


def comm_id(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """NCCL_COMM_ID, the address at which the first rank listens."""
    if not text or re.fullmatch(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^:\s]+):\d{1,5}", text.strip()):
        return None
    why = (
        "it is the address of the first rank, and no name of the job: processes of other jobs do not meet by it",
        source("NVIDIA/nccl src/bootstrap.cc: <ipv4>:<port>, [<ipv6>]:<port> or <hostname>:<port>"),
    )
    says = "is no address with a port: no communicator can be made"
    return Fault("error", says, why, f"unset {variable.name}: torch hands out the address itself")

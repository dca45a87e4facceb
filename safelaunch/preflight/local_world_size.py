"""How many ranks `--nproc-per-node` means on this machine, without importing torch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from safelaunch.codes import EXIT_REFUSED, EXIT_USAGE
from safelaunch.model import SafelaunchError
from safelaunch.preflight.gpu.driver import no_answer
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.visible import VARIABLE, visible_gpus
from safelaunch.sizes import plural

GIVE_A_NUMBER = "give a number: --nproc-per-node N"


def ranks_here(nproc_per_node: str, host: Host) -> int:
    """The ranks of this node, by torchrun's rules: a number; `cpu`: the CPUs this process may run on; `gpu`: the GPUs
    that torch would see; `auto`: as `gpu` where there are GPUs, else as `cpu`.

    Raises SafelaunchError: SL001 (usage) for anything else, SL107 or SL108 (refused) where GPUs are asked for, or
    must be counted, and cannot be.
    """
    if nproc_per_node == "cpu":
        return host.cpu_count()
    if nproc_per_node == "auto":
        return gpus_here(host) or host.cpu_count()
    if nproc_per_node == "gpu":
        gpus = gpus_here(host)
        if not gpus:
            raise SafelaunchError(
                "SL107",
                "--nproc-per-node gpu: no GPU is visible here",
                "run on a node with GPUs, correct CUDA_VISIBLE_DEVICES, or give --nproc-per-node N for a CPU job",
                because=(_why_none(host),),
                exit_code=EXIT_REFUSED,
            )
        return gpus
    if re.fullmatch(r"[1-9][0-9]*", nproc_per_node):
        return int(nproc_per_node)
    raise SafelaunchError(
        "SL001",
        f"--nproc-per-node {nproc_per_node}: expected a number above 0, auto, gpu or cpu",
        "devices of other kinds are not counted without torch: " + GIVE_A_NUMBER,
        exit_code=EXIT_USAGE,
    )


def gpus_here(host: Host) -> int:
    """The number of GPUs that torch would see: 0 without a driver, or with a torch that is built for CPU alone.

    Raises SafelaunchError SL107 or SL108 where it cannot be told: the driver does not answer, MIG, AMD.
    """
    build = torch_build()
    if build == "cpu":
        return 0
    if build != "cuda":
        raise _unknown("SL107", f"torch is built for {build}, whose devices are not counted without it")
    snapshot = host.nvml()
    if snapshot.absent:
        return 0
    if snapshot.unknown:
        raise _unknown("SL108", snapshot.unknown)
    if not snapshot.answers:
        fault = no_answer(snapshot, needed=True)
        raise SafelaunchError(
            "SL108", fault.summary, fault.remedy, because=fault.because, where=fault.where, exit_code=EXIT_REFUSED
        )
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        raise _unknown("SL107", "MIG instances are not counted without torch")
    return len(visible)


def uses_gpu(nproc_per_node: str, host: Host) -> bool:
    """Whether ranks of this node would use NCCL, as far as can be told before their program runs: it does where it
    finds GPUs. GPUs that cannot be counted are there too, and the checks say what is wrong with them."""
    if nproc_per_node == "cpu" or torch_build() not in ("cuda", "hip"):
        return False
    if nproc_per_node == "gpu":
        return True
    try:
        return gpus_here(host) > 0 or _hidden_by_mistake(host)
    except SafelaunchError:
        return True


def _hidden_by_mistake(host: Host) -> bool:
    """Whether CUDA_VISIBLE_DEVICES is to name GPUs and names none of those that are here. An empty text and -1 are how
    people hide them."""
    return bool(host.nvml().gpus) and host.environ.get(VARIABLE, "").strip() not in ("", "-1")


def torch_build() -> str:
    """What the installed torch is built for: `cuda`, `hip`, `xpu` or `cpu`, from its version file; `cuda` where that
    cannot be read, since then the driver has the last word."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        return "cuda"
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return "cuda"
    for kind in ("hip", "xpu", "cuda"):
        if re.search(rf"^{kind}\b[^=\n]*= *['\"]", text, re.MULTILINE):
            return kind
    return "cpu"


def _why_none(host: Host) -> str:
    if torch_build() == "cpu":
        return "the installed torch is built for CPU alone"
    if host.nvml().absent:
        return "there is no NVIDIA driver on this machine"
    return f"the driver has {plural(len(host.nvml().gpus), 'GPU')}, {VARIABLE}={host.environ.get(VARIABLE)!r}"


class UncountedError(SafelaunchError):
    """How many GPUs there are cannot be told, which says nothing against the node."""


def _unknown(code: str, reason: str) -> UncountedError:
    return UncountedError(
        code, "the number of GPUs cannot be told", GIVE_A_NUMBER, because=(reason,), exit_code=EXIT_REFUSED
    )

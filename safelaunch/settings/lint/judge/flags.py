"""Values that are on or off, each program in its own way."""

from __future__ import annotations

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import integers, versions
from safelaunch.settings.lint.judge.integers import OFF_WORDS, strtoll
from safelaunch.settings.lint.judge.wording import Fault, source

TORCH_ON = frozenset({"y", "yes", "1", "t", "true"})
TORCH_OFF = frozenset({"n", "no", "0", "f", "false"})
# What the Flight Recorder reads when it is made, with every backend; and what is read where it is dumped.
OF_THE_RECORDER = frozenset({"TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK"})
AT_A_DUMP = frozenset({"TORCH_INCLUDE_STACK_TRACE", "TORCH_INCLUDE_ONLY_ACTIVE", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"})
OFI_WORDS = frozenset({"true", "false"})


def of_torch(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """torch's getCvarBool: a fixed set of words in any case; all else raises."""
    if text.lower() in TORCH_ON | TORCH_OFF:
        return None
    remedy = f"write {variable.name}={0 if text.lower() in OFF_WORDS else 1}, or unset it"
    if variable.name in OF_THE_RECORDER:
        says = "makes each rank abort or hang in init_process_group: it takes 1 or 0"
        return Fault(
            "error",
            says,
            ("the Flight Recorder reads it while the group is made (measured, torch 2.13, gloo)",),
            remedy,
        )
    if variable.name in AT_A_DUMP:
        if installed.torch is not None and installed.torch.cpu_only:
            return None
        says = "is no word that torch takes, where it dumps the Flight Recorder: 1 or 0"
        why = "it is first read at a dump after a timeout of NCCL; with gloo nothing reads it (measured, torch 2.13)"
        return Fault("warning", says, (why, source(variable.source)), remedy)
    return Fault(
        "error",
        "makes torch raise at the first process group: it takes 1 or 0",
        (source("torch/csrc/distributed/c10d/Utils.hpp, getCvarBool"),),
        remedy,
    )


def zero_or_one(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """c10's check_env: 0 or 1; all else is ignored with a warning."""
    if text in ("0", "1"):
        return None
    return Fault(
        "warning",
        "is ignored: it takes 1 or 0 and no other word",
        (
            "torch warns in every rank: Ignoring invalid value for boolean flag",
            source("c10/util/env.cpp (measured, 2.13)"),
        ),
        f"write {variable.name}=1" if text.lower() not in OFF_WORDS else f"unset {variable.name}",
    )


def equals_one(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """A comparison with the text 1."""
    if text == "1" or text.strip().lower() in OFF_WORDS:
        return None
    return Fault("error", "counts as off: only 1 is on", (source(variable.source),), f"write {variable.name}=1")


def p2p_disable(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """NCCL_P2P_DISABLE, a number that is compared with 1."""
    value, _ = strtoll(text)
    if value == 1 or text.strip().lower() in OFF_WORDS or (value == 0 and text.strip()[:1] == "0"):
        return None
    return Fault(
        "error",
        "does nothing: only 1 disables P2P",
        (source("NVIDIA/nccl src/graph/paths.cc, ncclGetLevel"),),
        "write NCCL_P2P_DISABLE=1",
    )


def presence(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """A variable that is on as soon as it is there."""
    if text.strip().lower() not in OFF_WORDS:
        return None
    return Fault(
        "error",
        "switches it on: any value does, 0 too",
        (variable.doc, source(variable.source)),
        f"unset {variable.name}",
    )


def truthy_text(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """A variable that is on as soon as it has a value."""
    return presence(variable, text, installed) if text else None


def of_nccl(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """A bool of NCCL that takes words from 2.30 on, and was a number before."""
    return integers.of_c(variable, text, installed) if versions.older("nccl", installed, "2.30") else None


def of_ofi(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """Parameters of aws-ofi-nccl: a value that does not fit keeps the plugin from starting."""
    number = text.strip().lstrip("+-").isdecimal()
    fits = {
        "bool": number or text.lower() in OFI_WORDS,
        "int": number or not variable.default.isdecimal(),
        "enum": text.upper() in {value.upper() for value in variable.values},
    }
    if fits.get(variable.kind, True):
        return None
    takes = {"bool": "true or false", "int": "a whole number", "enum": " or ".join(variable.values)}[variable.kind]
    return Fault(
        "error",
        f"keeps the plugin aws-ofi-nccl from starting: it takes {takes}",
        (source(variable.source),),
        f"use {takes}",
    )

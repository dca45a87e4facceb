"""NCCL_DEBUG_SUBSYS, which replaces what NCCL prints by default."""

from __future__ import annotations

from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.nccl_pairs import LOUD
from safelaunch.settings.lint.judge.wording import Fault, source


def chosen(text: str) -> frozenset[str]:
    """The subsystems that are named; none where the list excludes."""
    return frozenset() if text.startswith("^") else frozenset(word.strip().upper() for word in text.split(",") if word)


def without_init(setting: Setting, text: str, env: InForce) -> Fault | None:
    """Subsystems without INIT, where NCCL does print."""
    words = chosen(text) if setting.name == "NCCL_DEBUG_SUBSYS" else frozenset()
    if not words or words & {"INIT", "ALL"} or env.debug_level not in LOUD:
        return None
    lines = ("COLL is one line for each collective of each rank",) if "COLL" in words else ()
    return Fault(
        "note",
        "replaces the default, so that the lines of INIT and ENV are lost",
        (*lines, source("NVIDIA/nccl src/debug.cc, ncclDebugInit")),
        f"write NCCL_DEBUG_SUBSYS=INIT,ENV,{text}, unless {text} alone is wanted",
    )

"""How our `sitecustomize` comes into every Python of the workers: by their PYTHONPATH."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "inject")
EXEC = "SAFELAUNCH_EXEC"  # names the folder in which ranks below `safelaunch exec` say who they are

# What makes a Python a rank, or one below it, of a launch of ours.
OF_RANKS = ("SAFELAUNCH_RANK_DIR", "SAFELAUNCH_SLOT", "SAFELAUNCH_AGENT", "SAFELAUNCH_BLACK_BOX", "SAFELAUNCH_ARMED")


def pythonpath(known: str | None) -> str:
    """PYTHONPATH with our folder in front. `known` is what it is without us, None where it is not set: an empty one
    means the current directory."""
    return FOLDER if known is None else FOLDER + os.pathsep + known


def step_back(environ: MutableMapping[str, str]) -> None:
    """Leave what this process starts to its own arrangements, where a `safelaunch exec` further up has armed it."""
    if environ.pop(EXEC, None) is None:
        return
    kept = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry != FOLDER]
    if kept:
        environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        environ.pop("PYTHONPATH", None)


def can_be_named() -> bool:
    """Whether PYTHONPATH can name our folder: its separator has no way to be quoted."""
    return os.pathsep not in FOLDER

"""The plan of a run whose ranks somebody else starts: where it is kept, and what it is called."""

from __future__ import annotations

import os
from collections.abc import Sequence

from safelaunch.launch import run_dir
from safelaunch.model import LaunchPlan, Settings


def plan(settings: Settings, folder: str, words: Sequence[str]) -> LaunchPlan:
    """Make the run directory.

    Args:
        settings: `run_dir` is of interest.
        folder: in which ranks say who they are.
        words: of the command.

    Raises:
        SafelaunchError: it cannot be made.
    """
    host = os.uname().nodename or "localhost"
    run_id, chosen = run_dir.default_run_id(os.environ, host), settings["run_dir"]
    base = run_dir.base_dir(chosen, os.environ)
    made = run_dir.create(base, run_id, host, several_nodes=False, chosen=bool(chosen))
    return LaunchPlan(
        run_id=run_id,
        token="",
        run_dir=made.path,
        scratch_dir=folder,
        mode="no_python",
        script=words[0],
        script_args=tuple(words[1:]),
        torchrun={"max_restarts": 0},
        env={},
        shutdown_timeout=30.0,
        warnings=tuple(filter(None, [made.warning])),
    )

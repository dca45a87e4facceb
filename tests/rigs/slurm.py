"""A real Slurm of some nodes on this machine (mini_slurm.sh)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import netns
from harness import environment

SCRIPT = Path(__file__).with_name("mini_slurm.sh")
NET = "10.78.0"
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")


class Slurm:
    """Nodes that are numbered from 1, with names that end in the number."""

    def __init__(self, nodes: int, folder: Path) -> None:
        rig = {"MINI_SLURM_DIR": str(folder), "SLH_PREFIX": f"sls{os.getpid()}n", "SLH_NET": NET}
        self._environ = environment(**rig, SLURM_CONF=str(folder / "slurm.conf"), GLOO_SOCKET_IFNAME="eth0")
        self._do("start", nodes)

    def name(self, node: int) -> str:
        return f"{self._environ['SLH_PREFIX']}{node}"

    def start(self, *command: object, cwd: Path, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """srun, sbatch and their kin, where they reach the controller."""
        return subprocess.Popen(
            ["bash", str(SCRIPT), "run", *map(str, command)],
            cwd=cwd,
            env={**self._environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: object, cwd: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The same to its end: the exit code, and what it said."""
        process = self.start(*command, cwd=cwd, environ=environ)
        said, _ = process.communicate(timeout=150)
        return process.returncode, said

    def kill_node(self, node: int) -> None:
        """The node's daemon and all that runs there are gone at once, as with its power."""
        self._do("kill-node", node)

    def start_node(self, node: int) -> None:
        self._do("start-node", node)

    def stop(self) -> None:
        self._do("stop")

    def _do(self, *command: object) -> None:
        words = ["bash", str(SCRIPT), *map(str, command)]
        subprocess.run(words, env=self._environ, check=True, stdin=subprocess.DEVNULL, timeout=100)


def why_not() -> str:
    """Why this machine cannot have such a cluster; empty where it can."""
    missing = next((program for program in PROGRAMS if shutil.which(program) is None), "")
    return f"needs {missing}" if missing else netns.why_not()

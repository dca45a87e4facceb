"""A command as the first process of something like a container (container.sh)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
from harness import environment

SCRIPT = Path(__file__).with_name("container.sh")


class Container:
    """What runs in `cwd` under a host name of its own. `results` becomes /results, `message` /dev/termination-log."""

    def __init__(
        self, state: Path, *command: object, cwd: Path, environ: Mapping[str, str], name: str = "pod-0"
    ) -> None:
        state.mkdir()
        self.results, self.message = state / "results", state / "termination-log"
        if "BEAKER_JOB_ID" in environ:
            self.results.mkdir()
        if "KUBERNETES_SERVICE_HOST" in environ:
            self.message.touch()
        self._outside = subprocess.Popen(
            ["bash", str(SCRIPT), str(state), name, *map(str, command)],
            cwd=cwd,
            env={**environment(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def signal(self, signum: int) -> None:
        """Send it to the first process, as the runtime does."""
        os.kill(psutil.Process(self._outside.pid).children()[0].pid, signum)

    def wait_for(self, path: Path) -> None:
        """Until a file is there."""
        while not path.exists():
            assert self._outside.poll() is None, self._outside.communicate()[0]
            time.sleep(0.02)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        try:
            said, _ = self._outside.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            self._outside.kill()
            raise
        return self._outside.returncode, said


def why_not() -> str:
    """Why this machine cannot have one; empty where it can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "needs root and unshare"
    made = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r && "
         "mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r"],
        capture_output=True, check=False,
    )  # fmt: skip
    return "needs overlay mounts" if made.returncode else ""

"""py-spy as a child process: stacks of any Python process, without its help."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sysconfig
import time
from typing import Any


@functools.cache
def find() -> str | None:
    """The py-spy that was installed with us, else one on PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "py-spy")
    return own if os.access(own, os.X_OK) else shutil.which("py-spy")


class Dump:
    """A dump that has been started; `result` waits for it."""

    def __init__(self, pid: int, how: str) -> None:
        self.late = False
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = "py-spy is not installed"
        tool = find()
        if tool is None:
            return
        try:
            self._process = subprocess.Popen(
                [tool, "dump", how, "--json", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._reason = f"py-spy: {error.strerror}"

    def result(self, until: float) -> tuple[list[dict[str, Any]] | None, str]:
        """The threads with their frames, innermost first, or None and the reason; not later than `until`
        (CLOCK_MONOTONIC). py-spy is killed then, and left to the kernel if that holds it."""
        if self._process is None:
            return None, self._reason
        try:
            output, complaint = self._process.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.late = True
            self._process.kill()
            return None, "py-spy did not answer in time"
        if self._process.returncode != 0:
            lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["no output"]
            return None, f"py-spy: {lines[-1]}"
        try:
            threads: list[dict[str, Any]] = json.loads(output)
        except ValueError:
            return None, "py-spy: its answer is not JSON"
        return threads, ""

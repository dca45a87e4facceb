"""Runs in: the node's probe. Its child for pairs, asked with a deadline and replaced when it does not answer."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("pair_probe.py")
# `import torch` takes 1 s from a local disk, and tens of seconds from a shared file system that is cold.
IMPORT_S = 50.0
# How long it may take beyond a task's deadline to end its ranks and answer.
MARGIN_S = 3.0


class PairChild:
    """A `pair_probe` that is kept between tasks, since it takes long to import torch."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._unread = b""
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )

    def ask(self, task: dict[str, Any]) -> tuple[float, str]:
        """The value that a task gives, or 0 and why there is none."""
        if self._process.poll() is not None:
            self._start()
        if not self._ready:
            hello = self._line(time.monotonic() + IMPORT_S)
            if hello is None or "error" in hello:
                self.end()
                return 0.0, hello["error"] if hello else "torch was not imported"
            self._ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return 0.0, "the probe for pairs died"
        answer = self._line(time.monotonic() + task["deadline_s"] + MARGIN_S)
        if answer is None:
            self.end()
            return 0.0, f"no answer within {task['deadline_s']:g} s"
        return float(answer.get("value", 0.0)), str(answer.get("error", ""))

    def end(self) -> None:
        """Kill it. The ranks that it forked end with it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)

    def _line(self, until: float) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            data = os.read(pipe, 65536)
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

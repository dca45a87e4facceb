"""Child processes with a deadline, for all that can block in the kernel.

A child that a driver or a dead network file system holds in D state cannot be killed, and waiting for it would
hang the launcher as well: it is abandoned.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch import procfs

# How long a killed child may take to vanish. A process that can be killed is gone within milliseconds.
REAP_S = 0.5


@dataclass(frozen=True)
class Ended:
    """How a child ended. `returncode` is None for one that was abandoned; times are seconds."""

    returncode: int | None
    stdout: str
    stderr: str
    elapsed_s: float
    timed_out: bool = False

    @property
    def last_line(self) -> str:
        """The last line of stderr: where our probes write the stage they have reached, and others their error."""
        return next((line for line in reversed(self.stderr.splitlines()) if line.strip()), "")


class Children:
    """Runs children and knows which are alive, so that whoever gives up early can end them. `reap_s` is how long one
    that was killed is waited for."""

    def __init__(self, reap_s: float = REAP_S) -> None:
        self._reap_s = reap_s
        self._lock = threading.Lock()
        self._alive: set[subprocess.Popen[str]] = set()
        self._closed = False

    def run(self, argv: Sequence[str], deadline_s: float, environ: Mapping[str, str]) -> Ended:
        """Run a command in a session of its own and return its output; at the deadline, kill the session.

        Raises OSError when the command cannot be started.
        """
        begin = time.monotonic()
        with self._lock:
            if self._closed:
                raise OSError("the preflight is over")
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environ),
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._alive.add(process)
            procfs.OWN_SESSIONS.add(process.pid)
        timed_out = False
        try:
            stdout, stderr = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            _kill(process)
            try:
                stdout, stderr = process.communicate(timeout=self._reap_s)
            except subprocess.TimeoutExpired as abandoned:
                stdout, stderr = _text(abandoned.stdout), _text(abandoned.stderr)
        finally:
            with self._lock:
                self._alive.discard(process)
                procfs.OWN_SESSIONS.discard(process.pid)
        return Ended(process.returncode, stdout, stderr, time.monotonic() - begin, timed_out)

    def end(self) -> None:
        """Kill all children that still run, without waiting for them, and start no further ones."""
        with self._lock:
            self._closed = True
            for process in self._alive:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()


def _text(output: str | bytes | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""

"""When the time of a job ends, as somebody has said it or as Slurm's controller says it."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Mapping

from safelaunch.model import Settings

ASK_S = 20.0  # for the controller to answer
AGAIN_S = 300.0


class JobEnd:
    """`--time-limit`, else what the scheduler says in the environment; else, in a Slurm job, what `squeue` says to one
    node, now and then: the limit may be raised.

    Args:
        settings: of the launch.
        environ: of safelaunch.
        started: seconds since the epoch.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str], started: float) -> None:
        self._started = started
        limit, given = settings["time_limit"], settings.end
        self._at = started + limit if limit is not None else float(given.value) if given is not None else None
        ours = limit is not None or given is not None
        self._job = "" if ours or shutil.which("squeue") is None else environ.get("SLURM_JOB_ID", "")
        self._environ = {**environ, "SLURM_TIME_FORMAT": "%s"}
        self._next = 0.0

    @property
    def whole_s(self) -> float:
        """How long the run may take from its start to its end."""
        return max(0.0, (self._at or time.time()) - self._started)

    def left_s(self, asks: bool) -> float | None:
        """Seconds to the end, None where it is not known.

        Args:
            asks: whether this is the node that may ask the controller.
        """
        if self._job.isdecimal() and asks and time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_S
            threading.Thread(target=self._ask, name="safelaunch-squeue", daemon=True).start()
        return None if self._at is None else self._at - time.time()

    def _ask(self) -> None:
        try:
            said = subprocess.run(
                ["squeue", "-h", "-j", self._job, "-o", "%e"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ASK_S,
                check=False,
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return
        if said.isdigit():
            self._at = float(said)

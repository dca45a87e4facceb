"""What safelaunch ends with, where a scheduler does not understand our codes (`exit_codes` in `[launch]`)."""

from __future__ import annotations

import signal

from safelaunch.model import Settings
from safelaunch.schedulers.policies import RETRIED

# Kubeflow's PyTorchJob with `restartPolicy: ExitCode` retries codes from 128 on and no other; it leaves the code of
# SIGUSR1 to users (kubeflow/training-operator, pkg/util/train).
AGAIN = 128 + signal.SIGUSR1


def wanted(code: int, settings: Settings) -> int:
    """The exit code of the process.

    Args:
        code: what the run came to.
        settings: of the launch.
    """
    said = settings.launch.get("exit_codes")
    return int(AGAIN) if said is not None and said.value == "signal" and code in RETRIED else code

"""What a run needs of the machine that it is on, before anything is made."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from safelaunch.model import SafelaunchError, Settings


def require_linux() -> None:
    """Death signals, subreapers and /proc carry the promises of a run; without them it would be torchrun.

    Raises:
        SafelaunchError: SL001 elsewhere.
    """
    if sys.platform != "linux":
        raise SafelaunchError("SL001", "safelaunch runs jobs on Linux only", "use torchrun here", exit_code=2)


def has_proc() -> bool:
    """Whether processes can be told from later ones with their pids."""
    return os.path.exists("/proc/self/stat")


def become_torchrun(settings: Settings) -> NoReturn:
    """Become torchrun, with the same options and environment: without /proc nothing could be watched or ended without
    the danger of hitting a stranger's process."""
    from safelaunch.printable import whole
    from safelaunch.run.output import Output
    from safelaunch.settings import computed, torchrun

    left_out = computed.open_values(settings)
    environ = {name: value for name, value in settings.environment(os.environ).items() if name not in left_out}
    told = "safelaunch: warning[SL902]: there is no /proc: torchrun runs this job, without checks, watch and verdict"
    stderr = Output(sys.stderr)
    stderr.write([whole(told, f", and without {', '.join(left_out)}" if left_out else "")])
    stderr.finish()
    command = [sys.executable, "-m", "torch.distributed.run", *torchrun.arguments(settings)]
    os.execve(sys.executable, command, environ)

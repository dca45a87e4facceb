"""What a scheduler gives a job between SIGTERM and SIGKILL, as far as the job can see it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from safelaunch import regular
from safelaunch.model import Origin, Value

# slurm.conf(5): KillWait, "the default value is 30 seconds". Kubernetes: terminationGracePeriodSeconds of PodSpec.
SLURM_S = 30.0
KUBERNETES_S = 30.0

# Where Slurm keeps its configuration; the last two are what slurmd leaves on a node without one of its own
# (https://slurm.schedmd.com/configless_slurm.html).
SLURM_CONF = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
NESTED = 3  # files that include files
LARGEST = 1 << 20

_KILL_WAIT = re.compile(r"(?:^|\s)KillWait\s*=\s*(\d+)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*Include\s+(\S+)", re.IGNORECASE)

Read = Callable[[str], "str | None"]


def read(path: str) -> str | None:
    """The beginning of a text file, or None where it cannot be read."""
    return regular.text(path, LARGEST)


def kill_wait(environ: Mapping[str, str], read: Read = read) -> Value | None:
    """Seconds from SIGTERM to SIGKILL, with the file and line that say so, or None where no scheduler is seen.

    The origin is `default` where only the scheduler's own default is known: a pod cannot see its
    terminationGracePeriodSeconds, and the wait of `docker stop` (10 s) cannot be seen at all.

    Args:
        environ: of safelaunch: SLURM_JOB_ID, SLURM_CONF, KUBERNETES_SERVICE_HOST.
        read: gives the text of a file, or None.
    """
    if environ.get("SLURM_JOB_ID"):
        named = environ.get("SLURM_CONF")
        for path in (named,) if named else SLURM_CONF:
            if (content := read(path)) is not None:
                return _in_conf(path, content, read) or Value(SLURM_S, Origin("file", f"{path} (Slurm's default)"))
        return Value(SLURM_S, Origin("default", "of Slurm's KillWait"))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return Value(KUBERNETES_S, Origin("default", "of Kubernetes' terminationGracePeriodSeconds"))
    return None


def _in_conf(path: str, content: str, read: Read, nested: int = 0) -> Value | None:
    """The last KillWait of a slurm.conf and of the files that it includes."""
    found: Value | None = None
    for number, line in enumerate(content.splitlines(), start=1):
        line = line.partition("#")[0]
        if said := _KILL_WAIT.search(line):
            found = Value(float(said[1]), Origin("file", f"{path}:{number}"))
        elif (include := _INCLUDE.match(line)) and nested < NESTED:
            inner = os.path.join(os.path.dirname(path), include[1])
            if (text := read(inner)) is not None:
                found = _in_conf(inner, text, read, nested + 1) or found
    return found

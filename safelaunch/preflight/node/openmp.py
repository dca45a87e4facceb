"""How many threads of OpenMP a rank will start."""

from __future__ import annotations

from safelaunch.preflight.machine.host import Host

OMP = "OMP_NUM_THREADS"


def threads_by_variable(host: Host) -> int | None:
    """OMP_NUM_THREADS as the user set it; of a list for nested levels the first. None where it is not set, or says
    nothing that OpenMP takes (`0`, `many`): it starts one thread for each CPU then."""
    text = host.environ.get(OMP, "").partition(",")[0].strip()
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) else None


def threads_of_a_rank(host: Host) -> int:
    """By the variable, or by what is done without it: torchrun sets it to 1 for several ranks."""
    asked = threads_by_variable(host)
    if asked is None:
        return 1 if host.job.nproc > 1 and OMP not in host.environ else host.cpu_count()
    return asked

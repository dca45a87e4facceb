"""What detectors share: how they read a variable, and how they refuse a start."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from safelaunch.codes import EXIT_USAGE
from safelaunch.model import Origin, SafelaunchError, Value

MOST = 1 << 16
MOST_GPUS = 1 << 10
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def misstart(summary: str, remedy: str, *because: str, of_all: bool = False) -> SafelaunchError:
    """The scheduler started safelaunch in a way that cannot become one job.

    safelaunch runs once on each node and starts the ranks of that node itself, as torchrun does. Under a scheduler the
    nodes, their order and the place where they meet come from its variables, and flags (or PET_<OPTION>) beat them.

    How it is concluded: the scheduler's variables say that several nodes are allocated and nothing starts safelaunch on
    each of them; or that it is started several times on a node; or that a launcher (mpirun, Ray Train, a script that
    sets LOCAL_RANK) started it as one of its ranks; or they contradict a flag, as an endpoint of several nodes that is
    `localhost`; or a pod says how many there are and not where it stands. Nothing has been started. Where all tasks of
    a step come to it alike, the first one says it.

    What to do: the message names the line to write instead. Who means it as it is says so by a flag: `--standalone` or
    `--nnodes 1` for a job of this node alone.
    """
    error = SafelaunchError("SL009", summary, remedy, because=because, exit_code=EXIT_USAGE)
    error.said_by_all = of_all  # the scheduler has told all tasks the same, so the first one speaks for them
    return error


def is_first_task(environ: Mapping[str, str]) -> bool:
    """Whether this is the first process of those that a scheduler has started together, or the only one."""
    numbers = (number(environ, name) for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    return next((found for found in numbers if found is not None), 0) == 0


def number(environ: Mapping[str, str], name: str) -> int | None:
    """The whole number in a variable; None where it is not set, or holds something else."""
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def value(environ: Mapping[str, str], name: str, most: int = MOST) -> Value | None:
    """The same with its origin; None for more than `most`: that is no number of nodes, or of GPUs of a node."""
    found = number(environ, name)
    return None if found is None or found > most else Value(found, Origin("scheduler", name))


def gpus(environ: Mapping[str, str], name: str) -> Value | None:
    """The GPUs of this node, of which its ranks may see fewer."""
    found = value(environ, name, MOST_GPUS)
    seen = next(((one, environ[one]) for one in VISIBLE if one in environ), None)
    if found is None or seen is None:
        return found
    # CUDA takes the list up to the first entry that names no device: "-1", "NoDevFiles", nothing.
    named = itertools.takewhile(re.compile(r"\s*(\d|GPU-|MIG-)").match, seen[1].split(","))
    count = sum(1 for _ in named)
    return found if count >= found.value else Value(count, Origin("shell", seen[0]))

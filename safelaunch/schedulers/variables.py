"""What detectors share: how they read a variable, and how they refuse a start."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.codes import EXIT_USAGE
from safelaunch.model import Origin, SafelaunchError, Value


def misstart(summary: str, remedy: str, *because: str) -> SafelaunchError:
    """The scheduler started safelaunch in a way that cannot become one job.

    safelaunch runs once on each node and starts the ranks of that node itself, as torchrun does. Under a scheduler the
    nodes, their order and the place where they meet come from its variables, and flags (or PET_<OPTION>) beat them.

    How it is concluded: the scheduler's variables say that several nodes are allocated and nothing starts safelaunch on
    each of them; or that it is started several times on a node; or that a launcher started it as one of its ranks; or
    they contradict a flag. Nothing has been started.

    What to do: the message names the line to write instead. Who means it as it is says so by a flag: `--standalone` or
    `--nnodes 1` for a job of this node alone.
    """
    return SafelaunchError("SL009", summary, remedy, because=because, exit_code=EXIT_USAGE)


def number(environ: Mapping[str, str], name: str) -> int | None:
    """The whole number in a variable; None where it is not set, or holds something else."""
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def value(environ: Mapping[str, str], name: str) -> Value | None:
    """The same with its origin."""
    found = number(environ, name)
    return None if found is None else Value(found, Origin("scheduler", name))

"""How each launcher is started, and how what it prints is read. To measure another one, add a row to `LAUNCHERS`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Named:
    """Whom a launcher has named as the cause.

    Args:
        ranks: none where it named nobody.
        headline: the line that says so.
    """

    ranks: frozenset[int] = frozenset()
    headline: str = ""


@dataclass(frozen=True)
class Launcher:
    """A launcher.

    Args:
        command: `{python}` and `{ranks}` are filled in, the program follows.
        named: reads the output, and the folder that it was started in.
        package: what has to be installed; empty for what comes with torch or with this repository.
    """

    command: tuple[str, ...]
    named: Callable[[str, Path], Named]
    package: str = ""


ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
WATCHDOG = re.compile(r"\[Rank (\d+)\]\s+Watchdog caught[^\n]*")


def of_elastic(output: str, folder: Path) -> Named:  # noqa: ARG001
    """torch's own report: the first rank that failed, and whoever NCCL's watchdog speaks of before that."""
    watchdog = [*WATCHDOG.finditer(output)]
    if watchdog:
        return Named(frozenset(int(one[1]) for one in watchdog), watchdog[0][0])
    cause = ROOT_CAUSE.search(output)
    return Named(frozenset({int(cause[1])}), "Root Cause (first observed failure)") if cause else Named()


def of_safelaunch(output: str, folder: Path) -> Named:  # noqa: ARG001
    """The verdict with which the run ended, whoever ended it."""
    results = sorted(folder.glob("safelaunch_runs/*/result.json"))
    verdicts = json.loads(results[-1].read_text())["verdicts"] if results else []
    last = next((one for one in reversed(verdicts) if one["kind"] in ("hang", "crash")), None)
    return Named(frozenset(last["culprit_ranks"]), last["summary"]) if last is not None else Named()


LAUNCHERS = {
    "safelaunch": Launcher(
        ("{python}", "-m", "safelaunch", "--preflight", "off", "--nproc-per-node", "{ranks}"), of_safelaunch
    ),
    "torchrun": Launcher(("{python}", "-m", "torch.distributed.run", "--nproc-per-node", "{ranks}"), of_elastic),
    "accelerate": Launcher(
        ("{python}", "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "{ranks}"),
        of_elastic,
        "accelerate",
    ),
    "ft_launcher": Launcher(
        ("{python}", "-m", "nvidia_resiliency_ext.fault_tolerance.launcher", "--nproc-per-node", "{ranks}"),
        of_elastic,
        "nvidia_resiliency_ext",
    ),
}

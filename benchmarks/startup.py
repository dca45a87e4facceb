"""From the start of a launch to the first line of all ranks and to its end; CPU and memory of all processes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import Figures, Row, parser
from pairs import COLD, HERE, LAUNCHERS, adopt_orphans, children_cpu_s, compare, end, environment, pss_mib, tree

KINDS = {"bare": "bare", "torch": "imports torch", "gloo": "initialises gloo"}
RATIOS = {  # (kind, ranks) -> of the first line, of the whole run, of the CPU seconds, of the memory
    ("bare", 8): ("", "<= 0.75", "", ""),
    ("torch", 1): ("<= 0.9", "", "", ""),
    ("torch", 8): ("<= 0.45", "", "<= 0.4", "<= 0.5"),
}
IDLE_S = 0.5  # until the beat threads and the reading of files have settled


@dataclass(frozen=True)
class Launch:
    """What one launch took."""

    first_s: float
    whole_s: float
    cpu_s: float


def start(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start a launcher whose ranks' lines can be read."""
    with open(folder / "stderr", "w") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def until_first_lines(process: subprocess.Popen[str], ranks: int, folder: Path) -> None:
    """Wait for the first line of each rank."""
    assert process.stdout is not None
    for _ in range(ranks):
        line = process.stdout.readline()
        if not line.startswith("first "):
            end(process)
            sys.exit(f"{process.args} said {line!r}:\n{(folder / 'stderr').read_text()[-2000:]}")


def timed(command: Sequence[str], folder: Path, ranks: int) -> Launch:
    """One launch to its end."""
    before = children_cpu_s()
    begun = time.monotonic()
    process = start(command, folder)
    until_first_lines(process, ranks, folder)
    first = time.monotonic() - begun
    process.communicate()
    whole = time.monotonic() - begun
    if process.returncode:
        sys.exit(f"{process.args} ended with {process.returncode}:\n{(folder / 'stderr').read_text()[-2000:]}")
    return Launch(first, whole, children_cpu_s() - before)


def memory(command: Sequence[str], folder: Path, ranks: int) -> float:
    """MiB of a launcher and its ranks while all ranks wait after their first line."""
    hold = folder / "hold"
    hold.unlink(missing_ok=True)
    os.mkfifo(hold)
    writer = os.open(hold, os.O_RDWR)
    process = start([*command, str(hold)], folder)
    try:
        until_first_lines(process, ranks, folder)
        time.sleep(IDLE_S)
        return pss_mib(tree(process.pid))
    finally:
        os.close(writer)  # the ranks read to the end of file
        process.communicate()


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    options.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options.add_argument("--cold", action="store_true", help="compare --no-warm-start too")
    chosen = options.parse_args()
    launchers = LAUNCHERS | (COLD if chosen.cold else {})
    adopt_orphans()
    figures = Figures("Start of a launch: first line of all ranks, whole run, CPU and memory", chosen.json)
    for kind in chosen.kinds:
        for ranks in chosen.ranks:
            arguments = ["--nproc-per-node", str(ranks), str(HERE / "first_line.py"), kind]
            # One that does not count, so that files are in memory, is enough.
            held = compare(arguments, 1, functools.partial(memory, ranks=ranks), launchers, warm_up=not figures.rows)
            launches = compare(arguments, chosen.runs, functools.partial(timed, ranks=ranks), launchers, warm_up=False)
            columns = {
                "first line of all": ("s", {name: [run.first_s for run in runs] for name, runs in launches.items()}),
                "whole run": ("s", {name: [run.whole_s for run in runs] for name, runs in launches.items()}),
                "CPU of all processes": ("s", {name: [run.cpu_s for run in runs] for name, runs in launches.items()}),
                "memory (PSS), ranks idle": ("MiB", held),
            }
            targets = RATIOS.get((kind, ranks), ("",) * 4)
            for (what, (unit, values)), target in zip(columns.items(), targets, strict=True):
                figures.add(Row(f"{ranks} ranks, {KINDS[kind]}: {what}", unit, values, target))
    figures.write()


if __name__ == "__main__":
    main()

"""From the SIGKILL of one rank to the first line, and to the first step, of all ranks of the next attempt."""

from __future__ import annotations

import functools
import math
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import Figures, Row, parser
from pairs import COLD, HERE, LAUNCHERS, compare, end
from startup import start


@dataclass(frozen=True)
class Restart:
    """Seconds after the kill; infinite where it never came."""

    first_s: float = float("inf")
    step_s: float = float("inf")


def lines(process: subprocess.Popen[str], what: str, attempt: str, ranks: int) -> dict[int, int]:
    """The pid of each rank, once all have said `what` in this attempt; fewer where the launch has ended before."""
    assert process.stdout is not None
    pids: dict[int, int] = {}
    for line in process.stdout:
        said, rank, number, pid = line.split()
        if said == what and number == attempt:
            pids[int(rank)] = int(pid)
            if len(pids) == ranks:
                break
    return pids


def restarted(command: Sequence[str], folder: Path, ranks: int) -> Restart:
    """One launch whose last rank is killed in its first attempt."""
    process = start(command, folder)
    try:
        pids = lines(process, "step", "0", ranks)
        killed = time.monotonic()
        os.kill(pids[ranks - 1], signal.SIGKILL)
        if len(lines(process, "first", "1", ranks)) < ranks:
            return Restart()
        first = time.monotonic() - killed
        if len(lines(process, "step", "1", ranks)) < ranks:
            return Restart(first)
        return Restart(first, time.monotonic() - killed)
    finally:
        assert process.stdout is not None
        process.stdout.close()
        end(process)


def paired(runs: dict[str, list[float]]) -> dict[str, list[float]]:
    """The runs in which it came under every launcher; where there is none, those in which it came."""
    places = range(min(map(len, runs.values())))
    common = [place for place in places if all(math.isfinite(values[place]) for values in runs.values())]
    if common:
        return {name: [values[place] for place in common] for name, values in runs.items()}
    return {name: [value for value in values if math.isfinite(value)] for name, values in runs.items()}


def main() -> None:
    options = parser(__doc__, runs=5, ranks=8)
    options.add_argument("--cold", action="store_true", help="compare --no-warm-start too")
    chosen = options.parse_args()
    ranks, launchers = chosen.ranks, LAUNCHERS | (COLD if chosen.cold else {})
    figures = Figures(f"One of {ranks} ranks is killed, --max-restarts 1: seconds until the next attempt", chosen.json)
    arguments = ["--nproc-per-node", str(ranks), "--max-restarts", "1", str(HERE / "beating.py")]
    found = compare(arguments, chosen.runs, functools.partial(restarted, ranks=ranks), launchers, warm_up=False)
    columns = {
        "first line of all, torch imported": {name: [run.first_s for run in runs] for name, runs in found.items()},
        "first step of all, gloo": {name: [run.step_s for run in runs] for name, runs in found.items()},
    }
    for (what, values), target in zip(columns.items(), ("<= 0.35", ""), strict=True):
        for name, seconds in values.items():
            lost = len(seconds) - sum(map(math.isfinite, seconds))
            if lost:
                figures.note(f"{what}: never came in {lost} of {len(seconds)} runs of {name}")
        figures.add(Row(what, "s", paired(values), target))
    figures.write()


if __name__ == "__main__":
    main()

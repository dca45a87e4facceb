"""Times safelaunch and torchrun in turn, so that a machine whose speed drifts is fair to both."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LAUNCHERS = {
    "safelaunch": (sys.executable, "-m", "safelaunch"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
}


def parser(description: str | None, *, runs: int, ranks: int) -> argparse.ArgumentParser:
    """Options that all benchmarks share."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--runs", type=int, default=runs, help="counted runs of each launcher")
    options.add_argument("--ranks", type=int, default=ranks, help="ranks on this node")
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    return options


def run(command: Sequence[str], folder: Path) -> tuple[float, str]:
    """Seconds from start to exit of one process, and its output; it must succeed."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    begun = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - begun
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return elapsed, ended.stdout


def wall(command: Sequence[str], folder: Path) -> float:
    """Seconds from start to exit of one process; it must succeed."""
    return run(command, folder)[0]


def rate(command: Sequence[str], folder: Path) -> float:
    """What one process prints after `rate`; it must succeed."""
    return next(float(line.split()[1]) for line in run(command, folder)[1].splitlines() if line.startswith("rate "))


def compare(
    arguments: Sequence[str], runs: int, measure: Callable[[Sequence[str], Path], float] = wall
) -> dict[str, list[float]]:
    """What `measure` says of `runs` runs of each launcher with the same arguments, in turn, after one that is not
    counted."""
    seconds: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs + 1):
            for name, launcher in LAUNCHERS.items():
                value = measure([*launcher, *arguments], Path(folder))
                if number:
                    seconds[name].append(value)
    return seconds


def report(title: str, seconds: dict[str, list[float]], target: str, file: Path | None, unit: str = "s") -> None:
    """Print medians, spread and the median ratio of the pairs, beside the target."""
    print(title)
    for name, values in seconds.items():
        spread = f"[{min(values):.3f} .. {max(values):.3f}]"
        print(f"  {name:<11} {statistics.median(values):7.3f} {unit}   {spread}  n={len(values)}")
    pairs = [ours / theirs for ours, theirs in zip(seconds["safelaunch"], seconds["torchrun"], strict=True)]
    ratio = statistics.median(pairs)
    print(f"  ratio       {ratio:7.3f}     [{min(pairs):.3f} .. {max(pairs):.3f}]  pair by pair; target {target}")
    if file is not None:
        file.write_text(json.dumps({"title": title, "seconds": seconds, "ratio": ratio, "target": target}, indent=1))

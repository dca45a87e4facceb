"""How long `safelaunch check` takes: eight GPUs (a fake NVML), the CPU with `--full`, and a driver call that hangs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from pairs import LAUNCHERS, parser

HERE = Path(__file__).resolve().parent


def eight_gpus(folder: Path) -> dict[str, str]:
    """The environment of a node with eight healthy GPUs."""
    sys.path.append(str(HERE.parent / "tests" / "rigs"))
    environ = import_module("fake_nvml").node(folder)
    if environ is None:
        sys.exit("a C compiler is needed")
    return {**environ, "PYTHONPATH": f"{environ['PYTHONPATH']}:{HERE.parent}"}


def check(*arguments: str, folder: Path, environ: dict[str, str]) -> float:
    """Seconds from start to exit."""
    command = [*LAUNCHERS["safelaunch"], "check", *arguments]
    begun = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 69):
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return time.perf_counter() - begun


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2).parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = {**os.environ, "PYTHONPATH": str(HERE.parent), "XDG_CACHE_HOME": name}
        gpus = {**plain, **eight_gpus(folder)}
        stuck = {**gpus, "FAKE_NVML": "hang@2=nvmlDeviceGetTemperature"}
        ranks = ("--nproc-per-node", str(options.ranks))
        for title, runs, target, arguments, environ in (
            ("passive checks, 8 GPUs", options.runs, 1.0, (), gpus),
            ("passive checks, CPU", options.runs, 1.0, ranks, plain),
            (f"--full on the CPU, {options.ranks} ranks", options.runs, 15.0, ("--full", *ranks), plain),
            ("an NVML call that hangs (deadline 10 s)", 1, 12.0, ("--nproc-per-node", "8"), stuck),
        ):
            seconds = [check(*arguments, folder=folder, environ=environ) for _ in range(runs)]
            median = statistics.median(seconds)
            missed = "" if median <= target else "   missed"
            print(f"{title:<42} {median:6.2f} s   target <= {target:g} s{missed}", flush=True)
            figures[title] = {"seconds": seconds, "target_s": target}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

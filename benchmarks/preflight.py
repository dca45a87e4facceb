"""How long `safelaunch check` takes: eight GPUs (a fake NVML), the CPU with `--full`, and a driver call that hangs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from figures import Figures, Row, parser
from pairs import LAUNCHERS, REPOSITORY, environment


def eight_gpus(folder: Path) -> dict[str, str]:
    """The environment of a node with eight healthy GPUs."""
    environ = import_module("fake_nvml").node(folder)
    if environ is None:
        sys.exit("a C compiler is needed")
    return {**environ, "PYTHONPATH": f"{environ['PYTHONPATH']}:{REPOSITORY}"}


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
    figures = Figures("safelaunch check: seconds", options.json)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = environment(XDG_CACHE_HOME=name)
        gpus = {**plain, **eight_gpus(folder)}
        stuck = {**gpus, "FAKE_NVML": "hang@2=nvmlDeviceGetTemperature"}
        ranks = ("--nproc-per-node", str(options.ranks))
        for title, runs, target, arguments, environ in (
            ("passive checks, 8 GPUs", options.runs, "<= 1", (), gpus),
            ("passive checks, CPU", options.runs, "<= 1", ranks, plain),
            (f"--full on the CPU, {options.ranks} ranks", options.runs, "<= 15", ("--full", *ranks), plain),
            ("an NVML call that hangs (deadline 10 s)", 1, "<= 12", ("--nproc-per-node", "8"), stuck),
        ):
            seconds = [check(*arguments, folder=folder, environ=environ) for _ in range(runs)]
            figures.add(Row(title, "s", {"safelaunch": seconds}, target=target))
    figures.write()


if __name__ == "__main__":
    main()

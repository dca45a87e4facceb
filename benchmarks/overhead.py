"""What safelaunch costs a healthy run, against torchrun: wall time, `--help`, steps per second, supervisor's CPU."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pairs import LAUNCHERS, compare, parser, rate, report, wall

HERE = Path(__file__).resolve().parent
SAMPLE_S = 20.0


def supervisor_share(ranks: int, folder: Path) -> float:
    """Share of one core that the supervisor takes while `ranks` ranks train, in percent."""
    script = [str(HERE / "training.py"), "100000", "0.02"]
    environ = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), *script]
    process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        while not list(folder.glob("runs/*/attempt_0/rank_*")):
            time.sleep(0.1)
        time.sleep(10 + 3 * ranks)  # imports of torch, side by side
        before, begun = _cpu_s(process.pid), time.monotonic()
        time.sleep(SAMPLE_S)
        return 100 * (_cpu_s(process.pid) - before) / (time.monotonic() - begun)
    finally:
        process.terminate()
        process.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2).parse_args()
    arguments = ["--nproc-per-node", str(options.ranks)]
    title = f"200 steps of 20 ms, {options.ranks} ranks, default profile: wall time"
    report(title, compare([*arguments, str(HERE / "steps.py"), "200", "0.02"], options.runs), "<= 1.02", options.json)
    for seconds in ("0.02", "0"):
        training = [*arguments, str(HERE / "training.py"), "500", seconds]
        title = f"DDP with loader and optimizer, steps of {seconds} s or more: steps per second"
        report(title, compare(training, options.runs, rate), ">= 0.99", None, "1/s")

    with tempfile.TemporaryDirectory() as folder:
        helped = {
            name: statistics.median(wall([*launcher, "--help"], Path(folder)) for _ in range(5))
            for name, launcher in LAUNCHERS.items()
        }
        ours, theirs = helped["safelaunch"], helped["torchrun"]
        print(f"--help: safelaunch {ours:.3f} s, torchrun {theirs:.3f} s, ratio {ours / theirs:.3f}; target <= 0.1")
        share = supervisor_share(8, Path(folder))
        print(f"supervisor with 8 ranks: {share:.2f} % of a core; target <= 0.5")


if __name__ == "__main__":
    main()

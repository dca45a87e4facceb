"""What safelaunch costs a healthy run, against torchrun: wall time, `--help`, steps per second, supervisor's CPU."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, LAUNCHERS, compare, end, environment, rate, wall

SAMPLE_S = 20.0


def supervisor_share(ranks: int, folder: Path) -> float:
    """Share of one core that the supervisor takes while `ranks` ranks train, in percent."""
    script = [str(HERE / "training.py"), "100000", "0.02"]
    command = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), *script]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    try:
        while not list(folder.glob("runs/*/attempt_0/rank_*")):
            time.sleep(0.1)
        time.sleep(10 + ranks)  # until all make steps
        before, begun = _cpu_s(process.pid), time.monotonic()
        time.sleep(SAMPLE_S)
        return 100 * (_cpu_s(process.pid) - before) / (time.monotonic() - begun)
    finally:
        end(process)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2)
    options.add_argument("--steps", type=int, default=500, help="of each training")
    chosen = options.parse_args()
    figures = Figures(f"What safelaunch costs a healthy run of {chosen.ranks} ranks, default profile", chosen.json)
    arguments = ["--nproc-per-node", str(chosen.ranks)]
    whole = compare([*arguments, str(HERE / "steps.py"), "200", "0.02"], chosen.runs, wall)
    figures.add(Row("200 steps of 20 ms: whole run", "s", whole, "<= 1.02"))
    for seconds in ("0.02", "0"):
        training = [*arguments, str(HERE / "training.py"), str(chosen.steps), seconds]
        found = compare(training, chosen.runs, rate, warm_up=False)
        figures.add(Row(f"DDP, loader, optimizer, steps >= {seconds} s", "1/s", found, ">= 0.99"))
    figures.add(Row("--help", "s", compare(["--help"], max(5, chosen.runs), wall), "<= 0.1"))
    with tempfile.TemporaryDirectory() as folder:
        shares = {"safelaunch": [supervisor_share(8, Path(folder))]}
        figures.add(Row("the supervisor, with 8 ranks", "% of a core", shares, target="<= 0.5"))
    figures.write()


if __name__ == "__main__":
    main()

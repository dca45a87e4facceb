"""What the supervisor takes while ranks train: its share of a core, from the second minute on. Before that it looks at
the node more often, to learn what is usual, and asks for the Flight Recorders, which it does ever more seldom.

Read from the scheduler's own clock (schedstat), in nanoseconds. The ticks of /proc/PID/stat are samples taken by the
timer that also wakes the supervisor, and show several times as much.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, LAUNCHERS, end, environment

LEARNS_S = 50.0
SAMPLE_S = 25.0


def share(ranks: int, folder: Path) -> float:
    """Percent of one core that the supervisor takes while `ranks` ranks train."""
    script = [str(HERE / "training.py"), "100000", "0.02"]
    command = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), *script]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    try:
        while not list(folder.glob("safelaunch_runs/*/attempt_0/rank_*")):
            time.sleep(0.1)
        time.sleep(LEARNS_S + ranks)
        before, begun = _cpu_s(process.pid), time.monotonic()
        time.sleep(SAMPLE_S)
        return 100 * (_cpu_s(process.pid) - before) / (time.monotonic() - begun)
    finally:
        end(process)


def _cpu_s(pid: int) -> float:
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def main() -> None:
    options = parser(__doc__, ranks=8).parse_args()
    figures = Figures("What the supervisor takes while ranks train", options.json)
    with tempfile.TemporaryDirectory() as folder:
        shares = {"safelaunch": [share(options.ranks, Path(folder))]}
        figures.add(Row(f"the supervisor, with {options.ranks} ranks", "% of a core", shares, target="<= 0.5"))
    figures.write()


if __name__ == "__main__":
    main()

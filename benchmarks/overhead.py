"""What safelaunch costs a healthy run, against torchrun: wall time, `--help` and steps per second; and what the link
between the supervisors of two nodes costs, both on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, LAUNCHERS, compare, environment, rate, wall

# A secret that cannot be read: there is no link then, and all else is the same.
UNLINKED = ("env", "SAFELAUNCH_SECRET_FILE=/nowhere", *LAUNCHERS["safelaunch"])
NODES = 2
LONGEST_S = 600.0


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2)
    options.add_argument("--steps", type=int, default=500, help="of each training; five times as many without length")
    options.add_argument(
        "--linked-steps", type=int, default=1000, help="of 20 ms, of two nodes: two looks at slow ranks"
    )
    chosen = options.parse_args()
    figures = Figures(f"What safelaunch costs a healthy run of {chosen.ranks} ranks, default profile", chosen.json)
    arguments = ["--nproc-per-node", str(chosen.ranks)]
    whole = compare([*arguments, str(HERE / "steps.py"), "200", "0.02"], chosen.runs, wall)
    figures.add(Row("200 steps of 20 ms: whole run", "s", whole, "<= 1.02"))
    # Steps of no length vary from run to run by a tenth and more: a few short runs say nothing of them.
    for seconds, steps, runs in (("0.02", chosen.steps, chosen.runs), ("0", 5 * chosen.steps, max(5, chosen.runs))):
        training = [*arguments, str(HERE / "training.py"), str(steps), seconds]
        found = compare(training, runs, rate, warm_up=False)
        figures.add(Row(f"DDP, loader, optimizer, steps >= {seconds} s", "1/s", found, ">= 0.99"))
    # Steps of some 7 ms, which two processes that load make uneven: pairs differ by a twentieth.
    found = compare([*arguments, str(HERE / "example.py"), "500"], max(7, chosen.runs), rate, warm_up=False)
    figures.add(Row("examples/train_ddp.py", "1/s", found, ">= 0.99"))
    figures.add(Row("--help", "s", compare(["--help"], max(5, chosen.runs), wall), "<= 0.1"))
    linked(figures, chosen.linked_steps, chosen.runs)
    figures.write()


def linked(figures: Figures, steps: int, runs: int) -> None:
    """Two nodes with a rank each: with the link between their supervisors, without it, and torchrun."""
    launchers = {"safelaunch": LAUNCHERS["safelaunch"], "without the link": UNLINKED, "torchrun": LAUNCHERS["torchrun"]}
    arguments = ["--nnodes", str(NODES), "--nproc-per-node", "1", str(HERE / "training.py"), str(steps), "0.02"]
    found = compare(arguments, runs, rate_of_nodes, launchers, warm_up=False)
    figures.add(Row("two nodes, DDP, steps >= 0.02 s", "1/s", found, ">= 0.99"))
    pairs = zip(found["safelaunch"], found["without the link"], strict=True)
    ratios = {"safelaunch": [one / other for one, other in pairs]}
    figures.add(Row("two nodes: with the link against without", "times", ratios, target=">= 0.99"))


def rate_of_nodes(command: Sequence[str], folder: Path) -> float:
    """What rank 0 prints after `rate`, of a launcher that is started once for each node; all must succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    at = command.index("--nnodes")
    meet = ("--rdzv-backend", "c10d", "--rdzv-id", f"job-{port}", "--rdzv-endpoint", f"localhost:{port}")
    off = () if "torch.distributed.run" in command else ("--preflight", "off")
    launchers = []
    for node in range(NODES):
        place = folder / f"node-{node}"
        place.mkdir(exist_ok=True)
        launchers.append(
            subprocess.Popen(
                [*command[:at], *off, *meet, *command[at:]],
                cwd=place,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [launcher.communicate(timeout=LONGEST_S) for launcher in launchers]
    if any(launcher.returncode for launcher in launchers):
        sys.exit(f"{' '.join(command)} failed:\n{said[0][1][-2000:]}\n{said[1][1][-2000:]}")
    lines = os.linesep.join(out for out, _ in said).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("rate "))


if __name__ == "__main__":
    main()

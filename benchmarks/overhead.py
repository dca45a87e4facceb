"""What safelaunch costs a healthy run, against torchrun: wall time, `--help` and steps per second."""

from __future__ import annotations

from figures import Figures, Row, parser
from pairs import HERE, compare, rate, wall


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2)
    options.add_argument("--steps", type=int, default=500, help="of each training; five times as many without length")
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
    figures.write()


if __name__ == "__main__":
    main()

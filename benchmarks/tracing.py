"""What `safelaunch trace` costs the steps that it does not record: those before it and behind it, within one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, environment

NEAR = 200  # steps before a trace, and behind it, which are compared
APART = 3  # steps between: one in which the profiler is made ready, and one behind the pause in which all is written
COMMAND = (sys.executable, "-m", "safelaunch")


@dataclass(frozen=True)
class Measured:
    """Milliseconds of a step before each trace, behind it, and in it: the lowest tenth of all ranks' steps, which what
    else the machine does changes least."""

    before: list[float]
    behind: list[float]
    inside: list[float]


def measure(ranks: int, traces: int, steps: int) -> tuple[Measured, Measured]:
    """One run: by the clock, and by how much the main thread has run, which tells more on a busy machine."""
    with tempfile.TemporaryDirectory() as folder:
        program = [str(HERE / "traced_steps.py"), folder]
        run = [*COMMAND, "--preflight", "off", "--no-history", "--nproc-per-node", str(ranks), *program]
        with subprocess.Popen(run, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            next(line for line in process.stdout if line.startswith("ready"))
            first = [_trace(folder, steps) for _ in range(traces)]
            Path(folder, "end").touch()
            process.wait(60)
        lines = [Path(folder, f"steps-{rank}").read_text().splitlines() for rank in range(ranks)]
    return _measured(lines, first, steps, 0), _measured(lines, first, steps, 1)


def _measured(lines: list[list[str]], first: list[int], steps: int, column: int) -> Measured:
    each = [[int(line.split()[column]) / 1000 for line in own] for own in lines]

    def quick(begin: int, end: int) -> float:
        return statistics.quantiles((one for own in each for one in own[max(0, begin) : end]), n=10)[0]

    # A list counts from 0, and steps count from 1.
    return Measured(
        [quick(at - 1 - APART - NEAR, at - 1 - APART) for at in first],
        [quick(at - 1 + steps + APART, at - 1 + steps + APART + NEAR) for at in first],
        [quick(at - 1, at - 1 + steps) for at in first],
    )


def _trace(folder: str, steps: int) -> int:
    command = [*COMMAND, "trace", "--json", "--steps", str(steps)]
    done = subprocess.run(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, check=True, timeout=120)
    first: int = json.loads(done.stdout)["first"]
    return first


def main() -> None:
    options = parser(__doc__, runs=7, ranks=4)
    options.add_argument("--steps", type=int, default=3, help="of each trace")
    chosen = options.parse_args()
    figures = Figures(f"What `safelaunch trace` costs: {chosen.ranks} ranks, {chosen.steps} steps", chosen.json)
    by_clock, by_cpu = measure(chosen.ranks, chosen.runs, chosen.steps)
    for found, unit in ((by_clock, "ms"), (by_cpu, "ms of CPU")):
        figures.add(Row("a step before a trace", unit, {"safelaunch": found.before}))
        figures.add(Row("... behind it", unit, {"safelaunch": found.behind}))
        figures.add(Row("... while it is recorded", unit, {"safelaunch": found.inside}))
        ratios = [after / other for after, other in zip(found.behind, found.before, strict=True)]
        figures.add(Row("behind / before, trace by trace", "times", {"safelaunch": ratios}, target="<= 1.02"))
    figures.write()


if __name__ == "__main__":
    main()

"""Wall time of a whole run of 200 steps of 20 ms, against torchrun; and of `--help`."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from pairs import LAUNCHERS, compare, parser, report, wall

STEPS = Path(__file__).resolve().parent / "steps.py"


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2).parse_args()
    arguments = ["--nproc-per-node", str(options.ranks), str(STEPS), "200", "0.02"]
    title = f"200 steps of 20 ms, {options.ranks} ranks, default profile: wall seconds"
    report(title, compare(arguments, options.runs), 1.02, options.json)

    with tempfile.TemporaryDirectory() as folder:
        helped = {
            name: statistics.median(wall([*launcher, "--help"], Path(folder)) for _ in range(5))
            for name, launcher in LAUNCHERS.items()
        }
    ours, theirs = helped["safelaunch"], helped["torchrun"]
    print(f"--help: safelaunch {ours:.3f} s, torchrun {theirs:.3f} s, ratio {ours / theirs:.3f}; target <= 0.1")


if __name__ == "__main__":
    main()

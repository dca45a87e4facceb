"""From the last progress to the notice that names the culprit, and to the verdict, for several kinds of hang."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figures, Row, parser
from pairs import LAUNCHERS, REPOSITORY, environment

FAULTS = REPOSITORY / "tests" / "faults"
KINDS = (
    ("hang.py", "sleep", 1),
    ("hang.py", "loader_worker", 2),
    ("hang.py", "stopped", 1),
    ("hang.py", "gil_regex", 2),
    ("hang.py", "never_init", 1),
    ("hang.py", "ddp", 2),
    ("apart.py", "one_rank_section", 0),
    ("apart.py", "out_of_data", 1),
    ("apart.py", "order", 2),
)
NOTICE, CONCLUSIVE = "<= 10", "<= 5"


def one(program: str, kind: str, culprit: int, ranks: int, folder: Path) -> dict[str, Any]:
    """The verdict on one hang."""
    before = set(folder.glob("safelaunch_runs/*"))
    launcher = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), "--hang-abort-after", "12s"]
    command = [*launcher, str(FAULTS / program), kind, str(culprit)]
    ended = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode != 124:
        sys.exit(f"{kind} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    (run,) = set(folder.glob("safelaunch_runs/*")) - before
    verdict: dict[str, Any] = json.loads((run / "incident-0/verdict.json").read_text())
    return verdict


def main() -> None:
    options = parser(__doc__, runs=1, ranks=4)
    options.add_argument("--kinds", nargs="+", default=[kind for _, kind, _ in KINDS])
    chosen = options.parse_args()
    title = f"A hang of {chosen.ranks} ranks, --hang-abort-after 12s: seconds since the last progress"
    figures = Figures(title, chosen.json)
    for program, kind, culprit in [each for each in KINDS if each[1] in chosen.kinds]:
        verdicts = []
        for _ in range(chosen.runs):
            with tempfile.TemporaryDirectory() as name:  # a fresh one: some kinds make a file
                verdicts.append(one(program, kind, culprit, chosen.ranks, Path(name)))
        target = CONCLUSIVE if verdicts[0]["conclusive"] else NOTICE
        what = f"{kind} ({verdicts[0]['code']})"
        notices = [verdict["detected_after_s"] for verdict in verdicts]
        figures.add(Row(f"{what}: notice", "s", {"safelaunch": notices}, target=target))
        ends = [verdict["concluded_after_s"] for verdict in verdicts]
        figures.add(Row(f"{what}: verdict", "s", {"safelaunch": ends}))
    figures.write()


if __name__ == "__main__":
    main()

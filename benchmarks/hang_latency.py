"""From the last progress to the notice that names the culprit, and to the verdict, for several kinds of hang."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pairs import LAUNCHERS, parser

FAULTS = Path(__file__).resolve().parent.parent / "tests" / "faults"
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
NOTICE_S, CONCLUSIVE_S = 10.0, 5.0


def one(program: str, kind: str, culprit: int, ranks: int, folder: Path) -> dict[str, Any]:
    """The verdict on one hang."""
    before = set(folder.glob("runs/*"))
    launcher = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), "--hang-abort-after", "12s"]
    environ = {**os.environ, "PYTHONPATH": str(FAULTS.parent.parent)}
    command = [*launcher, str(FAULTS / program), kind, str(culprit)]
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode != 124:
        sys.exit(f"{kind} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    (run,) = set(folder.glob("runs/*")) - before
    verdict: dict[str, Any] = json.loads((run / "incident-0/verdict.json").read_text())
    return verdict


def main() -> None:
    options = parser(__doc__, runs=1, ranks=4).parse_args()
    print(f"{options.ranks} ranks, medians of {options.runs}, --hang-abort-after 12s; seconds since the last progress")
    print(f"  {'kind':<18} {'code':<6} {'notice':>7} {'target':>7} {'verdict':>8}")
    figures = []
    for program, kind, culprit in KINDS:
        verdicts = []
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as name:  # a fresh one: some kinds make a file
                verdicts.append(one(program, kind, culprit, options.ranks, Path(name)))
        notice, end = (
            statistics.median(verdict[key] for verdict in verdicts) for key in ("detected_after_s", "concluded_after_s")
        )
        target = CONCLUSIVE_S if verdicts[0]["conclusive"] else NOTICE_S
        missed = "" if notice <= target else "   missed"
        print(f"  {kind:<18} {verdicts[0]['code']:<6} {notice:7.2f} {target:7.1f} {end:8.2f}{missed}", flush=True)
        figures.append({"kind": kind, "code": verdicts[0]["code"], "notice": notice, "target": target, "verdict": end})
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

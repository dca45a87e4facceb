"""From the death of a rank to the verdict on disk, and to safelaunch's exit, for several kinds of death."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pairs import LAUNCHERS, parser

VICTIM = Path(__file__).resolve().parent.parent / "tests" / "faults" / "victim.py"
KINDS = ("exception", "segfault", "sigkill", "exit", "leave", "early_import")


def one(kind: str, ranks: int, folder: Path) -> tuple[float, float]:
    """(seconds from death to verdict, seconds from death to exit)."""
    before = set(folder.glob("runs/*"))
    command = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), str(VICTIM), kind, "1"]
    environ = {**os.environ, "PYTHONPATH": str(VICTIM.parent.parent.parent)}
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    ended = time.monotonic()
    (run,) = set(folder.glob("runs/*")) - before
    events = [json.loads(line) for line in (run / "agent.jsonl").read_text().splitlines()]
    case = json.loads((run / "incident-0/evidence/case.json").read_text())
    death = case["incident"]["t"]
    verdict = next(event["t"] for event in events if event["event"] == "verdict")
    return verdict - death, ended - death


def main() -> None:
    options = parser(__doc__, runs=3, ranks=4).parse_args()
    print(f"{options.ranks} ranks, medians of {options.runs}; targets: verdict <= 1.5 s, exit <= 3 s")
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            times = [one(kind, options.ranks, Path(name)) for _ in range(options.runs)]
            verdict, ended = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"  {kind:<14} verdict {verdict:6.3f} s   exit {ended:6.3f} s")


if __name__ == "__main__":
    main()

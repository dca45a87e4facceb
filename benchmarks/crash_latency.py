"""From the death of a rank to the verdict on disk, and to safelaunch's exit, for several kinds of death."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

from figures import Figures, Row, parser
from pairs import LAUNCHERS, REPOSITORY, environment

VICTIM = REPOSITORY / "tests" / "faults" / "victim.py"
KINDS = ("exception", "segfault", "sigkill", "exit", "leave", "early_import")
TARGETS = ("<= 1.5", "<= 3")


def one(kind: str, ranks: int, folder: Path) -> tuple[float, float]:
    """(seconds from death to verdict, seconds from death to exit)."""
    before = set(folder.glob("safelaunch_runs/*"))
    command = [*LAUNCHERS["safelaunch"], "--nproc-per-node", str(ranks), str(VICTIM), kind, "1"]
    subprocess.run(command, cwd=folder, env=environment(), capture_output=True, check=False)
    ended = time.monotonic()
    (run,) = set(folder.glob("safelaunch_runs/*")) - before
    events = [json.loads(line) for line in (run / "agent.jsonl").read_text().splitlines()]
    case = json.loads((run / "incident-0/evidence/case.json").read_text())
    death = case["incident"]["t"]
    verdict = next(event["t"] for event in events if event["event"] == "verdict")
    return verdict - death, ended - death


def main() -> None:
    options = parser(__doc__, runs=3, ranks=4).parse_args()
    figures = Figures(f"Death of one of {options.ranks} ranks: seconds until the verdict and the exit", options.json)
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            times = [one(kind, options.ranks, Path(name)) for _ in range(options.runs)]
            for what, seconds, target in zip(("verdict", "exit"), zip(*times, strict=True), TARGETS, strict=True):
                figures.add(Row(f"{kind}: {what}", "s", {"safelaunch": seconds}, target=target))
    figures.write()


if __name__ == "__main__":
    main()

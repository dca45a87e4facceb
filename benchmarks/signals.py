"""Random signals to random processes of a small healthy job: the launcher ends, nothing is left, nobody is slandered.

Each run gets one signal, at a random moment; what was stopped goes on after a while. By hand:
`benchmarks/signals.py --count 300 --parallel 2`. The seed of each run is its number.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "e2e")]

from harness import newest_run, start, survivors, wait_for_lines  # noqa: E402
from test_chaos import victims  # noqa: E402

JOB = REPOSITORY / "benchmarks" / "loading.py"
SIGNALS = (
    "TERM", "KILL", "STOP", "INT", "HUP", "QUIT", "ABRT", "SEGV", "USR1", "USR2", "PIPE", "ALRM", "CHLD", "CONT",
)  # fmt: skip
PARTS = ("supervisor", "guard", "fork server", "agent", "worker", "loader")
TRAINS_S = 4.0
EARLY = 0.3  # of the signals come before the ranks train
MOMENTS_S = (0.1, 3.0)  # from the start of the launcher, or of the training
STOPPED_S = (1.5, 8.0)
BOUND_S = 90.0  # for a run that takes ten seconds


@dataclass
class Told:
    """What a run came to."""

    seed: int
    part: str
    signal: str
    way: str
    code: int | None  # None: it had to be ended
    faults: list[str]

    def line(self) -> str:
        return f"{self.seed:4} {self.way:4} {self.signal:4} to {self.part:11} -> {self.code}  {'; '.join(self.faults)}"


def one(seed: int) -> Told:
    """Run one job, and send one signal."""
    chance = random.Random(seed)
    way, name = chance.choice(["warm", "cold"]), chance.choice(SIGNALS)
    with tempfile.TemporaryDirectory(prefix="signals-") as folder:
        options = (f"--{'no-' if way == 'cold' else ''}warm-start", "--shutdown-timeout", "2")
        restarts = chance.choice([0, 1])
        process = start(*("--nproc-per-node", 2, "--max-restarts", restarts, *options, JOB, TRAINS_S), cwd=Path(folder))
        if chance.random() > EARLY:
            wait_for_lines(process, "training", 2)
        time.sleep(chance.uniform(*MOMENTS_S))
        part, pid, parent = _choose(process.pid, chance)
        number = getattr(signal, f"SIG{name}")
        _send(pid, number)
        if name == "STOP":
            time.sleep(chance.uniform(*STOPPED_S))
            _send(pid, signal.SIGCONT)
        return _told(seed, part, name, way, process, Path(folder), {pid, parent})


def _choose(supervisor: int, chance: random.Random) -> tuple[str, int, int]:
    """A part of the tree that is there, one of its processes, and the parent of that."""
    found = {part: pids for part, pids in victims(supervisor).items() if pids}
    part = chance.choice([part for part in PARTS if part in found])
    pid = chance.choice(found[part])
    parent = 0
    if part == "loader":
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    return part, pid, parent


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _told(
    seed: int, part: str, name: str, way: str, process: subprocess.Popen[str], folder: Path, touched: set[int]
) -> Told:
    faults: list[str] = []
    code: int | None
    try:
        _, err = process.communicate(timeout=BOUND_S)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        code = None
        faults.append("it did not end")
    run_dir = newest_run(folder)
    if run_dir is not None and (run_dir / "run.json").exists():
        if left := survivors(run_dir, within_s=10):
            faults.append(f"left behind: {left}")
        known = _ranks(run_dir)
        guilty = {rank for pid, rank in known if pid in touched}
        for rank, where in _named(run_dir, err):
            if rank not in guilty:
                faults.append(f"names rank {rank}: {where}")
    if "Traceback" in "".join(line for line in err.splitlines(True) if line.startswith("safelaunch")):
        faults.append("a traceback of our own")
    return Told(seed, part, name, way, code, sorted(set(faults)))


def _ranks(run_dir: Path) -> list[tuple[int, int]]:
    """Pid and rank of each worker that was started."""
    events = _lines(run_dir / "agent.jsonl")
    return [(event["pid"], event["rank"]) for event in events if event.get("event") == "worker"]


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def _named(run_dir: Path, err: str) -> list[tuple[int, str]]:
    """The ranks that are named as culprits, in the result and in what was said."""
    found = []
    for path in (run_dir / "result.json", *run_dir.glob("incident-*/*.json")):
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        for verdict in document.get("verdicts", [document]):
            found += [(rank, f"{verdict['code']} in {path.name}") for rank in verdict.get("culprit_ranks", ())]
    for line in err.splitlines():
        if match := re.match(r"(?:safelaunch: |error\[|warning\[)(SL[3-5]\d\d)\]?: rank (\d+)", line):
            found.append((int(match[2]), line))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first run")
    parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    with ThreadPoolExecutor(options.parallel) as pool:
        told = []
        for result in pool.map(one, seeds):
            told.append(result)
            print(result.line(), flush=True)
    print(f"\n{'':12}" + "".join(f"{name:>6}" for name in SIGNALS))
    for part in PARTS:
        cells = Counter(result.signal for result in told if result.part == part)
        print(f"{part:12}" + "".join(f"{cells[name] or '':>6}" for name in SIGNALS))
    bad = [result for result in told if result.faults]
    print(f"\n{len(told)} signals, {len(bad)} runs with a fault")
    for result in bad:
        print(result.line())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

"""`safelaunch diagnose` over synthetic Flight Recorder dumps: seconds and memory by ranks, beside torch's analyser.

Targets: 1,024 ranks x 2,000 entries in less than 30 s and 2 GiB on 2 cores, growing linearly with ranks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "rigs"))

OURS = (sys.executable, "-m", "safelaunch", "diagnose")
TORCH = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace")
LIMIT_S = 600.0


@dataclass(frozen=True)
class Measured:
    """Seconds on the wall and of CPU, and the peak of memory of a process and its children together."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str


def measure(command: Sequence[str]) -> Measured:
    before = os.times()
    begun = time.perf_counter()
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + f"\nended after {LIMIT_S:.0f} s"
    wall = time.perf_counter() - begun
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured(wall, cpu, peak[0], output)


def _watch(process: subprocess.Popen[str], peak: list[float]) -> None:
    import psutil

    try:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            family = [root, *root.children(recursive=True)]
            peak[0] = max(peak[0], sum(_private(one) for one in family) / (1 << 20))
            time.sleep(0.05)
    except psutil.Error:
        pass


def _private(process: object) -> int:
    """Resident bytes, of a forked child only those that it does not share."""
    import psutil

    try:
        return int(process.memory_full_info().pss)  # type: ignore[attr-defined]
    except psutil.Error:
        return 0


def main() -> None:
    from fr_dumps import large_job

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, nargs="*", default=[256, 512, 1024])
    options.add_argument("--entries", type=int, default=2000)
    options.add_argument("--json-dumps", action="store_true", help="JSON in place of pickles (torch's cannot read it)")
    options.add_argument("--torch-up-to", type=int, default=256, help="ranks for torch's own analyser, which is slow")
    chosen = options.parse_args()
    print(f"{chosen.entries} entries a rank, on {len(os.sched_getaffinity(0))} cores")
    first = None
    for size in chosen.ranks:
        with tempfile.TemporaryDirectory() as name:
            large_job(Path(name), size, chosen.entries, size * 3 // 4 + 1, as_json=chosen.json_dumps)
            total = sum(path.stat().st_size for path in Path(name).iterdir()) >> 20
            ours = measure([*OURS, name])
            right = f"rank {size * 3 // 4 + 1} never entered" in ours.output
            per_rank = ours.wall_s / size
            first = first or per_rank
            verdict = "right" if right else "WRONG"
            print(
                f"  {size:5} ranks {total:5} MiB: {ours.wall_s:6.2f} s ({ours.cpu_s:6.2f} s of CPU), "
                f"{ours.peak_mib:6.0f} MiB, {verdict}, a rank {per_rank / first:4.2f} of the first line's",
                flush=True,
            )
            if size > chosen.torch_up_to or chosen.json_dumps:
                continue
            theirs = measure([*TORCH, name])
            last = theirs.output.strip().splitlines()[-1:] or [""]
            print(
                f"        torch's: {theirs.wall_s:6.2f} s, {theirs.peak_mib:6.0f} MiB; "
                f"ratio {ours.wall_s / theirs.wall_s:5.3f}   {last[0][:80]}",
                flush=True,
            )


if __name__ == "__main__":
    main()

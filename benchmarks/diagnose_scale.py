"""`safelaunch diagnose` over synthetic Flight Recorder dumps: seconds and memory by ranks, beside torch's analyser.

Targets: 1,024 ranks x 2,000 entries in less than 30 s and 2 GiB on 2 cores, growing linearly with ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import THEIRS, Figures, Row, parser
from pairs import environment, pss_mib, tree

OURS = (sys.executable, "-m", "safelaunch", "diagnose")
TORCH = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace")
LIMIT_S = 600.0
SAMPLE_S = 0.1
TARGETS = {256: ("<= 8", "<= 512"), 1024: ("<= 30", "<= 2048")}  # seconds, MiB


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
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
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
    while process.poll() is None:
        peak[0] = max(peak[0], pss_mib(tree(process.pid)))
        time.sleep(SAMPLE_S)


def main() -> None:
    from fr_dumps import large_job

    options = parser(__doc__)
    options.add_argument("--ranks", type=int, nargs="*", default=[256, 512, 1024])
    options.add_argument("--entries", type=int, default=2000)
    options.add_argument("--json-dumps", action="store_true", help="JSON in place of pickles (torch's cannot read it)")
    options.add_argument("--torch-up-to", type=int, default=256, help="ranks for torch's own analyser, which is slow")
    chosen = options.parse_args()
    title = f"safelaunch diagnose over dumps of {chosen.entries} entries a rank, beside torch's analyser"
    figures = Figures(title, chosen.json)
    for size in chosen.ranks:
        with tempfile.TemporaryDirectory() as name:
            large_job(Path(name), size, chosen.entries, size * 3 // 4 + 1, as_json=chosen.json_dumps)
            total = sum(path.stat().st_size for path in Path(name).iterdir()) >> 20
            found = {"safelaunch": measure([*OURS, name])}
            if size <= chosen.torch_up_to and not chosen.json_dumps:
                found[THEIRS] = measure([*TORCH, name])
        if f"rank {size * 3 // 4 + 1} never entered" not in found["safelaunch"].output:
            figures.note(f"{size} ranks: WRONG: {found['safelaunch'].output.strip()[:200]}")
        for what, unit, key, target in zip(
            ("", ": CPU", ": memory"), ("s", "s", "MiB"), ("wall_s", "cpu_s", "peak_mib"), _targets(size), strict=True
        ):
            values = {launcher: [getattr(one, key)] for launcher, one in found.items()}
            figures.add(Row(f"{size} ranks, {total} MiB{what}", unit, values, target=target))
    figures.write()


def _targets(size: int) -> tuple[str, str, str]:
    seconds, mib = TARGETS.get(size, ("", ""))
    return seconds, "", mib


if __name__ == "__main__":
    main()

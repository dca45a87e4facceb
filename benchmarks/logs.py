"""MB/s from ranks that do nothing but write: through `--tee 3`, into files (`-r 3`), and straight to the console."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, compare, environment

WAYS = {"--tee 3": ("--tee", "3"), "-r 3": ("-r", "3"), "plain": ()}
PREFIX = len("[default0]:")
LINE = 100


@dataclass(frozen=True)
class Written:
    """MB/s that the ranks got rid of together, and that came out at the console until the last byte was there."""

    ranks: float
    console: float


def written(command: Sequence[str], folder: Path, ranks: int, mib: int, teed: bool, shown: bool) -> Written:
    """One launch."""
    with tempfile.TemporaryDirectory(dir=folder) as told:
        full = [*command, str(HERE / "writing.py"), str(mib), told]
        process = subprocess.Popen(
            full,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        received, last = 0, 0.0
        while data := os.read(process.stdout.fileno(), 1 << 20):
            received += len(data)
            last = time.monotonic()
        _, said = process.communicate()
        if process.returncode:
            sys.exit(f"{full} ended with {process.returncode}:\n{said.decode()[-2000:]}")
        times = [json.loads((Path(told) / f"{rank}.json").read_text()) for rank in range(ranks)]
    size = sum(size for _, _, size in times)
    expected = (size + (size // LINE * PREFIX if teed else 0)) if shown else 0
    if received != expected:
        sys.exit(f"{full}: {received} bytes came of {expected}")
    begun = min(begun for begun, _, _ in times)
    console = size / 1e6 / (last - begun) if shown else 0.0
    return Written(sum(size / 1e6 / (ended - begun) for begun, ended, size in times), console)


def main() -> None:
    options = parser(__doc__, runs=5, ranks=2)
    options.add_argument("--mib", type=int, default=100, help="what each rank writes")
    chosen = options.parse_args()
    figures = Figures(f"{chosen.ranks} ranks write {chosen.mib} MiB each, in lines of {LINE} bytes", chosen.json)
    for way, flags in WAYS.items():
        measure = functools.partial(
            written, ranks=chosen.ranks, mib=chosen.mib, teed=way == "--tee 3", shown=way != "-r 3"
        )
        arguments = ["--nproc-per-node", str(chosen.ranks), *flags]
        found = compare(arguments, chosen.runs, measure, warm_up=False)
        figures.add(
            Row(f"{way}: what the ranks can write", "MB/s", {n: [w.ranks for w in v] for n, v in found.items()})
        )
        if way != "-r 3":
            values = {name: [one.console for one in many] for name, many in found.items()}
            figures.add(Row(f"{way}: until it is out", "MB/s", values, target=">= 100" if way == "--tee 3" else ""))
    figures.write()


if __name__ == "__main__":
    main()

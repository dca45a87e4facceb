"""The figures of one benchmark: printed line by line as they come, and kept as JSON for RESULTS.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

THEIRS = "torchrun"
WIDTH, COLUMN = 50, 27


@dataclass(frozen=True)
class Row:
    """What was measured, by who did it.

    Args:
        what: was measured.
        unit: of the values.
        values: of each run, by launcher; the runs of one place were made one after the other.
        ratio: the target for the first launcher's values divided by torchrun's, pair by pair, such as "<= 0.45".
        target: the target for the first launcher's median itself.
    """

    what: str
    unit: str
    values: Mapping[str, Sequence[float]]
    ratio: str = ""
    target: str = ""

    @property
    def first(self) -> str:
        return next(iter(self.values))

    def ratios(self, name: str) -> list[float]:
        """The values of a launcher divided by torchrun's, pair by pair; empty where there is nothing to divide by."""
        theirs = self.values.get(THEIRS, ())
        if name == THEIRS:
            return []
        return [ours / other for ours, other in zip(self.values[name], theirs, strict=False) if other]

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or no value."""
        if self.ratio and self.ratios(self.first):
            return meets(statistics.median(self.ratios(self.first)), self.ratio)
        if self.target and self.values[self.first]:
            return meets(statistics.median(self.values[self.first]), self.target)
        return None


def meets(value: float, target: str) -> bool:
    """Whether a value is within a target such as "<= 0.45"."""
    relation, bound = target.split()
    return value <= float(bound) if relation == "<=" else value >= float(bound)


def spread(values: Sequence[float]) -> str:
    """The median, and the least and the greatest value."""
    if not values:
        return "-"
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{number(min(values))}..{number(max(values))}]"


def number(value: float) -> str:
    """Three digits that count."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def cells(row: Row, names: Sequence[str]) -> list[str]:
    """A row as a table shows it: the values of each launcher, the ratios, the target, and whether it is met."""
    shown = [f"{spread(row.values[name])} {row.unit}" if row.values.get(name) else "" for name in names]
    for name in names:
        if THEIRS in names and name != THEIRS:
            shown.append(spread(row.ratios(name)) if row.ratios(name) else "")
    target = f"ratio {row.ratio}" if row.ratio else f"{row.target} {row.unit}" if row.target else ""
    return [*shown, target, {True: "met", False: "MISSED", None: ""}[row.met]]


def heads(names: Sequence[str]) -> list[str]:
    """What stands above `cells`."""
    ratios = [f"{name} / {THEIRS}" for name in names if THEIRS in names and name != THEIRS]
    return [*names, *ratios, "target", ""]


@dataclass
class Figures:
    """The rows of one benchmark.

    Args:
        title: says what it measures.
        file: where they are written, None for nowhere.
    """

    title: str
    file: Path | None
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _names: tuple[str, ...] = ()
    _load: tuple[float, ...] = field(default_factory=os.getloadavg)

    def __post_init__(self) -> None:
        print(self.title, flush=True)

    def add(self, row: Row) -> None:
        """Print a row, and keep it."""
        self.rows.append(row)
        names = tuple(row.values)
        if names != self._names:
            self._names = names
            self._print("", heads(names))
        self._print(row.what, cells(row, names))

    def note(self, text: str) -> None:
        """Something that a reader of the rows must know."""
        self.notes.append(text)
        print(f"  note: {text}", flush=True)

    def write(self) -> None:
        """Write them, where a file is given."""
        if self.file is None:
            return
        document = {
            "benchmark": Path(sys.argv[0]).stem,
            "command": " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *_without_json(sys.argv[1:])]),
            "title": self.title,
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "machine": machine(),
            "load": [round(self._load[0], 2), round(os.getloadavg()[0], 2)],
            "notes": self.notes,
            "rows": [asdict(row) for row in self.rows],
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(document, indent=1) + "\n")

    def _print(self, what: str, columns: Sequence[str]) -> None:
        line = f"  {what:<{WIDTH}} " + "".join(f"{column:<{COLUMN}} " for column in columns)
        print(line.rstrip(), flush=True)


def parser(description: str | None, *, runs: int = 0, ranks: int = 0) -> argparse.ArgumentParser:
    """Options that the benchmarks share."""
    options = argparse.ArgumentParser(description=description)
    if runs:
        options.add_argument("--runs", type=int, default=runs, help="counted runs of each launcher")
    if ranks:
        options.add_argument("--ranks", type=int, default=ranks, help="ranks on this node")
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    return options


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) >> 20
    return {
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _without_json(words: Sequence[str]) -> list[str]:
    at = words.index("--json") if "--json" in words else len(words)
    return [*words[:at], *words[at + 2 :]]

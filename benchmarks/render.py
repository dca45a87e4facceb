"""`render.py FOLDER FILE`: RESULTS.md from what the benchmarks have left as JSON in FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from figures import THEIRS, Row, cells, heads

ORDER = (
    "startup", "startup_more", "startup_gloo", "restart", "overhead", "supervisor", "heartbeat", "daylong", "logs",
    "crash_latency", "hang_latency", "preflight", "diagnose_scale", "scale",
)  # fmt: skip
TOP = """# Results

Written by `make bench`, which runs all benchmarks and writes this file; `make bench RUNS=5` makes more runs of each. A
single table is made again by the command that stands above it. What is compared was run in turn in one sitting; a ratio
is the median over pairs of runs, with the least and the greatest in brackets. Times depend on the machine and on what
else it does; ratios do so less.
"""


def main() -> None:
    folder, file = map(Path, sys.argv[1:3])
    documents = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    names = [name for name in ORDER if name in documents] + sorted(set(documents) - set(ORDER))
    if not names:
        sys.exit(f"there are no results in {folder}")
    text = [TOP, *_machine([documents[name] for name in names])]
    for name in names:
        text += _section(documents[name])
    file.write_text("\n".join(text) + "\n")


def _machine(documents: list[dict[str, Any]]) -> list[str]:
    machine = documents[0]["machine"]
    dates = sorted(document["date"] for document in documents)
    lines = [
        f"- {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}",
        f"- Python {machine['python']}, torch {machine['torch']}",
        f"- {dates[0]} to {dates[-1]}",
    ]
    busy = max(document["load"][0] for document in documents)
    lines.append(f"- load of the machine when a benchmark began: at most {busy:.1f} (includes those before it)")
    if any(document["machine"] != machine for document in documents):
        lines.append("- not all of these were made on the same machine, or with the same versions")
    return [*lines, ""]


def _section(document: dict[str, Any]) -> list[str]:
    lines = [f"## {document['title']}", "", f"`{document['command']}`, {document['date']}", ""]
    names: tuple[str, ...] = ()
    for row in (Row(**fields) for fields in document["rows"]):
        launchers = tuple(row.values)
        if launchers != names:
            names = launchers
            head = heads(names)
            lines += [*([""] if lines[-1] else []), "| | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
        lines.append("| " + " | ".join([row.what, *cells(row, names)]) + " |")
    shown = [*lines, "", *(f"- {note}" for note in document["notes"])]
    if any(THEIRS in row["values"] for row in document["rows"]) and document["benchmark"] == "diagnose_scale":
        shown += ["", f"`{THEIRS}` stands here for torch's own analyser, `fr_trace`."]
    return [*shown, ""] if shown[-1] else shown


if __name__ == "__main__":
    main()

"""What the run was started with: its command line, versions, mapping, environment, and what the checks found."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safelaunch import redaction
from safelaunch.model import Finding
from safelaunch.report.page.element import Html, cell, tag
from safelaunch.report.page.subject import Surroundings

QUIET = ("ok", "skipped")
FINDINGS = 100
PLACES = 64
COLUMNS = ("rank", "host", "local_rank", "gpu_index", "uuid", "address", "numa_node", "cpus")
ENVIRONMENT = 400  # variables


def sections(known: Surroundings) -> tuple[tuple[str, Callable[[], Html | None]], ...]:
    """What makes a section for each thing that is known, with its name."""
    return (
        ("the run", lambda: _run(known.run)),
        ("the checks", lambda: _findings(known.findings)),
        ("the environment", lambda: _environment(known.environment)),
    )


def _run(run: Mapping[str, Any]) -> Html | None:
    if not run:
        return None
    argv = run.get("argv")
    started = run.get("started")
    facts = {
        "run": run.get("run_id"),
        "command line": _command_line(argv) if isinstance(argv, list) else None,
        "folder": run.get("cwd"),
        "started": _clock(started) if isinstance(started, (int, float)) else None,
        "safelaunch": run.get("safelaunch"),
        "Python": run.get("python"),
        "torch": run.get("torch"),
    }
    rows = [tag("tr", tag("th", name), tag("td", str(value))) for name, value in facts.items() if value]
    rest = {name: run[name] for name in ("settings", "plan") if name in run}
    return tag(
        "section",
        tag("h2", "Run"),
        tag("table", tag("tbody", *rows), class_="facts"),
        _mapping(run.get("mapping")),
        tag(
            "details",
            tag("summary", "settings and plan"),
            tag("pre", json.dumps(redaction.document(rest), indent=1, default=str)),
        )
        if rest
        else None,
    )


def _command_line(argv: Sequence[object]) -> str:
    return shlex.join(["safelaunch", *redaction.arguments([str(word) for word in argv])])


def _clock(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return str(seconds)


def _mapping(mapping: object) -> Html | None:
    latest = mapping[-1] if isinstance(mapping, list) and mapping else None
    places = latest.get("ranks") if isinstance(latest, Mapping) else None
    rows = [row for row in places if isinstance(row, Mapping)] if isinstance(places, list) else []
    if not rows:
        return None
    columns = [name for name in COLUMNS if any(row.get(name) not in (None, "") for row in rows)]
    body = [
        tag("tr", *(tag("td", cell("" if row.get(name) is None else row[name])) for name in columns))
        for row in rows[:PLACES]
    ]
    head = tag("thead", tag("tr", *(tag("th", name.replace("_", " ")) for name in columns)))
    more = tag("p", f"... and {len(rows) - PLACES} more, in run.json") if len(rows) > PLACES else None
    return tag("div", tag("h3", "Where the ranks ran"), tag("table", head, tag("tbody", *body)), more)


def _findings(findings: Sequence[Finding] | None) -> Html | None:
    if findings is None:
        return None
    loud = [finding for finding in findings if finding.severity not in QUIET]
    quiet = len(findings) - len(loud)
    passed = sum(finding.severity == "ok" for finding in findings)
    told = f"{passed} passed, {quiet - passed} did not apply" if findings else "nothing was checked before the start"
    items = [
        tag(
            "li",
            tag("strong", f"{finding.severity}[{finding.code}] "),
            cell(finding.summary, 1000),
            *(tag("div", f"because: {cell(line, 1000)}", class_="dim") for line in finding.because),
            tag("div", f"help: {cell(finding.remedy, 1000)}", class_="dim") if finding.remedy else None,
            class_=finding.severity,
        )
        for finding in loud[:FINDINGS]
    ]
    return tag("section", tag("h2", "Checks before the start"), tag("ul", *items) if items else None, tag("p", told))


def _environment(environment: str) -> Html | None:
    if not environment.strip():
        return None
    lines = redaction.text(environment).splitlines()
    chosen = [line for line in lines if not line.endswith("  # shell")]
    rest = [line for line in lines if line.endswith("  # shell")]
    return tag(
        "section",
        tag("h2", "Environment"),
        tag("p", "Each variable with where it was set; secrets are left out.", class_="dim"),
        tag("pre", *(f"{cell(line, 2000)}\n" for line in chosen[:ENVIRONMENT])) if chosen else None,
        tag(
            "details",
            tag("summary", f"{len(rest)} {'variable' if len(rest) == 1 else 'variables'} of the shell"),
            tag("pre", *(f"{cell(line, 2000)}\n" for line in rest[:ENVIRONMENT])),
        )
        if rest
        else None,
    )

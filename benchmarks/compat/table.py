"""Results as JSON, and as the table of the documentation."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from catalogue import families

if TYPE_CHECKING:
    from run import Result

TOP = """# The same program, the same result

Written by `python benchmarks/compat/run.py --markdown docs/compat.md`, which runs the programs of
`benchmarks/compat/programs` under torchrun, under safelaunch with a warm start and with a cold one. Compared are the
exit code, stdout and stderr of each rank in each attempt, the launcher's stdout, files with their modes and contents,
processes that are left behind, and whether what each rank draws for itself is its own.
"""


def document(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "program": result.program,
        "skipped": result.skipped,
        "unexplained": [vars(difference) for difference in result.unexplained],
        "explained": [{**vars(difference), "reason": reason.reason} for difference, reason in result.explained],
        "cold": result.cold,
        "seconds": result.seconds,
    }


def markdown(results: Sequence[Result], seconds: float) -> str:
    """The page of the documentation."""
    ran = [result for result in results if not result.skipped]
    lines = [TOP, f"{_versions()}. {len(ran)} programs in {seconds / 60:.0f} minutes.", ""]
    lines += [
        "| family | | programs | started cold by itself | known differences | unexplained |",
        "|---|---|---|---|---|---|",
    ]
    by_family = defaultdict(list)
    for result in ran:
        by_family[result.program.partition("/")[0]].append(result)
    about = families()
    for family, members in by_family.items():
        cells = [
            family,
            about[family],
            len(members),
            sum(bool(result.cold) for result in members),
            sum(bool(result.explained) for result in members),
            sum(bool(result.unexplained) for result in members),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "## Known differences", "", "| programs | start | what | why |", "|---|---|---|---|"]
    used = dict.fromkeys(reason for result in ran for _, reason in result.explained)
    lines += [f"| `{one.programs}` | {_start(one.launcher)} | {one.what} | {one.reason} |" for one in used]
    skipped = [result for result in results if result.skipped]
    if skipped:
        lines += ["", "## Left out", ""] + [f"- `{result.program}`: {result.skipped}" for result in skipped]
    return "\n".join(lines) + "\n"


def _start(launcher: str) -> str:
    return "both" if launcher == "*" else launcher


def _versions() -> str:
    names = ("torch", "numpy")
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {metadata.version(name)}" for name in names)])

"""Runs one of the programs of this folder and reads its report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Generic, TypeVar

from safelaunch.codec import from_json
from safelaunch.preflight.machine.host import Host

# `import torch` takes 1 s from a local disk, and tens of seconds from a shared file system that is cold.
IMPORT_DEADLINE_S = 60.0
# How long a probe may take beyond its own deadline to end its processes and report.
MARGIN_S = 5.0

R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """The report of a probe; without one, `unknown` says why. `stuck_in` is what it was doing at its deadline."""

    report: R | None = None
    unknown: str = ""
    stuck_in: str = ""


def run_program(
    host: Host, report: type[R], program: str, *arguments: str, deadline_s: float, **environ: str
) -> Outcome[R]:
    """Run a program with so many seconds for its work, once torch is imported."""
    try:
        ended = host.run_probe(
            f"active/{program}",
            *arguments,
            deadline_s=IMPORT_DEADLINE_S + deadline_s + MARGIN_S,
            OMP_NUM_THREADS="1",
            **environ,
        )
    except OSError as error:
        return Outcome(unknown=f"the probe did not start: {error}")
    try:
        return Outcome(from_json(report, json.loads(ended.stdout)))
    except (ValueError, TypeError, KeyError):
        if not ended.timed_out:
            return Outcome(unknown=f"the probe ended with {ended.returncode}: {ended.last_line}")
    stuck_in = ended.last_line or "the start of Python"
    return Outcome(unknown=f"after {ended.elapsed_s:.0f} s the probe is in {stuck_in}", stuck_in=stuck_in)

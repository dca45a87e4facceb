"""The folder of an incident: what a colleague needs to see the same verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from safelaunch import files
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import verdict as terminal


def write(
    folder: str, case: Case, verdict: Verdict, evidence: Iterable[Evidence], stack_text: Callable[..., str]
) -> None:
    """Write `verdict.json`, `verdict.txt` and the evidence of each rank below `folder`.

    Args:
        folder: `incident-N` of the run directory.
        case: what the verdict was concluded from; `evidence/case.json` gives it to an offline diagnosis.
        verdict: the verdict.
        evidence: as the collectors gave it.
        stack_text: turns the facts of a rank into its `stack.txt`.

    Raises:
        OSError: when the disk is full or gone.
    """
    files.write_json(os.path.join(folder, "verdict.json"), verdict)
    files.write_text(os.path.join(folder, "verdict.txt"), "\n".join(terminal.lines(verdict, folder)) + "\n")
    files.write_json(os.path.join(folder, "evidence", "case.json"), case)
    for facts in case.ranks:
        rank_folder = os.path.join(folder, "evidence", f"rank_{facts.rank:03d}")
        files.write_text(os.path.join(rank_folder, "stack.txt"), stack_text(facts))
    for item in evidence:
        path = os.path.join(folder, "evidence", f"rank_{item.rank:03d}", f"{item.source}.json")
        files.write_json(path, item)

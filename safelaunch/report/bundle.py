"""The folder of an incident: what a colleague needs to see the same verdict."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable

from safelaunch import files, printable, redaction
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import verdict as terminal

MEMORY = "/dev/shm"


def write(
    folder: str,
    case: Case,
    verdict: Verdict,
    evidence: Iterable[Evidence],
    stack_text: Callable[..., str],
    name: str = "verdict",
    why: Callable[[Case], Iterable[str]] | None = None,
) -> tuple[str, str]:
    """Write `verdict.json`, `verdict.txt`, `why.txt` and the evidence of each rank below `folder`, or, where that takes
    no more, below a new folder in memory (/dev/shm) or in TMPDIR: a full disk may be why the ranks fail.

    Returns the folder where they are, empty where they can be kept nowhere, and a line to be said where it is not the
    one that was asked for.

    Args:
        folder: `incident-N` of the run directory.
        case: what the verdict was concluded from; `evidence/case.json` gives it to an offline diagnosis.
        verdict: the verdict.
        evidence: as the collectors gave it.
        stack_text: turns the facts of a rank into its `stack.txt`.
        name: `notice` for what may still end well.
        why: tells how the verdict came about, in lines.
    """

    def put(place: str) -> None:
        _write(place, case, verdict, evidence, stack_text, name)
        if why is not None:
            _write_why(place, case, why)

    evidence = tuple(evidence)
    try:
        put(folder)
        return folder, ""
    except OSError as error:
        fault = f"the evidence cannot be written to {folder}: {error.filename}: {error.strerror}"
    for parent in (MEMORY, None):
        try:
            place = tempfile.mkdtemp(prefix=f"safelaunch-{os.path.basename(folder)}-", dir=parent)
        except OSError:
            continue
        try:
            put(place)
            return place, f"{fault}; it is in {place}"
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
    return "", fault


def _write(
    folder: str,
    case: Case,
    verdict: Verdict,
    evidence: Iterable[Evidence],
    stack_text: Callable[..., str],
    name: str,
) -> None:
    write_verdict(folder, verdict, name)
    files.write_json(os.path.join(folder, "evidence", "case.json"), case)
    for facts in case.ranks:
        rank_folder = os.path.join(folder, "evidence", f"rank_{facts.rank:03d}")
        files.write_lines(os.path.join(rank_folder, "stack.txt"), printable.lines(stack_text(facts).removesuffix("\n")))
    for item in evidence:
        path = os.path.join(folder, "evidence", f"rank_{item.rank:03d}", f"{item.source}.json")
        files.write_json(path, item)


def _write_why(folder: str, case: Case, why: Callable[[Case], Iterable[str]]) -> None:
    try:
        told = tuple(why(case))
    except Exception as error:  # it is there for whoever writes rules, and the verdict is there without it
        told = (f"safelaunch's own fault: {error!r}",)
    files.write_lines(os.path.join(folder, "why.txt"), map(printable.line, redaction.lines(told)))


def write_verdict(folder: str, verdict: Verdict, name: str = "verdict") -> None:
    """Write only the verdict, beside evidence that lies there already. It is what people paste and send: secrets that
    can be recognised are left out. The evidence stays as it is.

    Raises:
        OSError: when the disk is full or gone.
    """
    verdict = terminal.without_secrets(verdict)
    files.write_json(os.path.join(folder, f"{name}.json"), verdict)
    files.write_lines(os.path.join(folder, f"{name}.txt"), terminal.lines(verdict, folder))

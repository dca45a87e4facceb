"""The page of a verdict, report.html: what is on it, and what is known of the run beside it."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from safelaunch import files, regular
from safelaunch.codec import checked
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.model import Case, Finding, Verdict
from safelaunch.run.own_faults import contained

if TYPE_CHECKING:
    from safelaunch.model.logs import LogFacts
    from safelaunch.report.page import Subject, Surroundings

NAME = "report.html"
MAX_BYTES = 16 << 20  # of a document beside an incident


def beside(folder: str, case: Case, verdict: Verdict, known: Callable[[], Surroundings | None]) -> str:
    """Write the page of one verdict to its folder. The verdict is worth more than its page: nothing is raised; the
    answer says why there is no page, or is empty."""
    faults: list[str] = []
    with contained(faults.append, f"there is no {NAME} in {folder}"):
        try:
            files.write_text(os.path.join(folder, NAME), build([subject(case, verdict, folder)], known()))
        except OSError as error:
            return f"{NAME} cannot be written to {folder}: {error.strerror}"
    return "".join(faults)


def subject(
    case: Case | None,
    verdict: Verdict | None,
    folder: str = "",
    notes: Sequence[str] = (),
    logs: LogFacts | None = None,
) -> Subject:
    """One verdict, with the wait-for graph of its case, or with what logs said."""
    from safelaunch.report.page import Subject, Waiting

    waits: list[Waiting] = []
    if case is not None:
        try:
            found = View(case).graph
        except Exception as error:  # the rules have told already what they could
            found, notes = Graph(), (*notes, f"the wait-for graph could not be built: {error!r}")
        for wait in found.waits:
            why = [*((rank, "stopped") for rank in wait.stopped[:200])]
            why += [(rank, "came with another operation") for rank in wait.differing[:200]]
            on = tuple(sorted({*wait.blockers, *wait.differing}))
            waits.append(Waiting(wait.rank, wait.call, on, tuple(why), len(wait.away)))
        for other in found.external:
            others = () if other.on in (None, other.rank) else (other.on,)
            waits.append(Waiting(other.rank, None, others, resource=other.resource.called))
    return Subject(verdict, folder, case, tuple(waits), tuple(notes), logs)


def surroundings(
    folder: str, findings: Sequence[Finding] | None = None, text: Callable[[str], str] | None = None
) -> Surroundings:
    """What lies in a run directory, or above an incident: run.json, env.txt, and the findings of result.json where
    they are not given. What cannot be read is left out. `text` reads a file by its path (None: from where it lies)."""
    from safelaunch.report.page import Surroundings

    text = text or _text
    run_dir = run_dir_of(folder, text) or folder
    run = _document(text(os.path.join(run_dir, "run.json")))
    if findings is None:
        findings = _findings(_document(text(os.path.join(run_dir, "result.json"))))
    return Surroundings(run, text(os.path.join(run_dir, "env.txt")), None if findings is None else tuple(findings))


def run_dir_of(path: str, text: Callable[[str], str] | None = None) -> str:
    """The run directory that `path` is, or the one of the incident that it is; empty where there is none. `text` is as
    for `surroundings`."""
    folder = os.path.abspath(path)
    folder = os.path.dirname(folder) if os.path.isfile(folder) else folder
    while not run_id(folder, text):
        name = os.path.basename(folder)
        if name != "evidence" and not name.startswith("incident-"):
            return ""  # what lies above is not ours
        folder = os.path.dirname(folder)
    return folder


def run_id(folder: str, text: Callable[[str], str] | None = None) -> str:
    """The id of the run whose directory this is; empty where it is none. `text` is as for `surroundings`."""
    return str(_document((text or _text)(os.path.join(folder, "run.json"))).get("run_id", ""))


def build(subjects: Sequence[Subject], known: Surroundings | None) -> str:
    """The page."""
    from safelaunch.report import page

    return page.build(subjects, known, time.time())


def _findings(result: dict[str, Any]) -> list[Finding] | None:
    if "findings" not in result:
        return None
    try:
        # What to do is for us to say, and not for a file that may have been sent.
        return [dataclasses.replace(checked(Finding, item), remedy="") for item in result["findings"]]
    except (TypeError, ValueError, AttributeError):
        return None


def _document(content: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _text(path: str) -> str:
    # Somebody may have sent the folder: a link in it would show what is ours.
    return regular.text(path, MAX_BYTES, followed=False) or ""

"""The incident folders of one run: what is written there at once, and the pages that have time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from safelaunch.diagnosis import why
from safelaunch.evidence import case
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import bundle
from safelaunch.run import pages
from safelaunch.run.console import Console
from safelaunch.run.findings import Findings
from safelaunch.run.own_faults import contained


class Incidents:
    """Pages are written when nobody waits: after the verdict is on the terminal, or while the ranks of a next attempt
    run. What cannot be written is told, and costs itself alone.

    Args:
        run_dir: of this node.
        console: of the run.
        findings: of the run, which the pages show.
    """

    def __init__(self, run_dir: str, console: Console, findings: Findings) -> None:
        self._run_dir = run_dir
        self._console = console
        self._findings = findings
        self.heard: Callable[[Verdict], None] = lambda _verdict: None  # told of verdicts that end an attempt
        self._made = 0
        self._pending: dict[str, tuple[Case, Verdict]] = {}
        self._concluded: list[tuple[Verdict, str]] = []

    def new_folder(self) -> str:
        """The path for the next incident; whoever writes there makes it."""
        self._made += 1
        return os.path.join(self._run_dir, f"incident-{self._made - 1}")

    def write(
        self,
        facts: Case,
        verdict: Verdict,
        evidence: Iterable[Evidence],
        folder: str = "",
        *,
        name: str = "verdict",
        reasons: bool = True,
    ) -> str:
        """Write an incident; returns the folder where it lies, empty where it can be kept nowhere.

        Args:
            facts: what the verdict was concluded from.
            verdict: what is said.
            evidence: as the collectors gave it.
            folder: that of an incident that is known already; else a new one.
            name: `notice` for what may still end well.
            reasons: whether `why.txt` tells how the verdict came about.
        """
        told = why.lines if reasons else None
        place = folder or self.new_folder()
        with contained(self._console.degraded, "the incident is not written, or not all of it"):
            place, fault = bundle.write(place, facts, verdict, evidence, case.stack_text, name, told)
            if fault:
                self._console.degraded(fault)
            return place
        return ""

    def write_verdict(self, folder: str, facts: Case | None, verdict: Verdict) -> None:
        """Write another verdict beside evidence that lies there already."""
        if not folder:
            return
        try:
            bundle.write_verdict(folder, verdict)
        except OSError as error:
            self._console.degraded(f"the verdict cannot be written: {error.filename}: {error.strerror}")
            return
        if facts is not None:
            self.page_later(folder, facts, verdict)

    def concluded(self, verdict: Verdict, folder: str) -> Verdict:
        """The verdict ends an attempt, and its incident lies there (empty: nowhere)."""
        self._concluded.append((verdict, folder))
        self.heard(verdict)
        return verdict

    def folder_of(self, verdict: Verdict) -> str:
        """Where the incident of a verdict that has ended an attempt lies; empty where there is none."""
        return next((folder for one, folder in self._concluded if one is verdict), "")

    def page_later(self, folder: str, facts: Case, verdict: Verdict) -> None:
        """A verdict has been written to `folder`; the last one of a folder is on its page."""
        if folder:
            self._pending[folder] = (facts, verdict)

    def write_pages(self) -> None:
        """Write the pages that wait."""
        pending, self._pending = self._pending, {}
        for folder, (facts, verdict) in pending.items():
            with contained(self._console.degraded, "a page is not written"):
                fault = pages.beside(
                    folder, facts, verdict, lambda: pages.surroundings(self._run_dir, self._findings.all())
                )
                if fault:
                    self._console.degraded(fault)

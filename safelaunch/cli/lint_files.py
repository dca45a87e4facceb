"""What `safelaunch lint` looks at: the files and profiles, what was found in them, and what could not be looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from safelaunch import printable
from safelaunch.cli import findings, output, profile
from safelaunch.limits import LimitError, SharedClock, limited
from safelaunch.model import Finding, SafelaunchError
from safelaunch.settings import profile as profiles
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs import files, look, write
from safelaunch.settings.lint.jobs.remark import Edit, Remark
from safelaunch.sizes import plural, size

LARGE = 8 << 20  # characters of a file that takes seconds
STDIN = "<stdin>"
LONGEST = 200  # characters of a path that is too long to be opened: what is said of it has to fit as well


class LintedFiles:
    """The files and profiles that were looked at, and what was found."""

    def __init__(self, installed: Installed, severity: dict[str, str]) -> None:
        self.installed = installed
        self.severity = severity
        self.remarks: list[Remark] = []
        self.jobs: dict[str, look.JobFile] = {}
        self.files = self.profiles_seen = self.variables = 0
        self.failed = False
        self.named: set[str] = set()  # files that somebody has named, rather than a folder above them
        self._clock = SharedClock()

    def look(self, paths: Sequence[str], *, named: bool = True) -> None:
        """Look at files, at those of jobs below folders, and at profiles.

        Args:
            paths: of files and folders, or names of profiles; `-` is the standard input.
            named: whether files among them are read whatever they are.
        """
        for path in paths:
            if path == "-":
                self._text(STDIN, sys.stdin.read(files.MOST_BYTES))
            elif os.path.isdir(path):
                self._below(path)
            elif os.path.exists(path) or os.path.lexists(path) or not self._is_profile(path):
                self.named.add(path)
                self._file(path, named=named)
            else:
                self.profiles([path])

    def _below(self, folder: str) -> None:
        missed: list[files.Missed] = []
        for file in files.found([folder], missed.append):
            self._file(file, named=False)
        for one in missed:
            self._unreadable(one.path if len(one.path) <= LONGEST else f"{one.path[:LONGEST]}...", one.why)

    @staticmethod
    def _is_profile(word: str) -> bool:
        return os.sep not in word and word in profiles.available(os.environ)

    def _file(self, path: str, *, named: bool) -> None:
        if path.endswith(".toml") and os.path.exists(path) and self._a_profile(path):
            self.profiles([path if os.sep in path else os.path.join(os.curdir, path)])
            return
        try:
            content = files.content(path, named=named)
        except OSError as error:
            self._unreadable(path, error.strerror or str(error))
            return
        if content is not None:
            if len(content) > LARGE and sys.stderr.isatty():
                output.show([printable.line(f"reading {path}, {size(len(content))}")], sys.stderr)
            self._text(path, content)

    def _a_profile(self, path: str) -> bool:
        """Whether a TOML file is a profile, be it a broken one: not where it is valid and its keys are of others."""
        try:
            with limited(0):
                return bool(profiles.parse_file(path).values)
        except (SafelaunchError, LimitError):
            return profiles.is_meant(path)

    def _text(self, path: str, content: str) -> None:
        self.files += 1
        try:
            with limited(len(content), self._clock):
                job = look.read(path, content)
                self.remarks += look.remarks(job, self.installed, self.severity)
        except LimitError as error:
            self._unreadable(path, str(error))
            return
        self.jobs[path] = job
        self.variables += len(job.settings)

    def _unreadable(self, path: str, why: str) -> None:
        self._failed(path, f"{path} cannot be read: {why}", "check the path")

    def _failed(self, path: str, summary: str, remedy: str) -> None:
        self.failed = True
        said = Finding(code="SL201", severity="error", summary=summary, remedy=remedy, where=path)
        self.remarks.append(Remark(said, path))

    def profiles(self, names: Sequence[str]) -> None:
        """Look at profiles, by their names or paths."""
        for name in names:
            self.profiles_seen += 1
            try:
                layers = profile.resolved([name])
            except SafelaunchError as error:  # one broken file must not hide the others
                self.remarks.append(Remark(error.diagnostic, name))
                continue
            self.variables += len(layers.table("env"))
            known = {(one.finding.code, one.finding.where, one.finding.summary) for one in self.remarks}
            for found in findings.of_layers(layers, self.installed):
                if self.severity.get(found.code) != "off" and (found.code, found.where, found.summary) not in known:
                    self.remarks.append(Remark(found, found.where.rpartition(":")[0] or name))

    def source(self, one: Remark) -> str:
        """The line that a remark is about."""
        job = self.jobs.get(one.path)
        return job.lines[one.line - 1] if job and one.line <= len(job.lines) else ""

    @property
    def counted(self) -> str:
        """What was looked at: `31 variables of 3 files and 1 profile`."""
        groups = [(self.files, "file"), (self.profiles_seen, "profile")]
        looked = " and ".join(plural(count, noun) for count, noun in groups if count) or "0 files"
        return f"{plural(self.variables, 'variable')} of {looked}"

    # -------------------------------------------------------------------------------------------------- changes

    def edits(self, path: str) -> list[Edit]:
        """What `--fix` changes in a file."""
        return [edit for one in self.remarks if one.path == path for edit in one.edits]

    def settled(self, path: str) -> str:
        """The text of a file as `--fix` would leave it."""
        return write.settled(self.jobs[path].text, self.edits(path), self._again(path, []))

    def fix(self) -> tuple[int, int]:
        """Change files; returns how many findings were mended, and in how many files. What was mended is left out of
        `remarks`, and a file that cannot be changed is told there."""
        done = changed = 0
        for path in [path for path in self.jobs if path != STDIN and self.edits(path)]:
            rounds = [[one for one in self.remarks if one.path == path]]
            try:
                text = write.write(
                    path, self.jobs[path].text, self.edits(path), self._again(path, rounds), named=path in self.named
                )
            except write.LinkError as error:
                why = f"{path} is not changed: {error.strerror}"
                said = Finding(code="SL201", severity="note", summary=why, where=path)
                self.remarks.append(Remark(said, path))
                continue
            except OSError as error:
                why = f"{path} is not changed: {error.strerror or error}"
                self._failed(path, why, "change it as its owner, or by hand")
                continue
            if text is None:
                continue
            changed += 1
            done += sum(bool(one.edits) for said in rounds for one in said)
            self.jobs[path] = look.read(path, text)
            self.remarks = [one for one in self.remarks if one.path != path] + rounds[-1]
        return done, changed

    def _again(self, path: str, rounds: list[list[Remark]]) -> write.Again:
        """What looks at a changed text of a file, and keeps what it has found there."""

        def again(text: str) -> list[Edit]:
            try:
                with limited(len(text), self._clock):
                    found = look.remarks(look.read(path, text), self.installed, self.severity)
            except LimitError:  # what it says now is not known
                rounds.append([])
                return []
            rounds.append(list(found))
            return [edit for one in found for edit in one.edits]

        return again

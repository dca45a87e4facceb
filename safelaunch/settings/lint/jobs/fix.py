"""What `--fix` writes: only what cannot mean anything else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch import codes
from safelaunch.codes import Trait
from safelaunch.model import Finding
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs.remark import Edit, Span
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.lint.judge.words import MEANT

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile

_OVERRULED = ("NCCL_ASYNC_ERROR_HANDLING",)  # torchrun sets its new name, which wins
_OTHERS = r"\$\{{{}:?[-=?+]"  # ${{X:-1}}: taken from the environment, where it is there
_WRITE = re.compile(r"write ([A-Za-z_]\w*)=(\S+)")


def certain(job: JobFile, finding: Finding, setting: Setting, span: Span, installed: Installed) -> tuple[Edit, ...]:
    """What to write in place of a setting; nothing where a person has to decide.

    Args:
        job: the file.
        finding: about the setting.
        setting: the setting.
        span: where it stands.
        installed: the libraries against which it was judged.
    """
    if codes.has(finding.code, Trait.NAME):
        return _rename(job, finding, setting, installed)
    match = _WRITE.fullmatch(finding.remedy)
    if match and match[1] == setting.name:
        return _value(job, setting, span, match[2])
    value = (setting.value or "").upper()
    meant = MEANT.get((setting.name, value), "")
    if value and meant and (meant.startswith(value) or value.startswith(meant)):  # WARN and WARNING
        return _value(job, setting, span, meant)
    return ()


def _rename(job: JobFile, finding: Finding, setting: Setting, installed: Installed) -> tuple[Edit, ...]:
    variable = catalogue.variable(setting.name)
    name = versions.newest(variable, installed) if variable else ""
    if variable is None or not name or name not in finding.remedy:
        return ()
    if variable.removed_in or (setting.name in _OVERRULED and setting.value == "0"):
        return ()  # it did nothing in the last run: what the new name would do is for a person to want
    if setting.weak or re.search(_OTHERS.format(re.escape(setting.name)), job.text):
        return ()  # who starts the file may set it by the old name
    new = catalogue.variable(name)
    known = new is not None and versions.of(new.owner, installed) is not None
    if not known or new is None or versions.not_here(new, installed):
        return ()
    if any(each.name == name for each in job.settings):
        return ()  # which of the two was meant is not for us to say
    return _renamed(job, setting.name, name)


def _renamed(job: JobFile, name: str, new: str) -> tuple[Edit, ...]:
    """Each place of a name in the file: what exports, passes on and makes use of it has to go with it."""
    pattern = re.compile(rf"(?<![A-Za-z0-9_]){name}(?![A-Za-z0-9_])")
    return tuple(
        Edit(Span(number, match.start(), match.end()), new)
        for number, line in enumerate(job.lines, 1)
        if name in line
        for match in pattern.finditer(line)
    )


def _value(job: JobFile, setting: Setting, span: Span, new: str) -> tuple[Edit, ...]:
    text = job.lines[span.line - 1][span.start : span.end]
    value = setting.value or ""
    at = text.rfind(value) if value and job.kind != "python" else -1
    if at <= 0 or text[at - 1] not in "=:\"' \t" or text[at + len(value) :] not in ("", '"', "'"):
        return ()
    return (Edit(Span(span.line, span.start + at, span.start + at + len(value)), new),)


def apply(text: str, edits: Sequence[Edit]) -> str:
    """A text with its edits made, from the last to the first; of two that overlap the first one counts."""
    lines = text.split("\n")
    gone: set[int] = set()
    before: tuple[int, int] | None = None
    unique = {(edit.span.line, edit.span.start, edit.span.end): edit for edit in reversed(edits)}
    for (number, start, end), edit in sorted(unique.items(), reverse=True):
        if edit.text is None:
            gone.add(number)
        elif before is None or (number, end) <= before:
            line = lines[number - 1]
            lines[number - 1] = line[:start] + edit.text + line[end:]
            before = (number, start)
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in gone)


def diff(path: str, old: str, new: str) -> str:
    """The change of a file as `diff -u` shows it."""
    name = path.removeprefix("/")
    changed = difflib.unified_diff(old.split("\n"), new.split("\n"), f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(changed)

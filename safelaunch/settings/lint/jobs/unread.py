"""Names that stand in a file and that could not be read as settings: silence about them would look like praise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from safelaunch.model import Finding
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.sizes import plural

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile

_NAMED = re.compile(r"(?<![A-Za-z0-9_$])((?:TORCH_)?NCCL_[A-Z][A-Z0-9_]+)\b(?!_?\()")
_COMMENT = re.compile(r"^\s*(?:#|//|--|;|\*|REM\b)")


def unread_names(job: JobFile, told: set[int]) -> Iterator[Remark]:
    """A file names variables of NCCL, and none of them could be read, or a part of the file could not.

    Nothing is said about what was not read: that is no sign that all is well with it.

    How it is concluded: lines that are no comments hold names that begin with NCCL_ or TORCH_NCCL_. No reader found a
    setting there, and nothing else makes use of the name; or the file is of a kind that is not read, or takes too
    long; or what stands there is no shell, such as brackets that nothing closes, and no other line sets the name.

    What to do: look at these lines yourself. `safelaunch env --check`, in the job, looks at what comes of them.
    """
    for line, why in job.found.unread:
        yield _told(job, line, f"the file could not be read from line {line} on: {why}")
    if "NCCL_" not in job.text:
        return
    yield from _torn(job, told)
    if job.settings:
        return
    own = {word.raw.partition("=")[0] for command in job.found.commands for word in command.words if "=" in word.raw}
    torn = _torn_lines(job)
    lines = [
        number
        for number, text in enumerate(job.lines, 1)
        if number not in told | torn
        and not _COMMENT.match(text)
        and any(match[1] not in job.reads | own for match in _NAMED.finditer(text))
    ]
    if not lines:
        return
    names = "names NCCL_..." if len(lines) == 1 else "name NCCL_..."
    yield _told(job, lines[0], f"{plural(len(lines), 'line')} {names}, none could be read here")


def _torn(job: JobFile, told: set[int]) -> Iterator[Remark]:
    """Lines that the grammar of the file could not place, and of whose names nothing else in the file is a setting."""
    known = {setting.name for setting in job.settings} | job.reads
    lines = [
        number
        for number in sorted(_torn_lines(job) - told)
        if not _COMMENT.match(job.lines[number - 1])
        and any(match[1] not in known for match in _NAMED.finditer(job.lines[number - 1]))
    ]
    if lines:
        names = "names NCCL_..." if len(lines) == 1 else "name NCCL_..."
        yield _told(job, lines[0], f"{plural(len(lines), 'line')} {names} where the file could not be read")


def _torn_lines(job: JobFile) -> set[int]:
    return {number for lines in job.found.torn for number in lines if number <= len(job.lines)}


def _told(job: JobFile, line: int, summary: str) -> Remark:
    finding = Finding(
        code="SL219",
        severity="note",
        summary=summary,
        remedy="look at them yourself; `safelaunch env --check` in the job looks at what comes of them",
        where=f"{job.path}:{line}",
    )
    match = _NAMED.search(job.lines[line - 1]) if line <= len(job.lines) else None
    span = remark.text(job.lines, line, match[1]) if match else remark.whole(job.lines, line)
    return Remark(finding, job.path, span)

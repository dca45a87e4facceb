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
    setting there, and nothing else makes use of the name; or the file is of a kind that is not read, or takes too long.

    What to do: look at these lines yourself. `safelaunch env --check`, in the job, looks at what comes of them.
    """
    for line, why in job.found.unread:
        yield _told(job, line, f"the file could not be read from line {line} on: {why}")
    if job.settings or "NCCL_" not in job.text:
        return
    own = {word.raw.partition("=")[0] for command in job.found.commands for word in command.words if "=" in word.raw}
    lines = [
        number
        for number, text in enumerate(job.lines, 1)
        if number not in told
        and not _COMMENT.match(text)
        and any(match[1] not in job.reads | own for match in _NAMED.finditer(text))
    ]
    if not lines:
        return
    names = "names NCCL_..." if len(lines) == 1 else "name NCCL_..."
    yield _told(job, lines[0], f"{plural(len(lines), 'line')} {names}, none could be read here")


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

"""Values of which a reader sees in the words of a script what no program sees in the value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from safelaunch.model import Finding
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.extract import tools
from safelaunch.settings.lint.extract.scope import Command
from safelaunch.settings.lint.extract.words import Token
from safelaunch.settings.lint.installed import NOTHING_INSTALLED
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch.rules import guarded
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.settings.lint.judge import named
from safelaunch.settings.lint.judge.wording import Fault

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile

_EXPORTS = frozenset({"export", "declare", "typeset", "readonly"})
_LIST = re.compile(r"([A-Z][A-Z0-9_]*)=(.*),")
_NEXT = re.compile(r"[A-Z_][A-Z0-9_]*|[A-Za-z_]\w*\+?=.*|-.*|.*[$`<>&|;].*", re.DOTALL)  # another variable, or unknown
_COMM_ID = re.compile(r"""NCCL_COMM_ID=["']?\$(?:\$|RANDOM\b|\{?SLURM_(?:ARRAY_)?JOB_?ID(?::?-[^}]*)?\}?)["']?""")


def remarks(job: JobFile, severity: Mapping[str, str]) -> Iterator[Remark]:
    """What `as_written` finds, as grave as is wanted."""
    if job.kind == "shell":
        yield from guarded(partial(as_written, job), "as_written", job.path, severity)


def as_written(job: JobFile) -> Iterator[Remark]:
    """A blank behind a comma ends a list: `export NCCL_IB_HCA=mlx5_0, mlx5_1` gives NCCL the first device only, and
    bash takes the second one for a variable that it cannot export. The number of a job is no address, as NCCL_COMM_ID
    wants one.

    How it is concluded: by the words of a shell script, where the value itself is known to the run only.

    What to do: write the list without blanks.
    """
    known = {setting.origin.where for setting in job.settings if setting.name == "NCCL_COMM_ID" and setting.value}
    for command in job.found.commands:
        words = command.words
        for word, following in zip(words, (*words[1:], None), strict=True):
            if following is not None and words[0].raw in _EXPORTS and (match := _LIST.fullmatch(word.raw)):
                yield from _cut(job, word, match, following)
            unknown = f"{job.path}:{word.line}" not in known  # else its value is judged as that of any other
            if unknown and _COMM_ID.fullmatch(word.raw) and (variable := catalogue.variable("NCCL_COMM_ID")):
                fault = named.comm_id(variable, "1", NOTHING_INSTALLED)
                if fault is not None:
                    yield _told(job, word, "NCCL_COMM_ID", fault)


def _cut(job: JobFile, word: Token, match: re.Match[str], following: Token) -> Iterator[Remark]:
    name, listed = match[1], match[2]
    if _NEXT.fullmatch(following.raw) or following.line != word.line or catalogue.namespace(name) != "strict":
        return
    says = f"={listed}, ends at the blank: {following.raw} is not a part of it"
    why = "bash takes it for the name of a variable to export"
    if not following.raw.isidentifier():
        why += ", and says: not a valid identifier"
    yield _told(job, word, name, Fault("error", says, (why,), "write the list without blanks"))


def _told(job: JobFile, word: Token, name: str, fault: Fault) -> Remark:
    span = remark.find(job.lines, word.line, name)
    finding = Finding(
        code="SL213",
        severity=fault.severity,
        summary=f"{name}{'' if fault.says.startswith('=') else ' '}{fault.says}",
        because=fault.because,
        remedy=fault.remedy,
        where=f"{job.path}:{span.line}",
    )
    return Remark(finding, job.path, span)


def acting(job: JobFile) -> tuple[Setting, ...]:
    """The settings of a file that some program may see: not those that are made anew before one is started."""
    if job.kind != "shell":
        return job.settings
    busy = {line for command in job.found.commands if starts(command) for line in _lines(command)}
    last: dict[str, Setting] = {}
    gone: set[int] = set()
    for setting in job.settings:
        before = last.get(setting.name)
        if before is not None and before.branches == setting.branches and not setting.weak:
            first, then = _line(before), _line(setting)
            if first < then and not any(line in busy for line in range(first, then + 1)):
                gone.add(id(before))
        last[setting.name] = setting
    return tuple(setting for setting in job.settings if id(setting) not in gone)


def starts(command: Command) -> bool:
    """Whether a command of a script starts a program, and does not only change the shell."""
    words = [word for word in command.texts if not re.match(r"[A-Za-z_]\w*\+?=", word)]
    return bool(words) and not tools.BUILTINS.fullmatch(words[0])


def _lines(command: Command) -> range:
    return range(command.words[0].line, command.words[-1].line + 1)


def _line(setting: Setting) -> int:
    number = setting.origin.where.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0

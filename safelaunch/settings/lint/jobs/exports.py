"""Variables that a script sets and that no program gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from safelaunch.model import Finding, Origin
from safelaunch.settings.lint import catalogue, lint
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.extract.scope import Command
from safelaunch.settings.lint.extract.words import UNKNOWN, Token, expand
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.assigned import starts
from safelaunch.settings.lint.jobs.launch.rules import guarded
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Edit, Remark, Span

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile

# Variables of CUDA that neither Slurm nor a module sets: an assignment does not change one that is exported.
_NOBODY_BEFORE = frozenset({"CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER"})
MOST_JUDGED = 64  # of them that are looked at once more as if they were exported
_PLAIN = re.compile(r"""(?P<quote>["']?)(?:[\w./:,@%+=^-]|\$\{?\w+\}?)*(?P=quote)""")
_ASSIGNED = re.compile(r"([A-Z][A-Z0-9_]*)\+?=")
_EXPORTS = frozenset({"export", "declare", "typeset", "readonly"})
_ALL = re.compile(r"\bset\s+(?:-\w*a|-o\s+allexport)|\bexport\s+[\"']?\$|\bdeclare\s+-\w*x\w*\s+[\"']?\$")


def remarks(job: JobFile, scene: Scene, severity: Mapping[str, str]) -> Iterator[Remark]:
    """What `not_exported` finds, as grave as is wanted."""
    if job.kind == "shell":
        yield from guarded(lambda: not_exported(job, scene), "not_exported", job.path, severity)


def not_exported(job: JobFile, scene: Scene) -> Iterator[Remark]:
    """A script sets a variable, and no program gets it.

    An assignment without `export` stays in the shell. `export X =1` exports X as it is, and then complains of `=1`.
    `unset X=1` unsets nothing. What is exported below the last program is too late.

    How it is concluded: by the commands of a shell script. Of assignments, only variables of NCCL, Gloo and torch, and
    some of CUDA, are looked at. One that the script exports anywhere (`set -a` and `declare -x` count), or makes use
    of, is left out.

    What to do: write the line that the message names.
    """
    yield from _slips(job)
    if scene.launches or job.found.programs:
        yield from _kept_in_the_shell(job, scene)
    if scene.launches and all(launch.command.top for launch in scene.launches):
        yield from _too_late(job)


def _slips(job: JobFile) -> Iterator[Remark]:
    for command in job.found.commands:
        words = command.words
        if len(words) < 2:
            continue
        first = words[0].raw
        for word, following in zip(words[1:], (*words[2:], None), strict=True):
            name = word.raw
            if first in _EXPORTS and following and following.raw.startswith("=") and re.fullmatch(r"[A-Z]\w*", name):
                if not _matters(name):
                    continue
                span = remark.text(job.lines, word.line, f"{name} {following.raw}")
                if span.end - span.start != len(name) + 1 + len(following.raw):
                    continue
                edits = (Edit(span, f"{name}{following.raw}"),)
                says = f"{first} {name} {following.raw} sets nothing: there is a blank before the ="
                remedy = f"write {first} {_shown(name, following.raw[1:])}, without the blank"
                yield _told(job, says, remedy, span, edits)
            if first in ("unset", "unsetenv") and (match := _ASSIGNED.match(name)) and _matters(match[1]):
                says = f"{first} {name} unsets nothing: it takes a name alone"
                remedy = f"write unset {match[1]}, or export {_shown(match[1], name.partition('=')[2])}"
                yield _told(job, says, remedy, remark.text(job.lines, word.line, name))


def _shown(name: str, value: str) -> str:
    """An assignment as it may stand in advice, which people paste: a value that a shell would run is not repeated."""
    return f"{name}={value}" if _PLAIN.fullmatch(value) else f"{name}=VALUE"


def _matters(name: str) -> bool:
    """Whether a variable is one of those that programs read, and that shells do not have before."""
    return catalogue.namespace(name) == "strict" or (catalogue.variable(name) is not None and "_" in name)


def _kept_in_the_shell(job: JobFile, scene: Scene) -> Iterator[Remark]:
    if _ALL.search(job.text):
        return
    exported = {setting.name for setting in job.settings}
    assigned: dict[str, Command] = {}
    for command in job.found.commands:
        match = _ASSIGNED.match(command.words[0].raw) if len(command.words) == 1 else None
        if match and command.top and (catalogue.namespace(match[1]) == "strict" or match[1] in _NOBODY_BEFORE):
            assigned.setdefault(match[1], command)
    mentioned = Counter(re.findall(r"[A-Za-z0-9_]+", job.text))
    own = Counter(re.findall(r"(?m)^[ \t]*([A-Z][A-Z0-9_]*)\+?=", job.text))
    told = 0
    for name, command in assigned.items():
        if (
            name in exported
            or mentioned[name] > own[name]
            or re.search(r"\\[ \t]+$", job.lines[command.words[0].line - 1])
        ):
            continue  # of a line that was to go on, something graver is said: SL252
        word = command.words[0]
        line = name if "\n" in word.raw else word.raw
        span = remark.find(job.lines, word.line, name)
        shown = _shown(name, word.raw.partition("=")[2]) if line == word.raw else name
        says = f"{line} stays in the shell: nothing exports {name}, and no program gets it"
        told += 1
        if told > MOST_JUDGED or _would_be_told(
            scene, Setting(name, _value(word), Origin("file", f"{job.path}:{span.line}"))
        ):
            yield _told(job, says, f"take it away, or write export {shown}", span)
            continue
        edits = (Edit(Span(span.line, span.start, span.start), "export "),)
        yield _told(job, says, f"write export {shown}", span, edits)


def _value(word: Token) -> str | None:
    value = expand(word.raw).partition("=")[2]
    return None if UNKNOWN in value else value


def _would_be_told(scene: Scene, setting: Setting) -> bool:
    """Whether there would be something to say of a setting if programs got it: now it does nothing."""
    with_it = LintContext((*scene.job.settings, setting), scene.installed)
    return any(finding.where == setting.origin.where for finding in lint(with_it, {}))


def _too_late(job: JobFile) -> Iterator[Remark]:
    """Exports below the last program that the script starts."""
    commands = job.found.commands
    last = max((at for at, command in enumerate(commands) if starts(command)), default=-1)
    for command in commands[last + 1 :]:
        if not command.top or command.words[0].raw != "export":
            continue
        for word in command.words[1:]:
            match = _ASSIGNED.match(word.raw)
            if match and _matters(match[1]):
                says = f"{word.raw} comes too late: no program is started below it"
                remedy = f"move it above line {commands[last].words[0].line}"
                yield _told(job, says, remedy, remark.find(job.lines, word.line, match[1]))


def _told(job: JobFile, says: str, remedy: str, span: Span, edits: tuple[Edit, ...] = ()) -> Remark:
    where = f"{job.path}:{span.line}"
    finding = Finding(code="SL223", severity="warning", summary=says, remedy=remedy, where=where)
    return Remark(finding, job.path, span, edits=edits)

"""What there is to say about one file of a job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from safelaunch import codes
from safelaunch.codes import Trait
from safelaunch.model import Finding
from safelaunch.settings.lint import lint
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.extract import found, of_python, plain, reads, settings
from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.readers import read_as
from safelaunch.settings.lint.extract.scope import Found, Scope
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs import assigned, exports, remark
from safelaunch.settings.lint.jobs.fix import certain
from safelaunch.settings.lint.jobs.ignored import ignored, is_ignored
from safelaunch.settings.lint.jobs.launch import directives, rules
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.settings.lint.jobs.unread import unread_names
from safelaunch.settings.lint.judge.wording import shown

_AMD = re.compile(
    r"\brocm\b|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|RCCL_|HSA_|amd\.com/gpu|\bMI[23]\d0X?\b", re.IGNORECASE
)
_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_WRITE = re.compile(r"(write [A-Za-z_]\w*=)(.*)", re.DOTALL)
_PLAIN = re.compile(r"""["']?[\w./:,@%+=^\[\]-]*["']?""")
# A server that starts its own ranks, on the node where it is called where it is not told of more.
_SERVER = "sglang.launch_server"
_MORE_NODES = frozenset({"--nnodes", "--dist-init-addr", "--nccl-init-addr"})
MOST_JOBS = 16  # that one script writes and submits
ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class JobFile:
    """A file of a job: its path and its text, and what was read in it."""

    path: str
    text: str
    kind: str
    found: Found
    settings: tuple[Setting, ...]

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, without their ends."""
        return self.text.split("\n")

    @cached_property
    def reads(self) -> frozenset[str]:
        """The variables that it makes use of itself."""
        return reads(self.path, self.text)


def read(path: str, text: str) -> JobFile:
    """Read a file of a job; nothing is run."""
    text = plain(text)
    which = kind_of(path, text)
    if which == "python":
        return JobFile(path, text, which, Found(), of_python(path, text))
    said = found(which, text)
    return JobFile(path, text, which, said, settings(path, said))


def remarks(job: JobFile, installed: Installed, severity: Mapping[str, str]) -> tuple[Remark, ...]:
    """All that is to be said about a file: the gravest first, then by line; the same of several lines once.

    Args:
        job: the file.
        installed: the libraries against which it is judged.
        severity: code -> off, note, warning or error.
    """
    installed = of_amd(job, installed)
    scene = rules.scene_of(job, installed)
    context = LintContext(
        assigned.acting(job), installed, read_by_script=job.reads, nodes=_nodes(scene), elastic=_is_elastic(scene)
    )
    said = [*rules.remarks(scene, severity), *_placed(job, _one_a_cause(lint(context, severity)), installed)]
    said += exports.remarks(job, scene, severity)
    said += assigned.remarks(job, severity)
    said += directives.remarks(scene, severity)
    for body, line in job.found.jobs[:MOST_JOBS]:
        inner = Found()
        read_as("shell", body, line, Scope(inner))
        submitted = JobFile(job.path, job.text, "shell", inner, settings(job.path, inner))
        said += rules.remarks(rules.scene_of(submitted, installed), severity)
    said += unread_names(job, {one.line for one in said})
    marks = ignored(job.lines) if "safelaunch" in job.text else {}
    kept = (one for one in said if not is_ignored(one.finding.code, one.line, marks))
    return tuple(sorted(_folded(kept), key=lambda one: (ORDER.get(one.finding.severity, 3), one.line)))


def _advised(finding: Finding, value: str | None) -> Finding:
    """A finding about a setting whose advice, which people paste, repeats no value that a shell would run."""
    match = _WRITE.fullmatch(finding.remedy)
    if match is None or _PLAIN.fullmatch(value or "") or _PLAIN.fullmatch(match[2]):
        return finding
    return dataclasses.replace(finding, remedy=f"{match[1]}VALUE")


def of_amd(job: JobFile, installed: Installed) -> Installed:
    """The libraries against which a file is judged: of AMD's NCCL, for a file for AMD's GPUs, nothing is known."""
    if not _AMD.search(job.text) or installed.torch is None:
        return installed
    return Installed(dataclasses.replace(installed.torch, cuda=False, other_gpu=True))


def _is_elastic(scene: Scene) -> bool:
    return any(scene.of("torchrun", "torch.distributed.launch", "accelerate"))


def _nodes(scene: Scene) -> int | None:
    """The nodes of the job: as the scheduler is asked, or as a launcher is told."""
    if scene.asked is not None and "nodes" in scene.asked:
        return scene.asked.nodes
    if not scene.launches and any(
        _SERVER in command.texts and not _MORE_NODES & set(command.texts) for command in scene.job.found.commands
    ):
        return 1
    told = {launch.nnodes for launch in scene.launches}
    only = told.pop() if len(told) == 1 else None
    return only[0] if only and only[0] == only[1] else None


def _one_a_cause(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Of a name of which something graver has been said, nothing is said that would go with it."""
    listed = list(findings)
    grave = {
        match[0] for each in listed if codes.has(each.code, Trait.DECIDES) and (match := _NAME.match(each.summary))
    }
    for each in listed:
        names = set(_NAME.findall(each.summary))
        if not (codes.has(each.code, Trait.FOLLOWS) and names & grave):
            yield each


def _placed(job: JobFile, findings: Iterable[Finding], installed: Installed) -> Iterator[Remark]:
    """Findings about settings, with the text that they are about."""
    by_place: dict[str, list[Setting]] = {}
    for setting in job.settings:
        by_place.setdefault(setting.origin.where, []).append(setting)
    for finding in findings:
        path, _, number = finding.where.rpartition(":")
        if path != job.path or not number.isdecimal():
            yield Remark(finding, job.path)
            continue
        about = [each for each in by_place.get(finding.where, ()) if _is_about(finding, each)]
        if about:
            span = remark.find(job.lines, int(number), about[0].name, about[0].value)
            edits = certain(job, finding, about[0], span, installed)
            yield Remark(_advised(finding, about[0].value), job.path, span, edits=edits)
        else:
            word = re.match(r"[A-Za-z_]\w*", finding.summary)
            span = remark.find(job.lines, int(number), word[0] if word else "")
            yield Remark(finding, job.path, span)


def _is_about(finding: Finding, setting: Setting) -> bool:
    return finding.summary.startswith(shown(setting))


def _cause(finding: Finding) -> str:
    """What is wrong, in words: of a name that nobody reads, whatever its value is."""
    whatever = codes.has(finding.code, Trait.NAMELESS)
    return re.sub(r"^(\w+)=(?:\"[^\"]*\"|'[^']*'|\S*)", r"\1", finding.summary) if whatever else finding.summary


def _folded(said: Iterable[Remark]) -> Iterator[Remark]:
    """The same words about several lines are one remark, which names them all."""
    first: dict[tuple[str, ...], Remark] = {}
    for one in sorted(said, key=lambda each: each.line):
        key = (one.finding.code, _cause(one.finding), one.finding.severity, one.finding.remedy)
        if key in first:
            before = first[key]
            more = before.more if one.line in (before.line, *before.more) else (*before.more, one.line)
            first[key] = dataclasses.replace(before, more=more, edits=before.edits + one.edits)
        else:
            first[key] = one
    return iter(first.values())

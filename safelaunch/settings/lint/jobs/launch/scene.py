"""What a rule about the start of a job may look at, and how it says what it found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safelaunch.model import Finding, Severity
from safelaunch.settings.lint.extract.words import Token
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch.launchers import Launch
from safelaunch.settings.lint.jobs.launch.slurm import Asked
from safelaunch.settings.lint.jobs.remark import Remark, Span

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile


@dataclass(frozen=True)
class Scene:
    """The file, what its #SBATCH lines ask for (None without such lines), and the launchers that it calls.

    `first` is its first line, which for an example in a text is another one than the first.
    """

    job: JobFile
    asked: Asked | None
    launches: tuple[Launch, ...]
    installed: Installed
    first: int = 1

    @property
    def several_nodes(self) -> bool:
        """Whether the job certainly has two nodes or more."""
        return self.asked is not None and self.asked.several_nodes

    def nodes(self, launch: Launch) -> int | None:
        """The nodes on which a launcher is started; None where that cannot be told."""
        if launch.step is not None and "nodes" in launch.step:
            return launch.step.nodes
        resources = dict(launch.command.resources)
        if "nodes" in resources:
            return int(resources["nodes"])
        return self.asked.nodes if self.asked and "nodes" in self.asked else None

    def tasks(self, launch: Launch) -> int | None:
        """How often a launcher is started on each node; None where that cannot be told.

        srun takes over the number of tasks of the batch script, and its own --ntasks alone overrules that: beside
        another number, it does not heed --ntasks-per-node (measured with Slurm 22.05).
        """
        step, asked = launch.step, self.asked
        if launch.runner != "srun" or step is None:
            return None if launch.runner else 1
        if launch.one_a_node:
            return 1
        if launch.tasks_of_job or (asked and asked.says_tasks and "ntasks" not in step):
            return asked.tasks_per_node if asked else None
        if "ntasks" not in step:
            return step.number("ntasks-per-node") if "ntasks-per-node" in step else 1 if asked else None
        tasks, nodes = step.number("ntasks"), self.nodes(launch)
        if tasks and nodes is None and step.number("ntasks-per-node"):
            return step.number("ntasks-per-node")
        return tasks // nodes if tasks and nodes and tasks % nodes == 0 else None

    def starts(self, launch: Launch) -> int | None:
        """How often a launcher is started on all nodes together; None where that cannot be told."""
        step, asked = launch.step, self.asked
        if launch.runner != "srun" or step is None:
            return None if launch.runner else 1
        if "ntasks" in step and not launch.tasks_of_job and not launch.one_a_node:
            return step.number("ntasks")
        if asked and "ntasks" in asked and not launch.one_a_node:
            return asked.tasks
        each, nodes = self.tasks(launch), self.nodes(launch)
        return each * nodes if each and nodes else None

    def gpus(self, launch: Launch) -> int | None:
        """The GPUs that each start of a launcher sees; None where that cannot be told."""
        if launch.step is not None and launch.step.asks_for_gpus:
            return launch.step.gpus_per_task if self.shares_out(launch) else launch.step.gpus_per_node
        resources = dict(launch.command.resources)
        if "gpus" in resources:
            return int(resources["gpus"])
        if self.asked is None:
            return None
        return self.asked.gpus_per_task if self.shares_out(launch) else self.asked.gpus_per_node

    def shares_out(self, launch: Launch) -> bool:
        """Whether srun gives each task GPUs of its own, so that one start sees those of its task only."""
        step = launch.step
        if launch.runner != "srun" or step is None or "gpu-bind" in step:
            return False
        by = step if step.asks_for_gpus else self.asked
        return by is not None and "gpus-per-task" in by

    def tell(
        self, code: str, severity: Severity, summary: str, because: tuple[str, ...], remedy: str, span: Span
    ) -> Remark:
        """A finding about a piece of the file."""
        where = f"{self.job.path}:{span.line}"
        finding = Finding(code=code, severity=severity, summary=summary, because=because, remedy=remedy, where=where)
        return Remark(finding, self.job.path, span)

    def span(self, word: Token) -> Span:
        """Where a word of a command stands in the file."""
        raw = word.raw.split("\n")[0]
        lines = self.job.lines
        if word.column >= 0 and lines[word.line - 1 : word.line] and lines[word.line - 1].startswith(raw, word.column):
            return Span(word.line, word.column, word.column + len(raw))
        return remark.text(lines, word.line, raw.strip("\"'"))

    def span_of(self, launch: Launch, option: str) -> Span:
        """Where an option of a launcher stands, the launcher itself where it is not given."""
        return self.span(launch.options[option][1] if option in launch.options else launch.word)

    def source(self, launch: Launch) -> str:
        """The line of a launcher, as it stands, without what goes on below."""
        return self.job.lines[launch.word.line - 1].strip().removesuffix("\\").strip()

    def with_before(self, launch: Launch, words: str) -> str:
        """The line of a launcher with words before it, behind variables that are set for it."""
        span = self.span(launch.word)
        text = self.job.lines[span.line - 1]
        return f"{text[: span.start].lstrip()}{words} {text[span.start :].removesuffix(chr(92)).rstrip()}"

    def of(self, *names: str) -> Iterator[Launch]:
        """The launches by these launchers."""
        return (launch for launch in self.launches if launch.name in names)

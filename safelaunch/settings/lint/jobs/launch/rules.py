"""The rules about how a job is started, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from safelaunch.model import Finding
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs.launch import identity, launchers, node_rank, shape, slurm, usage
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.settings.severity import weighed

if TYPE_CHECKING:
    from safelaunch.settings.lint.jobs.look import JobFile

RULES: tuple[Callable[[Scene], Iterator[Remark]], ...] = (
    shape.ranks_and_gpus,
    shape.nodes_differ,
    shape.one_node_only,
    identity.expanded_early,
    identity.fixed_port,
    shape.ranks_multiplied,
    usage.missing_signal,
    usage.launcher_options,
    usage.old_launcher,
    usage.broken_line,
    identity.own_master,
    node_rank.no_own_rank,
)


MOST_EXAMPLES = 100  # of one text that are looked at each for itself


def scene_of(job: JobFile, installed: Installed) -> Scene:
    """What the rules look at."""
    # The examples of a text are files of their own: what one asks for is not what another one gets.
    asked = None if job.kind == "markdown" else slurm.of_script(job.found)
    return Scene(job, asked, tuple(launchers.launches(job.found)), installed)


def examples(whole: Scene) -> Iterator[Scene]:
    """The examples of a text that start ranks or ask Slurm for something, each as a file of its own."""
    job = whole.job
    lines = {launch.word.line for launch in whole.launches} | {line for _, _, line in job.found.directives}
    told = [each for each in job.found.blocks if any(each[1] <= line <= each[2] for line in lines)]
    for kind, first, last in told[:MOST_EXAMPLES]:
        text = "\n" * (first - 1) + "\n".join(job.lines[first - 1 : last])
        alone = dataclasses.replace(job, text=text, kind=kind, found=job.found.part(first, last))
        yield dataclasses.replace(scene_of(alone, whole.installed), first=first)


def remarks(scene: Scene, severity: Mapping[str, str]) -> Iterator[Remark]:
    """What all rules find."""
    if scene.job.kind == "markdown":
        for example in examples(scene):
            yield from remarks(example, severity)
        return
    for rule in RULES:
        yield from guarded(partial(rule, scene), rule.__name__, scene.job.path, severity)


def guarded(
    rule: Callable[[], Iterator[Remark]], name: str, path: str, severity: Mapping[str, str]
) -> Iterator[Remark]:
    """What a rule finds, as grave as is wanted; a rule that fails itself costs its own findings only."""
    try:
        found = list(rule())
    except Exception as error:
        said = f"safelaunch's own fault: {path} is not checked by {name}"
        found = [Remark(Finding(code="SL902", severity="warning", summary=said, because=(repr(error),)), path)]
    for one in found:
        for finding in weighed([one.finding], severity):
            yield dataclasses.replace(one, finding=finding)

"""The rules about how a job is started, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.jobs.launch import identity, launchers, shape, slurm, usage
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
    identity.own_master,
)


def scene_of(job: JobFile, installed: Installed) -> Scene:
    """What the rules look at."""
    return Scene(job, slurm.of_script(job.found), tuple(launchers.launches(job.found)), installed)


def remarks(scene: Scene, severity: Mapping[str, str]) -> Iterator[Remark]:
    """What all rules find."""
    for rule in RULES:
        for one in rule(scene):
            for finding in weighed([one.finding], severity):
                yield Remark(finding, one.path, one.span)

"""Settings that contradict one another."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.judge import contradictions
from safelaunch.settings.lint.judge.in_force import in_force
from safelaunch.settings.lint.judge.wording import listed, shown, source


def conflicting_variables(context: LintContext) -> Iterator[Finding]:
    """Variables that are set together contradict one another, or one of them makes the other useless.

    Each value is fine by itself, so that no program complains: NCCL_IB_DISABLE=1 silently makes every other NCCL_IB_
    variable a dead letter, and blocking wait switches off the watchdog that error handling needs.

    How it is concluded: among the settings in force, a known combination holds. Some depend on the installed version,
    and are told only where it is known. Each message has its source. A file of NCCL (nccl.conf) counts as well: the
    environment wins over it.

    What to do: the message says which of them to change.
    """
    env = in_force(context)
    for pair, names in contradictions.holding(env):
        first, *rest = (env.settings[name] for name in names)
        joined, at = shown(first), first
        if len(rest) == 1:
            joined, at = f"{joined} with {shown(rest[0])}", rest[0]
        elif rest:  # the one that makes the others useless comes first
            joined = f"{joined} beside {listed([setting.name for setting in rest])}"
        others = tuple(
            f"{setting.name} is set at {setting.origin.where}"
            for setting in (first, *rest)
            if setting is not at and _elsewhere(setting, at)
        )
        yield Finding(
            code="SL215",
            severity=pair.severity,
            summary=f"{joined}: {pair.says}",
            because=pair.why + others,
            remedy=pair.remedy,
            where=at.origin.where,
        )
    yield from _beside_nccl_conf(context)


def _elsewhere(setting: Setting, last: Setting) -> bool:
    return bool(setting.origin.where) and setting.origin.where != last.origin.where


def _beside_nccl_conf(context: LintContext) -> Iterator[Finding]:
    """Variables of nccl.conf that the environment sets as well, to another value."""
    strongest = context.last()
    for setting in context:
        winner = strongest[setting.name]
        if not setting.of_nccl_conf or winner.of_nccl_conf or winner.value in (None, setting.value):
            continue
        yield Finding(
            code="SL215",
            severity="note",
            summary=f"{shown(winner)} wins over {shown(setting)} of {setting.origin.where}",
            because=(
                "NCCL takes from its file what the environment does not set; its other lines do count",
                source("NVIDIA/nccl src/os/linux.cc: setenv(name, value, 0)"),
            ),
            remedy=f"take {setting.name} out of one of them",
            where=winner.origin.where,
        )

"""Values that their program does not read as they were meant."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge import dangers, interfaces, nccl_pairs, parsers, torch_pairs
from safelaunch.settings.lint.judge.in_force import in_force
from safelaunch.settings.lint.judge.subsystems import without_init
from safelaunch.settings.lint.judge.wording import literal


def variable_value(context: LintContext) -> Iterator[Finding]:
    """A variable has a value of the wrong type or out of range, or one that its program reads as something else.

    Every program reads its variables in its own way, and most are silent about what they do not understand. NCCL reads
    numbers as C does: `true` is 0, `4M` is 4, `010` is 8. torch takes True and not true for the allocator, 1 and not
    true for TORCH_SHOW_CPP_STACKTRACES, and raises for other words elsewhere.

    How it is concluded: the catalogue knows for each variable which parser reads it, and its range or words where these
    are documented; a meaning that is only guessed is not judged. At a launch and in `env --check`, the interfaces of
    this machine are asked as well. Values that are made at launch or by a shell command
    are not judged either, and neither is a value that nobody reads: one that a script sets anew before it starts a
    program, or one of InfiniBand where NCCL_IB_DISABLE=1 stands beside it (SL215). Sources are the source code of NCCL
    and torch, and runs with torch 2.13.

    What to do: write the value as the message says.
    """
    env = in_force(context)
    for setting in context:
        variable, text = catalogue.variable(setting.name), literal(setting)
        if variable is None or text is None or not env.acts(setting) or dangers.judge(setting, env):
            continue
        if setting.name == "NCCL_ASYNC_ERROR_HANDLING" and context.elastic:
            continue  # whatever it says, it is not heeded: SL214
        if setting.name == torch_pairs.HEARTBEAT and torch_pairs.nobody_listens(env):
            continue  # the same: SL215
        if nccl_pairs.is_dead(setting, env):
            continue  # the same
        fault = (
            parsers.judge(variable, text, context.installed)
            or without_init(setting, text, env)
            or interfaces.absent(setting.name, text, context.interfaces)
        )
        if fault is not None:
            yield fault.finding("SL213", setting)

"""Single values that do harm."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge import dangers
from safelaunch.settings.lint.judge.in_force import in_force


def dangerous_variable(context: LintContext) -> Iterator[Finding]:
    """A variable has a value that can hang or crash the run, fill its memory, or keep it from ending.

    The value is accepted, and does what it says: TORCH_NCCL_TRACE_BUFFER_SIZE=67108864 is not 64 MiB but 67 million
    entries, which are 67 GB in each rank; TORCH_DISTRIBUTED_DEBUG=DETAIL makes every rank with gloo crash in DDP.

    How it is concluded: a table of such values. What they cost was measured with torch 2.13 on CPUs, or stands in the
    source code of torch and in NVIDIA's manuals; limits that are estimates say so there
    (safelaunch/settings/lint/judge/dangers.py).

    What to do: write the value that the message names, or unset the variable.
    """
    env = in_force(context)
    for setting in context:
        fault = dangers.judge(setting, env) if env.acts(setting) else None
        if fault is not None:
            yield fault.finding("SL218", setting)

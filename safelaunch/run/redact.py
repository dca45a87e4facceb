"""How a run was started, as it may be written down: every variable with its origin, and without its secrets.

A run directory is for this machine and mode 0700, but run.json and env.txt are what people show to each other. What
ranks print, and the evidence, stay as they are there; `diagnose --bundle` packs them without secrets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from safelaunch import redaction
from safelaunch.model import LaunchPlan, Settings
from safelaunch.printable import Line, whole


def environment(settings: Settings, environ: Mapping[str, str]) -> list[Line]:
    """One line a variable: `NAME=value  # origin`; those that profiles take away stand at the end, as comments.

    Args:
        settings: of the launch.
        environ: of safelaunch itself.
    """
    origins = {name: str(value.origin) for name, value in settings.env.items()}
    lines = [
        f"{name}={redaction.redact(name, value)}  # {origins.get(name, 'shell')}"
        for name, value in sorted(settings.environment(environ).items())
    ]
    lines += [f"# {name} is unset by {settings.unset[name].origin}" for name in sorted(settings.taken_away)]
    return [whole(line) for line in lines]


def without_secrets(settings: Settings) -> Settings:
    """The settings as they may be shown to a colleague."""
    env = {
        name: dataclasses.replace(value, value=redaction.redact(name, str(value.value)))
        for name, value in settings.env.items()
    }
    options = {name: dataclasses.replace(value, value=_option(value.value)) for name, value in settings.options.items()}
    computed = {name: redaction.redact(name, text) for name, text in settings.computed.items()}
    notify = {name: dataclasses.replace(value, value=_option(value.value)) for name, value in settings.notify.items()}
    return dataclasses.replace(settings, options=options, env=env, computed=computed, notify=notify)


def plan_without_secrets(plan: LaunchPlan) -> LaunchPlan:
    """The plan as it may be shown to a colleague."""
    env = {name: redaction.redact(name, value) for name, value in plan.env.items()}
    words = redaction.arguments(list(plan.script_args))
    warm = plan.warm and dataclasses.replace(plan.warm, command=tuple(redaction.arguments(list(plan.warm.command))))
    return dataclasses.replace(plan, env=env, script_args=type(plan.script_args)(words), warm=warm)


def _option(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return redaction.arguments(value)
    return redaction.text(value) if isinstance(value, str) else value

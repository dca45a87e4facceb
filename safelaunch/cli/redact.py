"""What a run writes down of its environment: every variable with its origin, and without its secrets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from safelaunch.model import LaunchPlan, Settings
from safelaunch.redaction import redact


def environment_text(settings: Settings, environ: Mapping[str, str]) -> str:
    """One line a variable: `NAME=value  # origin`; those that profiles take away stand at the end, as comments."""
    merged = {name: (value, "shell") for name, value in environ.items() if name not in settings.unset}
    merged |= {name: (str(value.value), str(value.origin)) for name, value in settings.env.items()}
    lines = [f"{name}={redact(name, value)}  # {origin}" for name, (value, origin) in sorted(merged.items())]
    lines += [
        f"# {name} is unset by {value.origin}" for name, value in sorted(settings.unset.items()) if name not in merged
    ]
    return "".join(f"{line}\n" for line in lines)


def without_secrets(settings: Settings) -> Settings:
    """The settings as they may be shown to a colleague."""
    env = {
        name: dataclasses.replace(value, value=redact(name, str(value.value))) for name, value in settings.env.items()
    }
    computed = {name: redact(name, text) for name, text in settings.computed.items()}
    return dataclasses.replace(settings, env=env, computed=computed)


def plan_without_secrets(plan: LaunchPlan) -> LaunchPlan:
    """The plan as it may be shown to a colleague."""
    return dataclasses.replace(plan, env={name: redact(name, value) for name, value in plan.env.items()})

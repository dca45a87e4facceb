"""env.txt: every variable that the ranks will see, with its origin, and without its secrets."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Settings
from safelaunch.redaction import redact


def environment_text(settings: Settings, environ: Mapping[str, str]) -> str:
    """One line a variable: `NAME=value  # origin`."""
    merged = {name: (value, "shell") for name, value in environ.items()}
    merged |= {name: (str(value.value), str(value.origin)) for name, value in settings.env.items()}
    return "".join(f"{name}={redact(name, value)}  # {origin}\n" for name, (value, origin) in sorted(merged.items()))

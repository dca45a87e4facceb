"""env.txt: every variable that the ranks will see, with its origin, and without its secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from safelaunch.model import Settings

SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|COOKIE|AUTH|_KEY$|_PWD$", re.IGNORECASE
)
URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def redact(name: str, value: str) -> str:
    """The value as it may be shown to a colleague."""
    return "<redacted>" if SECRET.search(name) and value else URL_CREDENTIALS.sub("<redacted>@", value)


def environment_text(settings: Settings, environ: Mapping[str, str]) -> str:
    """One line a variable: `NAME=value  # origin`."""
    merged = {name: (value, "shell") for name, value in environ.items()}
    merged |= {name: (str(value.value), str(value.origin)) for name, value in settings.env.items()}
    return "".join(f"{name}={redact(name, value)}  # {origin}\n" for name, (value, origin) in sorted(merged.items()))

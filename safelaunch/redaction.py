"""What is a secret among variables of the environment: shared by all that shows them or hands them on."""

from __future__ import annotations

import re

# TOKENIZERS_PARALLELISM, which many set, is none.
SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|(^|_)KEYS?(_|$)|PRIVATE|COOKIE|AUTH"
    r"|_(PWD|PASS)$",
    re.IGNORECASE,
)
URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret: by its name, or by credentials in a URL."""
    return bool(SECRET.search(name) or URL_CREDENTIALS.search(value))


def redact(name: str, value: str) -> str:
    """The value as it may be shown to a colleague."""
    return "<redacted>" if SECRET.search(name) and value else URL_CREDENTIALS.sub("<redacted>@", value)

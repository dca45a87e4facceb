"""`error.json` of torch elastic, as the lines that the rank would have printed.

The format: torch/distributed/elastic/multiprocessing/errors/error_handler.py, `record_exception`. A script has it by
`@record`, and torchrun's `--log-dir` keeps it beside what the rank printed.
"""

from __future__ import annotations

import json
from typing import IO, Any

NAME = "error.json"
MOST = 1 << 20  # bytes; a traceback is some KB


def text_of(file: IO[bytes]) -> bytes:
    """The traceback in it, or its message; what is of another form as it is."""
    raw = file.read(MOST)
    try:
        record: Any = json.loads(raw)
        message = record["message"]
        if isinstance(message, dict):
            callstack = (message.get("extraInfo") or {}).get("py_callstack")
            message = callstack if isinstance(callstack, str) and callstack.strip() else message["message"]
        return (message.rstrip() + "\n").encode("utf-8", "replace") if isinstance(message, str) else raw
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return raw

"""Programs of ours that read what may hold or end its reader: a dead file system, a hostile pickle."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any


def answers(command: Sequence[str], question: Any, seconds: float) -> list[Any]:
    """What a program prints, a line of JSON each, before it ends or is late; it is ended then.

    Args:
        command: of the program.
        question: a document that it gets on its standard input.
        seconds: for all of it.
    """
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return []
    try:
        output, _ = process.communicate(json.dumps(question).encode(), timeout=seconds)
    except subprocess.TimeoutExpired as late:
        process.kill()
        output = late.output or b""
    found = []
    for line in output.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:  # it was ended while it wrote; or the end
            continue
    return found

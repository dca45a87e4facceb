"""What an exception or a message says, in one line: its first line, and those that this one only announces."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs import specific
from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.diagnosis.logs.timeline import words
from safelaunch.model.logs import Raised, Sighting
from safelaunch.shortened import shortened

WIDE, MOST = 200, 240  # characters of a line alone, and of several
SHORT = 100  # of a line that may not say it all

# What CUDA's errors, pydantic's and others end with, whatever happened.
_ALWAYS = re.compile(
    r"^\s*(?:CUDA kernel errors might|For debugging consider|Compile with `TORCH|Search for `cuda"
    r"|For further information|Device-side assertion tracking|Set the environment variable HYDRA|\(Request ID"
    r"|object_type=)"
)
_BAR = re.compile(r"\d%\s?\||\d(?:it/s|s/it)")
_URL = re.compile(r"https?://")
# `Error 802: system not yet initialized`, which torch puts behind three lines of advice.
_NUMBERED = re.compile(r"\bError (?P<number>\d{1,4}): (?P<said>[^(\n]{3,100})")


def of_exception(one: Raised, name: str) -> str:
    """`ValueError: bad sample 7`, with the lines below where the first one only announces them."""
    message = _joined(one.message)
    numbered = _NUMBERED.search(one.message)
    if numbered and numbered["said"].strip() not in message:
        message = f"{numbered[0].strip()} ({shortened(message, 80)})"
    return f"{name}: {message}".rstrip(": ")


def _joined(message: str) -> str:
    lines = [line for line in message.strip().splitlines() if line.strip() and not _ALWAYS.match(line)]
    if not lines:
        return ""
    if told := specific.of_lines(lines):
        return told
    said = lines[0].strip()
    for line in lines[1:4]:
        if len(said) > SHORT or not _is_announced(said, line):
            break
        said = f"{said}{'' if said.endswith((':', '.', '!', ';')) else ';'} {line.strip()}"
    return fit(said, WIDE if len(lines) == 1 or said == lines[0].strip() else MOST)


def _is_announced(said: str, line: str) -> bool:
    """Whether a line belongs to what stands before it. A progress bar is written by another hand."""
    if _BAR.search(line):
        return False
    return said.endswith(":") or line[:1] in " \t" or (_URL.search(line) is not None and not _URL.search(said))


def of_message(s: Sighting) -> str:
    """What a message means, and its own words."""
    port = s.field("port") or s.field("port2")
    if port:
        return f"{s.known.means} ({port})"
    own = s.field("what") or s.field("also") or s.field("assertion") or s.field("test") or words(s.at)
    return s.known.means if not own or own in s.known.means else f"{s.known.means}: {fit(own, WIDE)}"

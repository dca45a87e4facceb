"""Numbers that are in range and still say that the unit was misunderstood."""

from __future__ import annotations

import re

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.judge.integers import strtoll
from safelaunch.settings.lint.judge.wording import Fault, source

DAY_S = 86400
LONGEST_S = 7 * DAY_S  # no limit of a watchdog is a week: it was meant in milliseconds (an estimate)
SHORTEST_BUFFER = 1024  # bytes; NCCL's own buffers start at 64 KiB, so this was meant in KiB or MiB (an estimate)
SMALLEST_DEFAULT = 1 << 16  # bytes; only buffers with a default from here on are judged

# Variable -> milliseconds below which seconds were meant. The dump of a full recorder of 2000 entries takes 75 ms
# (measured with gloo), and the default for it is 15000.
SHORTEST_MS = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": 1000}


def judge(variable: Variable, text: str) -> Fault | None:
    """Whether seconds look like milliseconds, milliseconds like seconds, or bytes like megabytes."""
    value, rest = strtoll(text)
    if rest == text or variable.confidence:
        return None
    why = (source(variable.source),)
    if variable.kind == "seconds" and value > LONGEST_S:
        says = f"is {value / DAY_S:.0f} days: the unit is seconds"
        return Fault("warning", says, why, f"write {variable.name}={value // 1000} if milliseconds were meant")
    if variable.kind == "ms" and 0 < value < SHORTEST_MS.get(variable.name, 0):
        says = f"is less than {SHORTEST_MS[variable.name] / 1000:g} s: the unit is milliseconds"
        return Fault("warning", says, why, f"write {variable.name}={value * 1000} if seconds were meant")
    default = re.search(r"\d{5,}", variable.default)
    if variable.kind == "bytes" and 0 < value < SHORTEST_BUFFER and default and int(default[0]) >= SMALLEST_DEFAULT:
        return Fault(
            "warning",
            f"is {value} bytes: the unit is bytes, and the default {default[0]}",
            why,
            "write the size in bytes",
        )
    return None

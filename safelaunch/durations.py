"""Durations as people write them, such as "90", "10m" and "1h30m". Python 3.8 syntax: workers load it too."""

from __future__ import annotations

import math
import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")


def seconds(text: str) -> float:
    """Seconds of a duration: a bare number, or numbers with units.

    Raises:
        ValueError: when it is none, or negative, or not finite.
    """
    if _TEXT.fullmatch(text):
        return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)([a-z]+)", text))
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def text(duration: float) -> str:
    """Seconds as people write them: "10m", "1h30m", "2.5s"."""
    whole, rest = divmod(round(duration, 3), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number:.9g}{unit}" for number, unit in parts if number) or "0s"

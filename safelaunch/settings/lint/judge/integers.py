"""Values that a program reads as a whole number, in C, in C++ or in Python; and the units people write behind them."""

from __future__ import annotations

import re

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge.wording import Fault, Severity, source

PARAM = source("NVIDIA/nccl src/misc/param.cc: strtoll(value, NULL, 0)")
STOI = source("torch/csrc/distributed/c10d/Utils.hpp, getCvarInt: std::stoi")

# Words by which people mean 0, which is what C reads them as.
OFF_WORDS = frozenset({"", "0", "false", "no", "off", "n", "f", "disable", "disabled", "none"})

# Out of range, NCCL takes the nearest number that it accepts. Sources: src/init.cc, src/transport/net_socket.cc,
# src/graph/tuning.cc.
CLAMPED = frozenset(
    {
        *("NCCL_CGA_CLUSTER_SIZE", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_NTHREADS"),
        *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"),
    }
)

_NUMBER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)")
_MULTIPLES = {"k": 10, "m": 20, "g": 30, "t": 40}  # powers of two
_SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
}
_UNIT_OF = {"seconds": "s", "ms": "ms"}


def strtoll(text: str) -> tuple[int, str]:
    """What C's strtoll with base 0 makes of a text, and what it leaves of it. Text without a number is 0."""
    match = _NUMBER.match(text)
    if match is None:
        return 0, text
    sign, digits = (-1 if match[1] == "-" else 1), match[2]
    rest = text[match.end() :]
    if digits[:2].lower() == "0x":
        return sign * int(digits, 16), rest
    if digits.startswith("0"):
        octal = re.match(r"[0-7]+", digits)
        assert octal is not None
        return sign * int(octal[0], 8), digits[octal.end() :] + rest
    return sign * int(digits), rest


def of_c(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """NCCL's own parameters: strtoll with base 0, which never complains. An empty value counts as not set."""
    value, rest = strtoll(text)
    if rest == text:
        return _word(variable, text)
    zeros = re.fullmatch(r"\s*[+-]?0+(\d+)\s*", text)
    if zeros and int(zeros[1]) != abs(value):
        if variable.parse == "strtol":
            return out_of_range(variable, int(text))
        return Fault("error", f"is read as octal: {value}", (PARAM,), f"write {variable.name}={zeros[1]}")
    if abs(value) >= 1 << 63:
        return Fault("warning", "is too large, and the default is used", (PARAM,), "use a smaller number")
    return _unit(variable, value, rest, PARAM) or out_of_range(variable, value)


def _word(variable: Variable, text: str) -> Fault | None:
    if text.strip().lower() in OFF_WORDS:
        return None  # 0 is what was meant
    if variable.kind == "bool":
        return Fault("error", "is read as 0, which is off", (PARAM,), f"write {variable.name}=1")
    return Fault("error", "is read as 0: it wants a number", (PARAM,), f"write a number{_default(variable)}")


def of_cpp(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """torch's own integers: std::stoi, which raises where no number stands at the beginning, or too large a one."""
    match = re.match(r"\s*[+-]?\d+", text)
    if match is None:
        return Fault("error", "is no whole number: torch raises at the first process group", (STOI,), _number(variable))
    value = int(match[0])
    if not -(1 << 31) <= value < 1 << 31:
        return Fault("error", "does not fit into 32 bits: torch raises", (STOI,), _number(variable))
    return _unit(variable, value, text[match.end() :], STOI) or out_of_range(variable, value)


def of_python(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """Python's int(), which raises for everything else."""
    try:
        value = int(text)
    except ValueError:
        return Fault("error", "is no whole number: torch raises", (source(variable.source),), _number(variable))
    return out_of_range(variable, value)


def _unit(variable: Variable, value: int, rest: str, why: str) -> Fault | None:
    """Text behind the number, which no parser of these reads."""
    if not rest or not (rest[0].isalnum() or rest[0] in "._%"):
        return None  # a comment, a stray quote or comma: the number is what was meant
    word = re.match(r"[.\w%]*", rest)[0].lower()  # type: ignore[index]
    intended = _intended(variable, value, word)
    if intended == value:
        return None
    remedy = f"write {variable.name}={intended}" if intended is not None else _number(variable)
    severity: Severity = "warning" if re.fullmatch(r"\.0*", word) else "error"  # 8388608.0 acts as it was meant
    return Fault(severity, f"is read as {value}: what stands behind the number is not looked at", (why,), remedy)


def _intended(variable: Variable, value: int, word: str) -> int | None:
    """The number with its unit, in the unit of the variable; None where that cannot be told."""
    unit = _TIME_WORDS.get(word)
    if variable.kind in _UNIT_OF and unit:
        return round(value * _SECONDS[unit] / _SECONDS[_UNIT_OF[variable.kind]])
    size = re.fullmatch(r"([kmgt])(?:i?b)?|b(?:ytes?)?", word)
    if variable.kind == "bytes" and size:
        return value << _MULTIPLES.get(size[1] or "", 0)
    return None


def out_of_range(variable: Variable, value: int) -> Fault | None:
    """A number that is not among those that are documented. What the catalogue only guesses is not judged, and neither
    is the default, which may lie outside: -2 is NCCL's "not set"."""
    if variable.confidence or re.match(rf"{value}(?!\d)", variable.default):
        return None
    numbers = [int(known) for known in variable.values if re.fullmatch(r"-?\d+", known)]
    if numbers and len(numbers) == len(variable.values) and value not in numbers:
        accepts = " or ".join(variable.values) if len(numbers) == 2 else ", ".join(variable.values)
    elif variable.min is not None and value < variable.min and variable.max is None:
        accepts = f"{variable.min} or more"
    elif (variable.min is not None and value < variable.min) or (variable.max is not None and value > variable.max):
        accepts = f"{variable.min if variable.min is not None else ''} to {variable.max}".strip()
    else:
        return None
    severity: Severity = "warning" if variable.name in CLAMPED or variable.kind == "bool" else "error"
    because = (*((variable.note,) if variable.note else ()), source(variable.source))
    return Fault(severity, f"is out of range: it takes {accepts}", because, f"use {accepts}{_default(variable)}")


def _default(variable: Variable) -> str:
    match = re.match(r"-?\d+", variable.default)
    return f"; the default is {match[0]}" if match and not match[0].startswith("-") else ""


def _number(variable: Variable) -> str:
    unit = {"seconds": " of seconds", "ms": " of milliseconds", "bytes": " of bytes"}.get(variable.kind, "")
    return f"write a whole number{unit}{_default(variable)}"

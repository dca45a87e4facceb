"""Kinds of setting: what each accepts, on the command line, in a variable and in a profile.

A kind reads text. A profile's TOML value of a type listed in `toml` is turned to text first, so that `90`, `"90s"`
and `--hang-abort-after 90` pass through the same door and mean the same.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from safelaunch import durations

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(i?)B?")
_STREAMS = re.compile(r"[0-3]|(\d:[0-3],)*\d:[0-3]")  # as in torch/distributed/elastic/multiprocessing/api.py
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")

# Ten years. What torch and libraries add to a timeout must not overflow: with 200000 days a healthy group fails at once
# (torch 2.13: nanoseconds in 64 bits), and Python's timedelta ends at 999999999 days.
LONGEST_S = 3650 * 86400.0
# Bytes of a value: with its name the kernel takes 128 KiB (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
MOST_OF_VARIABLE = 127 << 10


@dataclass(frozen=True)
class Kind:
    """What a setting accepts.

    `expects` completes the sentence "expected ...". `read` turns text into the value and raises ValueError.
    `toml` lists the TOML types that a profile may use. `choices` lists the words where nothing else is allowed.
    """

    expects: str
    read: Callable[[str], Any] = str
    toml: tuple[type, ...] = (str,)
    choices: tuple[str, ...] = ()

    def from_toml(self, value: Any) -> Any:
        """Read a TOML value; raises ValueError where its type or its text does not fit."""
        if type(value) not in self.toml:
            raise ValueError(self.expects)
        if isinstance(value, bool):
            return value
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in value):
                raise ValueError(self.expects)
            return list(value)
        return self.read(str(value))


# ------------------------------------------------------------------------------------- kinds with bounds


def integer(minimum: int, maximum: int | None = None) -> Kind:
    """A whole number within bounds, both included."""

    def read(text: str) -> int:
        value = int(text)
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError(text)
        return value

    bounds = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
    return Kind(f"a whole number, {bounds}", read, (int,))


def number(minimum: float) -> Kind:
    """A number that is not below a bound."""

    def read(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < minimum:
            raise ValueError(text)
        return value

    return Kind(f"a number, {minimum:g} or more", read, (int, float))


def choice(*words: str) -> Kind:
    """One word of a list."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Kind(f"one of {', '.join(words)}", read, choices=words)


# ------------------------------------------------------------------------------------------------ readers


def _interval(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = durations.seconds(text)
    if value > LONGEST_S:
        raise ValueError(text)
    return value


def _positive_seconds(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise ValueError(text)
    return value


def _limit(text: str) -> float | None:
    return None if text == "never" else _positive_seconds(text)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix or " "))


def _number_flag(text: str) -> bool:
    return bool(int(text))


def _switch(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _nodes(text: str) -> str:
    bounds = [int(part) for part in text.split(":")]
    if len(bounds) > 2 or not 0 < bounds[0] <= bounds[-1]:
        raise ValueError(text)
    return text


def _processes(text: str) -> str:
    # A word is left to torch, which alone knows the names of its out-of-tree devices. `cuda` is not one of them.
    if text == "cuda" or not (text.isidentifier() or int(text) > 0):
        raise ValueError(text)
    return text


def _streams(text: str) -> str:
    if not _STREAMS.fullmatch(text):
        raise ValueError(text)
    return text


def _ranks(text: str) -> str:
    if any(int(rank) < 0 for rank in text.split(",") if text):
        raise ValueError(text)
    return text


def _pairs(text: str) -> str:
    if text.strip() and not all(re.fullmatch(r"\s*[^=\s][^=]*=\s*\S.*", pair) for pair in text.split(",")):
        raise ValueError(text)
    return text


def _signals(text: str) -> str:
    if not all(name.strip() in signal.Signals.__members__ for name in text.split(",")):
        raise ValueError(text)
    return text


def _filters(text: str) -> list[str]:
    # torchrun's rule: a comma separates, two commas are one comma of the text.
    return [item.replace("\0", ",") for item in text.replace(",,", "\0").split(",")]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _env_text(text: str) -> str:
    if "\0" in text or len(os.fsencode(text)) > MOST_OF_VARIABLE:  # the kernel ends a variable there, and takes no more
        raise ValueError(text)
    return text


def _command(text: str) -> str:
    if not text.strip() or "\0" in text or len(os.fsencode(text)) > MOST_OF_VARIABLE:
        raise ValueError(text)
    return text


def _log_prefix(text: str) -> str:
    unknown = set(re.findall(r"\{(\w*)\}", text)) - {"rank", "host", "time", "date"}
    if unknown or "\n" in text or len(text) > 200:
        raise ValueError(text)
    return text


def _open_files(text: str) -> int | str:
    return text if text == "auto" else integer(1).read(text)


# ------------------------------------------------------------------------------------------ kinds by name

# Text that is a number to the eye (`nproc_per_node = 4`) may be written without quotes in a profile.
TEXT = Kind("a string", toml=(str, int))
PATH = Kind("a path")
COMMAND = Kind("a command for the shell", _command)
ENV_TEXT = Kind("a string of 127 KiB at most, or a number", _env_text, (str, int, float))
STRINGS = Kind("a string or a list of strings", lambda text: [text], (str, list))
PORT = integer(0, 65535)
INTERVAL = Kind("a number of seconds, 0 or more", _interval, (int, float))
DURATION = Kind(
    'a duration above 0 such as "10m", "1h30m" or 90 (seconds), 3650 days at most', _positive_seconds, (int, float, str)
)
GRACE = Kind('a duration such as "30s", "2m" or 0 (seconds), 3650 days at most', _seconds, (int, float, str))
LIMIT = Kind(
    'a duration above 0 such as "10m" or 90 (seconds), 3650 days at most, or "never"', _limit, (int, float, str)
)
SIZE = Kind('a size such as "1GiB", "500MB" or a number of bytes', _bytes, (int, str))
LOG_PREFIX = Kind(
    "a line of at most 200 characters, in which {rank}, {host}, {time} and {date} are filled in", _log_prefix
)
OPEN_FILES = Kind('a number of files, or "auto"', _open_files, (int, str))
NUMBER_FLAG = Kind("1 or 0", _number_flag, (bool,))
SWITCH = Kind("1 or 0, true or false, yes or no, on or off", _switch, (bool,))
NODES = Kind("a number of nodes, or MIN:MAX with 1 <= MIN <= MAX", _nodes, (str, int))
PROCESSES = Kind("a number of processes above 0, or auto, cpu, gpu, xpu or another device", _processes, (str, int))
STREAMS = Kind("0 none, 1 stdout, 2 stderr, 3 both, or a list RANK:N,RANK:N", _streams, (str, int))
RANKS = Kind("local ranks separated by commas", _ranks, (str, int))
PAIRS = Kind("KEY=VALUE pairs separated by commas", _pairs)
SIGNALS = Kind("names of signals separated by commas, such as SIGTERM,SIGINT", _signals)
FILTERS = Kind("texts separated by commas", _filters, (str, list))
NAMES = Kind("names separated by commas", _names, (str, list))

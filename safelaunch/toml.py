"""TOML of others: what tomllib makes of it, and a refusal where that would take minutes or gigabytes."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# tomllib keeps each beginning of a dotted key until its table ends: a key of 50,000 parts takes 8 GB, and a name within
# it nothing that anybody has written by hand.
MOST_PARTS = 32
MOST_BYTES = 1 << 20

# A text that is not closed goes to the end of its line: it is looked at once, not from each quote within it.
_PART = re.compile(r"""(?:[\w-]+|"(?:\\.|[^"\\])*(?:"|\\?\Z)|'[^']*(?:'|\Z))[ \t]*(\.|)""")


def loads(text: str) -> dict[str, Any]:
    """The document.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML, nested too deep, or has a key of too many parts or a number of too many
            bits.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_PARTS and _parts(line) > MOST_PARTS:
            raise tomllib.TOMLDecodeError(f"a key of more than {MOST_PARTS} parts (at line {number}, column 1)")
    try:
        document: dict[str, Any] = tomllib.loads(text)
        _refuse_large(document)
        return document
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deep") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # a number of more than 4,300 digits, a date that is none
        raise tomllib.TOMLDecodeError(str(error)) from None


def _refuse_large(value: Any) -> None:
    """TOML's whole numbers have 64 bits; in other bases than ten tomllib takes any, which Python cannot show then."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _refuse_large(item)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise tomllib.TOMLDecodeError("a whole number of more than 64 bits")


def _parts(line: str) -> int:
    """The most parts that are joined by dots in a line, outside of texts."""
    most = parts = 0
    for part in _PART.finditer(line):  # comments included: a `#` may stand within a text
        parts += 1
        most = max(most, parts)
        if not part[1]:
            parts = 0
    return most

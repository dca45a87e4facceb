"""Real input with a few things changed at random, for `mutations`."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, 10**19, 10**400, 1 << 20, 0.5, -0.0, 1e308, float("inf"), float("nan"))
DEEP: list[Any] = []
for _ in range(60):
    DEEP = [DEEP]
OTHERS = (None, True, False, "", "x", "0", "9" * 5000, "\0", "\ud800", [], [1], [None], {}, {"a": 1}, [[]], DEEP)
TEXTS = (
    b"9" * 5000, b"\0", b"\n", b"\r", b"\xff\xfe", b"-1", b"1048Watchdog caught576", "²".encode(), "٣".encode(), b"[",
    b"{", b'"', b"[rank7]:", b"[rank99999999999999999999]:", b"0-999999", b"nan", b"1e999",
    b"Traceback (most recent call last):",
)  # fmt: skip


def of_bytes(data: bytes, chance: random.Random) -> bytes:
    """A text or a binary file with a few bytes, numbers or lines changed."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 4, 40, 400)))
        match chance.randrange(8):
            case 0:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:end] + data[at:]
            case 3:
                data = data[:at] + chance.choice(TEXTS) + data[at:]
            case 4:
                data = data[:at] + chance.choice(TEXTS) + data[end:]
            case 5:  # a number
                digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
                if digits:
                    at = chance.choice(digits)
                    data = data[:at] + chance.choice(TEXTS) + data[at + 1 :]
            case 6:  # two lines that two processes wrote at once
                lines = data.split(b"\n")
                first, second = chance.choice(lines), chance.choice(lines)
                cut = chance.randrange(len(first) + 1)
                lines.insert(chance.randrange(len(lines) + 1), first[:cut] + second + first[cut:])
                data = b"\n".join(lines)
            case _:
                data = data[:at] if chance.random() < 0.3 else data
    return data


def of_document(document: Any, chance: random.Random) -> Any:
    """A document of JSON or a pickle with a few of its values replaced, left out or repeated."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        places = list(_places(document))
        if not places:
            return document
        holder, key = chance.choice(places)
        match chance.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = chance.choice(NUMBERS)
            case 2 | 3:
                holder[key] = copy.deepcopy(chance.choice(OTHERS))
            case 4:
                holder[key] = [copy.deepcopy(holder[key]) for _ in range(chance.choice((1, 2, 300)))]
            case _:
                other, name = chance.choice(places)
                with contextlib.suppress(KeyError, IndexError):
                    holder[key] = json.loads(json.dumps(other[name])) if len(json.dumps(other[name])) < 10000 else 0
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            if index < 6 or index > len(value) - 6:
                yield from _places(item)

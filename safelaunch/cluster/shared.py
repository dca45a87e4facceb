"""What a message says several times stands in it once: lines of JSON, each of which may refer to those before it.

The ranks of a node stand at the same lines of the same program, so half of a case is said again by each of them. What
is said once is read once, checked once, and is one object in memory: with 8,192 ranks that is seconds, and hundreds of
MiB. A reference is `{"=": 3}`, the value of line 3. Numbers in even steps, as the members of a group mostly are, are
`{"..": [first, step, count]}`. A field with its class's default is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from json.encoder import encode_basestring_ascii
from typing import Any

from safelaunch.codec import SharedDict, SharedList

SAME, STEPS = "=", ".."
FEW = 8  # numbers that are written one by one
SHORT = 12  # characters that a reference would not shorten
MOST = 1 << 20  # values that a message may stand for, each reference counted with all that is behind it
GROUPS = 64  # that are kept from one message to the next: all nodes tell of those that span the nodes

_Part = str | int  # a text of JSON, or the number of what has parts of its own
_NOTHING = object()


def written(value: Any) -> str:
    """The lines of a value: a list or a dataclass, down to texts and numbers."""
    return _Writer().lines(value)


def read(text: bytes) -> Any:
    """What `written` has written, for `codec.checked`.

    Raises:
        ValueError, TypeError, IndexError, RecursionError: it is nothing of the kind, or stands for too much.
    """
    return _Reader().value(text.split(b"\n"))


class _Writer:
    """Numbers all that has parts, parts first; what is the same has the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[_Part, ...], int] = {}
        self._uses: list[int] = []

    def lines(self, value: Any) -> str:
        last = self._number(value)
        if isinstance(last, str):
            return last
        lines: list[str] = []
        texts: list[str] = []
        for shape, uses in zip(self._numbers, self._uses, strict=True):
            text = "".join(part if isinstance(part, str) else texts[part] for part in shape)
            if uses > 1 and len(text) > SHORT:
                lines.append(text)
                text = f'{{"{SAME}":{len(lines) - 1}}}'
            texts.append(text)
        return "\n".join([*lines, texts[last]])

    def _number(self, value: Any) -> _Part:
        kind: Any = type(value)
        if kind is str:
            return encode_basestring_ascii(value)
        if kind is int or kind is float or value is None or kind is bool:
            return json.dumps(value)
        if kind is tuple or kind is list:
            steps = _steps(value)
            if steps:
                return steps
            shape: list[_Part] = ["["]
            for item in value:
                shape += (self._number(item), ",")
        else:
            shape = ["{"]
            for name, default in _fields(kind):
                item = getattr(value, name)
                if item is not default and not (item == default and type(item) is type(default)):
                    shape += (f'"{name}":', self._number(item), ",")
        shape[max(1, len(shape) - 1) :] = ["]" if shape[0] == "[" else "}"]
        return self._known(tuple(shape))

    def _known(self, shape: tuple[_Part, ...]) -> int:
        number = self._numbers.setdefault(shape, len(self._uses))
        if number == len(self._uses):
            self._uses.append(0)
            for part in shape:
                if isinstance(part, int):
                    self._uses[part] += 1
        return number


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of a dataclass; raises TypeError for anything else."""
    missing = dataclasses.MISSING
    return tuple((one.name, _NOTHING if one.default is missing else one.default) for one in dataclasses.fields(kind))


def _steps(numbers: Any) -> str:
    """Numbers in even steps, as text; empty for others."""
    if len(numbers) <= FEW or type(numbers[0]) is not int or type(numbers[1]) is not int:
        return ""
    first, step = numbers[0], numbers[1] - numbers[0]
    if step <= 0 or list(numbers) != list(range(first, first + step * len(numbers), step)):
        return ""
    return f'{{"{STEPS}":[{first},{step},{len(numbers)}]}}'


class _Reader:
    """Reads line after line, and counts what they stand for."""

    def __init__(self) -> None:
        self._table: list[tuple[Any, int]] = []
        self._weight = 0  # of the line that is being read

    def value(self, lines: list[bytes]) -> Any:
        for line in lines[:-1]:
            self._weight = 1
            found = json.loads(line, object_hook=self._object)
            kept = SharedDict(found) if type(found) is dict else SharedList(found) if type(found) is list else found
            self._table.append((kept, self._weight))
        self._weight = 1
        return json.loads(lines[-1], object_hook=self._object)

    def _object(self, found: dict[str, Any]) -> Any:
        value: Any = found
        weight = 1
        if len(found) == 1:
            if SAME in found:
                value, weight = self._table[found[SAME]]
            elif STEPS in found:
                first, step, weight = found[STEPS]
                value = _numbers(first, step, weight) if 0 < weight <= MOST else []
        self._weight += weight
        if self._weight > MOST:
            raise ValueError("a message that stands for too much")
        return value


@functools.lru_cache(GROUPS)
def _numbers(first: int, step: int, count: int) -> SharedList:
    return SharedList(range(first, first + step * count, step))

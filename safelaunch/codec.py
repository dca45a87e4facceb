"""The dataclasses of `model` to JSON and back. Standard library only.

`from_json` reads what a process of the same run has just written. `checked` reads what anybody may have written: each
value is compared with the type that its field declares, so that nothing behind it meets a text where a number belongs.
A class whose documents once had another shape has a static method `from_older(document)`, which returns the document in
today's shape, or as it is.
Measured with a case of 1,024 ranks (2 MB): 0.08 s with its parsing, of which msgspec needs 0.02 s; but its import costs
0.02 to 0.08 s and 5 MB, in every `diagnose`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from safelaunch.shortened import shortened

T = TypeVar("T")
Read = Callable[[Any], Any]

LARGEST = 1 << 63  # a number above is none that anything counts, and no float may be made of 10^400
LONGEST = 1 << 16  # characters of a text: each rule looks through them anew, and ours have 4,000, a traceback 20,000
ENDLESS = re.compile(r"\d{1000,}")  # `int` refuses more than 4,300 digits, wherever a rule finds them in a message


class ShapeError(TypeError):
    """A document has not the shape that its class declares. The message says where, and what stands there."""


def to_json(value: Any) -> Any:
    """Turn a dataclass, or a container of them, into what `json.dumps` takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[T], data: Any) -> T:
    """Rebuild a dataclass of this module from `to_json`'s output.

    Unknown keys are ignored, so that a newer bundle still reads. Texts and numbers are what they are said to be:
    whoever wrote a bundle may have put a text where a pid is told, and a pid stands in commands.

    Raises:
        TypeError: for a missing key without a default, something else than an object, or a value of another type.
    """
    return typing.cast(T, _decode(cls, data))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return None if data is None else _decode(options[0], data)
    if origin in (tuple, list):
        inner = typing.get_args(hint)
        if origin is tuple and inner[1:] not in ((), (...,)):  # a field for each item
            return tuple(_decode(kind, item) for kind, item in zip(inner, data, strict=True))
        return (tuple if origin is tuple else list)(_decode(inner[0], item) for item in data)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        data = _from_older(hint, data)
        if not isinstance(data, dict):
            raise TypeError(f"expected an object for {hint.__name__}, got {type(data).__name__}")
        hints = _hints(hint)
        known = {f.name for f in dataclasses.fields(hint)}
        values = {key: _decode(hints[key], item) for key, item in data.items() if key in known}
        return hint(**values)
    return data


def _from_older(cls: Any, data: Any) -> Any:
    read: Callable[[Any], Any] | None = getattr(cls, "from_older", None)
    return read(data) if read is not None else data


# ------------------------------------------------------------------------------------------------ what is not ours


def checked(cls: type[T], data: Any) -> T:
    """Rebuild a dataclass from a document that anybody may have written.

    Args:
        cls: a dataclass whose fields are texts, numbers, truth values, literals, other dataclasses, and tuples, lists
            and dicts of these.
        data: what a parser of JSON has made. Unknown keys are ignored, so that a newer bundle still reads.

    Raises:
        ShapeError: a value is not of its field's type, a field without a default is missing, a number is larger than
            63 bits or not finite.
    """
    read: Read = _reader(typing.cast(Any, cls))
    return typing.cast(T, read(data))


class SharedDict(dict[str, Any]):
    """An object that stands at several places of a document: `checked` reads it once for each class."""

    __slots__ = ("_made",)

    def made(self, read: Read) -> Any:
        """What a reader makes of it."""
        return _made(self, read, dict)


class SharedList(list[Any]):
    """A list that stands at several places of a document, likewise."""

    __slots__ = ("_made",)

    def made(self, read: Read) -> Any:
        """What a reader makes of it."""
        return _made(self, read, list)


def _made(shared: Any, read: Read, plain: Callable[[Any], Any]) -> Any:
    if not hasattr(shared, "_made"):
        shared._made = {}
    if read not in shared._made:
        shared._made[read] = read(plain(shared))
    return shared._made[read]


def _wrong(expected: str, data: Any) -> ShapeError:
    shown = repr(data)[:40] if isinstance(data, (str, float)) else type(data).__name__
    return ShapeError(f": expected {expected}, got {shown}")


def _text(data: Any) -> str:
    if type(data) is not str:
        raise _wrong("a text", data)
    if len(data) < 1000:
        return data
    return ENDLESS.sub(lambda found: found[0][:20] + "...", shortened(data, LONGEST))


def _whole(data: Any) -> int:
    if type(data) is not int:
        raise _wrong("a whole number", data)
    if not -LARGEST <= data < LARGEST:
        raise ShapeError(": a number of more than 63 bits")
    return data


def _number(data: Any) -> float:
    if type(data) is int:
        return _whole(data)  # as Python's own json writes 3.0 where 3 was meant: kept as it is
    if type(data) is not float:
        raise _wrong("a number", data)
    if not math.isfinite(data):
        raise ShapeError(f": {data} is no number")
    return data


def _truth(data: Any) -> bool:
    if type(data) is not bool:
        raise _wrong("true or false", data)
    return data


_SIMPLE: dict[Any, Read] = {str: _text, int: _whole, float: _number, bool: _truth, Any: lambda data: data}


@functools.cache
def _reader(hint: Any) -> Read:
    """What takes a value apart that a hint declares."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (typing.Union, types.UnionType):
        return _optional(arguments)
    if origin is typing.Literal:
        return _one_of(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row(tuple(map(_reader, arguments)))
    if origin in (tuple, list):
        return _sequence(origin, _reader(arguments[0]))
    if origin is dict:
        return _mapping(_reader(arguments[1]))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _object(hint)
    raise NotImplementedError(f"no document holds {hint}")


def _optional(arguments: tuple[Any, ...]) -> Read:
    (inner,) = (_reader(one) for one in arguments if one is not type(None))
    return lambda data: None if data is None else inner(data)


def _one_of(values: tuple[Any, ...]) -> Read:
    def read(data: Any) -> Any:
        if type(data) is not str or data not in values:
            raise _wrong("one of " + ", ".join(map(repr, values)), data)
        return data

    return read


def _row(readers: tuple[Read, ...]) -> Read:
    def read(data: Any) -> Any:
        if type(data) is SharedList:
            return data.made(read)
        if type(data) is not list or len(data) != len(readers):
            raise _wrong(f"{len(readers)} values", data)
        return tuple(read(item) for read, item in zip(readers, data, strict=True))

    return read


def _sequence(kind: type, inner: Read) -> Read:
    def read(data: Any) -> Any:
        if type(data) is SharedList:
            return data.made(read)
        if type(data) is not list:
            raise _wrong("a list", data)
        try:
            return kind(map(inner, data))
        except ShapeError as error:
            raise ShapeError(f"[]{error}") from None

    return read


def _mapping(inner: Read) -> Read:
    def read(data: Any) -> Any:
        if type(data) is SharedDict:
            return data.made(read)
        if type(data) is not dict:
            raise _wrong("an object", data)
        return {_text(key): inner(item) for key, item in data.items()}

    return read


def _object(cls: Any) -> Read:
    known = [field for field in dataclasses.fields(cls) if field.init]
    nothing = dataclasses.MISSING
    needed = {one.name for one in known if one.default is nothing and one.default_factory is nothing}
    readers: dict[str, Read] = {}

    def read(data: Any) -> Any:
        if type(data) is SharedDict:
            return data.made(read)
        data = _from_older(cls, data)
        if type(data) is not dict:
            raise _wrong("an object", data)
        if not readers:  # not before: a class may hold itself
            readers.update((one.name, _reader(_hints(cls)[one.name])) for one in known)
        if not needed <= data.keys():
            raise ShapeError(f": without {min(needed - data.keys())}")
        values = {}
        for name, item in data.items():
            if name in readers:
                try:
                    values[name] = readers[name](item)
                except ShapeError as error:
                    raise ShapeError(f".{name}{error}") from None
        return cls(**values)

    return read

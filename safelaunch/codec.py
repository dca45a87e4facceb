"""The dataclasses of `model` to JSON and back. Standard library only."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")
# JSON has one kind of number: a float may have been written without a fraction.
_SCALARS: dict[Any, tuple[type, ...]] = {int: (int,), float: (float, int), str: (str,), bool: (bool,)}


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
        if not isinstance(data, dict):
            raise TypeError(f"expected an object for {hint.__name__}, got {type(data).__name__}")
        hints = _hints(hint)
        known = {f.name for f in dataclasses.fields(hint)}
        return hint(**{key: _decode(hints[key], item) for key, item in data.items() if key in known})
    if hint in _SCALARS and type(data) not in _SCALARS[hint]:
        raise TypeError(f"expected {hint.__name__}, got {type(data).__name__}")
    return data

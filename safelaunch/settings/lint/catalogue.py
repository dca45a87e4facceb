"""The catalogue of variables: what is known of each, from `catalogue.toml`.

Parsing all of that file takes longer than a launch may lose, so names are found by the form of the file and only the
blocks that are asked for are parsed. A test holds the file to that form.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any, Literal, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "catalogue.toml")
Namespace = Literal["strict", "loose", ""]


class Variable(NamedTuple):
    """One variable of the catalogue; see the head of `catalogue.toml` for the fields."""

    name: str
    owner: str
    kind: str
    doc: str
    source: str
    default: str = ""
    values: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None
    parse: str = ""
    since: str = ""
    removed_in: str = ""
    deprecated: str = ""
    renamed_to: str = ""
    status: str = ""
    aliases: tuple[str, ...] = ()
    component: str = ""
    cost: str = ""
    costs_when: tuple[str, ...] = ()
    read: str = ""
    note: str = ""
    confidence: str = ""


class Unread(NamedTuple):
    """A name that circulates and that nothing reads. `instead` says what people mean by it, or is empty."""

    name: str
    instead: str = ""


class AllocOption(NamedTuple):
    """One option of PYTORCH_ALLOC_CONF. `valid` is for people; `since` is a version of torch."""

    name: str
    kind: str
    valid: str
    doc: str
    since: str = ""


@cache
def variable(name: str) -> Variable | None:
    """What is known of a variable, or None. Case matters, as it does to `getenv`."""
    block = _parsed("variable", name)
    if block is None:
        return None
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in block.items()}
    return Variable(**fields)


@cache
def unread(name: str) -> Unread | None:
    """A name that is known to be read by nothing in torch, NCCL and their plugins; None for any other."""
    fields = _parsed("not_read", name)
    return Unread(**fields) if fields is not None else None


@cache
def names() -> frozenset[str]:
    """The names of all variables."""
    return frozenset(_blocks()["variable"])


@cache
def alloc_options() -> tuple[AllocOption, ...]:
    """The options of the CUDA allocator."""
    return tuple(AllocOption(**(_parsed("alloc_option", name) or {})) for name in _blocks()["alloc_option"])


@cache
def namespaces() -> dict[str, Namespace]:
    """Prefix -> whether all of its names are known (strict), or many others have names there too (loose)."""
    meta = tomllib.loads(_blocks()["meta"][""])["meta"]
    return {prefix: kind for kind in ("strict", "loose") for prefix in meta[kind]}


def namespace(name: str) -> Namespace:
    """What an unknown name deserves: `strict`, to be told always; `loose`, where it is all but a known one; "", never.

    The longest prefix decides: TORCH_NCCL_X is strict though TORCH_X is loose.
    """
    if is_third_party(name):
        return ""
    prefix = max((prefix for prefix in namespaces() if name.startswith(prefix)), key=len, default="")
    return namespaces()[prefix] if prefix else ""


def is_third_party(name: str) -> bool:
    """Whether a name belongs to a family of which only its owner knows all names."""
    return name not in names() and name.startswith(tuple(_blocks()["family"]))


def nearest(name: str) -> str:
    """The known variable that a name is a slip of, or "" where none is near; see `near.nearest`."""
    from safelaunch.settings.lint import near  # only an unknown name pays for it

    return near.nearest(name, _alive(), namespaces())


@cache
def _alive() -> frozenset[str]:
    """The names that a newcomer may be sent to: not those that are gone."""
    return frozenset(name for name, text in _blocks()["variable"].items() if "\nremoved_in = " not in text)


@cache
def _blocks() -> dict[str, dict[str, str]]:
    """Table -> name -> the text of its block; what stands before the first block is under `meta`."""
    with open(FILE, encoding="utf-8") as file:
        head, *parts = file.read().split("\n[[")
    found: dict[str, dict[str, str]] = {"meta": {"": head}}
    for part in parts:
        table, _, rest = part.partition(']]\nname = "')
        found.setdefault(table, {})[rest[: rest.index('"')]] = f"[[{part}"
    return found


def _parsed(table: str, name: str) -> dict[str, Any] | None:
    text = _blocks()[table].get(name)
    if text is None:
        return None
    block: dict[str, Any] = tomllib.loads(text)[table][0]
    return block

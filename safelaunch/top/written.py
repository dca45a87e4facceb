"""run.json and result.json as `top`, `dump` and `diff` read them: whoever started the run may have written anything.

A field that is not of its type costs itself alone, and is told: what was not read is not known to be well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from safelaunch import regular
from safelaunch.codec import ShapeError, checked
from safelaunch.top.tail import is_deep

MOST = 16 << 20  # bytes of a document

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The launch plan: what runs, and where it writes."""

    script: str | None = None
    script_args: tuple[str, ...] = ()
    run_dir: str = ""


@dataclass(frozen=True)
class Option:
    """The value of an option of the command line, or of a profile."""

    value: Any = None


@dataclass(frozen=True)
class Settings:
    """All options."""

    options: dict[str, Option] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a rank ran."""

    rank: int
    host: str = ""
    gpu_index: Any = None


@dataclass(frozen=True)
class Mapped:
    """Where the ranks of one attempt ran."""

    ranks: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Started:
    """run.json: how a run was started."""

    plan: Plan = field(default_factory=Plan)
    settings: Settings = field(default_factory=Settings)
    mapping: tuple[Mapped, ...] = ()
    cwd: str | None = None
    script_sha256: str | None = None
    commit: str | None = None
    python: str | None = None
    safelaunch: str | None = None


@dataclass(frozen=True)
class Said:
    """A verdict, as result.json names it."""

    code: str = ""
    summary: str = ""


@dataclass(frozen=True)
class Result:
    """result.json: what a run came to. `exit_code` is None where that is not known."""

    exit_code: int | None = None
    elapsed_s: float | None = None
    steps: int | None = None
    preempted: Any = None
    attempts: tuple[Any, ...] | None = None
    verdicts: tuple[Said, ...] = ()


def document(path: str, owner: int | None = None) -> tuple[dict[str, Any] | None, str]:
    """The JSON object that a file holds.

    Args:
        path: of the file.
        owner: the user whose file it has to be, as for `regular.read`.

    Returns:
        it, None where there is none; and why it cannot be read, empty where it can, or where there is no such file.
    """
    try:
        found = json.loads(regular.read(path, MOST, owner))
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        return None, "cannot be read: it is no JSON"
    if not isinstance(found, dict) or is_deep(found):
        return None, "cannot be read: it is no JSON object of ours"
    return found, ""


def fitting(cls: type[T], said: Mapping[str, Any]) -> tuple[T, dict[str, str]]:
    """A document as a class of this module, whose fields all have defaults; and, by the names of the fields that are
    not of their types, what is wrong with them."""
    found, faults = cls(), {}
    for one in dataclasses.fields(cls):  # type: ignore[arg-type]
        if one.name in said:
            try:
                value = getattr(checked(cls, {one.name: said[one.name]}), one.name)
            except ShapeError as error:
                faults[one.name] = str(error).lstrip(".")
            else:
                found = dataclasses.replace(found, **{one.name: value})  # type: ignore[type-var]
    return found, faults

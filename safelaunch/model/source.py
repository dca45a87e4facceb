"""What stands in the source of the user's program around the lines at which ranks stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_OTHERWISE = "else of: "  # before 2026-11 bundles held a condition as [line, text], and one that does not hold so


@dataclass(frozen=True)
class Condition:
    """A test of the program at `line`, above another line: that one is reached where the test `holds`, or where it does
    not."""

    line: int
    text: str
    holds: bool = True

    @staticmethod
    def from_older(document: Any) -> Any:
        """A document of an older version in today's shape: see `codec`."""
        if not isinstance(document, list) or len(document) != 2 or not isinstance(document[1], str):
            return document
        line, text = document
        return {"line": line, "text": text.removeprefix(_OTHERWISE), "holds": not text.startswith(_OTHERWISE)}


@dataclass(frozen=True)
class WayOut:
    """A statement that leaves a loop, or cuts a pass through it short.

    `word` is `break`, `continue` or `return`, `loop` the first line of that loop. `handler` is the `except` that it
    stands in, `test` the condition; "" for none.
    """

    line: int
    word: str
    loop: int
    handler: str = ""
    test: str = ""


@dataclass(frozen=True)
class Bound:
    """An assignment, below the condition `test`, to a `name` that the head of a `while` or a `for ... in range(...)`
    reads: where the condition comes out otherwise, that loop begins or ends elsewhere. `loop` is its first line."""

    line: int
    name: str
    text: str
    test: str
    loop: int


@dataclass(frozen=True)
class SourceLine:
    """What stands around a line of the user's program: the lines (first, last) of the loops that it is inside of,
    outermost first, the conditions that it stands under, innermost last, and what the `with` statements around it hold,
    each as (line, text). `ahead` has, with the line of an `if` among the conditions, the name of each function that the
    same branch calls from there on, or in the same statement. `exits` are the ways out of its
    loops, and `caught` the `except` clauses, as (line, text), that catch what is raised at this line and go on.
    `bounds` are what decides, under a condition, where these loops begin and end. `caller` is, of a line to which no
    stack leads, the one line that calls the function around it, with the function that this one is in."""

    file: str
    line: int
    text: str = ""
    loops: tuple[tuple[int, int], ...] = ()
    conditions: tuple[Condition, ...] = ()
    holds: tuple[tuple[int, str], ...] = ()
    ahead: tuple[tuple[int, str], ...] = ()
    exits: tuple[WayOut, ...] = ()
    caught: tuple[tuple[int, str], ...] = ()
    bounds: tuple[Bound, ...] = ()
    caller: tuple[int, str] | None = None

    def is_below(self, line: int) -> bool:
        """Whether it stands in a branch of the `if` or `while` at that line."""
        return any(condition.line == line for condition in self.conditions)

"""What is known of the program's source lines, by where they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from safelaunch import python_tree
from safelaunch.model import Location, SourceLine

Lines = dict[tuple[str, int], SourceLine]


def by_place(source: Iterable[SourceLine]) -> Lines:
    """The same lines by file and number."""
    return {(line.file, line.line): line for line in source}


def with_callers(frames: Sequence[Location], host: Sequence[Location], lines: Lines) -> list[Location]:
    """The frames of a call with those that led to it, as far as the source leaves no choice: of a call on a device the
    line alone is known, since its host has gone on. Only functions count in which the host still is.

    Args:
        frames: of the call, innermost first.
        host: where the thread that made it is by now.
        lines: of the source.
    """
    found, still = list(frames), {(frame.file, frame.function.rpartition(".")[2]) for frame in host}
    while found and len(found) <= len(host) + len(frames):
        line = lines.get((found[-1].file, found[-1].line))
        if line is None or line.caller is None or (line.file, line.caller[1]) not in still:
            break
        found.append(Location(line.file, *line.caller))
    return found


def calls_in_order(text: str) -> list[str]:
    """The functions that a line calls, by their last names, in the order in which they begin; nothing for a line that
    is no whole statement. What stands in a lambda or a comprehension may be called at any time, or never."""
    try:
        tree = python_tree.module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_calls(tree))


def _calls(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.IfExp, ast.BoolOp)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func).rpartition(".")[2]

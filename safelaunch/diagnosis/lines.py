"""What is known of the program's source lines, by where they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from safelaunch.model import SourceLine

Lines = dict[tuple[str, int], SourceLine]


def by_place(source: Iterable[SourceLine]) -> Lines:
    """The same lines by file and number."""
    return {(line.file, line.line): line for line in source}


def calls_in_order(text: str) -> list[str]:
    """The functions that a line calls, by their last names, in the order in which they begin; nothing for a line that
    is no whole statement. What stands in a lambda or a comprehension may be called at any time, or never."""
    try:
        tree = ast.parse(text)
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

"""Where a run is watched and judged, no function has more branches than a reader can keep in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import REPOSITORY

MOST = 12  # with boolean operators and conditional expressions
ROOMS = ("diagnosis", "launch", "run", "watch")
FILES = sorted(path for room in ROOMS for path in (REPOSITORY / "safelaunch" / room).rglob("*.py"))
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def own(function: ast.AST) -> Iterator[ast.AST]:
    """What a function consists of, without the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, FUNCTIONS):
            yield node
            yield from own(node)


def branches(function: ast.AST) -> int:
    nodes = list(own(function))
    joined = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    conditions = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return joined + conditions + sum(isinstance(node, BRANCHES) for node in nodes)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY / "safelaunch")))
def test_a_function_of_more_branches_is_two_or_a_table(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS)]

    assert {one.name: count for one in functions if (count := branches(one)) > MOST} == {}

"""Calls that are made where no line of the program makes them: Python has run a signal handler between two lines."""

from __future__ import annotations

import ast
import dataclasses

from safelaunch import python_tree
from safelaunch.diagnosis.blame.variants import Place
from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.waitgraph.calls import stack_of
from safelaunch.model import Collective, Location, RankFacts

# What may run another function without naming it, or makes a frame of its own.
RUNS: tuple[type[ast.AST], ...] = (
    *(ast.Call, ast.Import, ast.ImportFrom, ast.Await, ast.Yield, ast.YieldFrom, ast.Attribute, ast.Subscript),
    *(ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.Starred, ast.Lambda),
)
# Modules whose functions call none of the program's without a frame of their own, where they are given no function.
OF_LIBRARIES = {"time", "math", "os", "random", "torch", "np", "numpy", "signal", "select"}
SET_A_FLAG = "only set a flag in the handler, and make the collective where all ranks have come to the same step"


@dataclasses.dataclass(frozen=True)
class Handled:
    """A rank that makes a call in a handler, of that name, which has interrupted the program at a line."""

    facts: RankFacts
    call: Collective
    handler: Location
    interrupted: Location


def in_handler(place: Place, lines: Lines) -> Handled | None:
    """Whether a rank waits in a call of a function that the line below it on its stack has not called."""
    facts, call = place
    stack = stack_of(facts, call.thread)
    if stack is None or stack.native or not call.thread:
        return None
    for inner, outer in zip(stack.frames, stack.frames[1:], strict=False):
        name = inner.function.rpartition(".")[2]
        text = lines[outer.file, outer.line].text if (outer.file, outer.line) in lines else ""
        plain = name.isidentifier() and not name.startswith("__") and name not in text
        if is_user_code(inner) and is_user_code(outer) and plain and _runs_nothing(text):
            return Handled(facts, call, inner, outer)
    return None


def _runs_nothing(text: str) -> bool:
    """Whether a statement is whole, and calls nothing but functions of libraries."""
    try:
        parsed = python_tree.module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    known = {id(inner) for node in ast.walk(parsed) if _is_of_library(node) for inner in ast.walk(_callee(node))}
    return bool(parsed.body) and not any(
        isinstance(node, RUNS) and id(node) not in known and not _is_of_library(node) for node in ast.walk(parsed)
    )


def _is_of_library(node: ast.AST) -> bool:
    """Whether it is a call such as `time.sleep(0.1 if first else 1)`."""
    root = _callee(node)
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(node, ast.Call) and isinstance(root, ast.Name) and root.id in OF_LIBRARIES


def _callee(node: ast.AST) -> ast.AST:
    return node.func if isinstance(node, ast.Call) else node

"""The syntax of a Python program, as far as it sets variables: what lint and launch both look for."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache

from safelaunch import python_tree

LONGEST = 1 << 20  # characters of a script that are looked at


def files(module: str) -> tuple[str, ...]:
    """Where the text of a module is, if it is below the working directory."""
    path = module.replace(".", os.sep)
    return (f"{path}.py", os.path.join(path, "__main__.py"))


@lru_cache(maxsize=1)
def parse(source_text: str) -> ast.Module | None:
    """The syntax tree; None for a text that is no Python."""
    try:
        return python_tree.module(source_text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def of_node(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    """Name, value and `weak` of each variable that a statement or a call sets."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_environ(target.value):
                yield target.slice, node.value, False
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    if dotted(node.func) in ("os.putenv", "putenv") and len(node.args) == 2:
        yield node.args[0], node.args[1], False
    if not isinstance(node.func, ast.Attribute) or not _is_environ(node.func.value):
        return
    if node.func.attr == "setdefault" and node.args:
        yield node.args[0], node.args[1] if len(node.args) > 1 else None, True
    elif node.func.attr == "update":
        for argument in node.args:
            if isinstance(argument, ast.Dict):
                for key, value in zip(argument.keys, argument.values, strict=True):
                    if key is not None:
                        yield key, value, False
        for keyword in node.keywords:
            if keyword.arg:
                yield ast.copy_location(ast.Constant(keyword.arg), keyword.value), keyword.value, False


def _is_environ(node: ast.expr) -> bool:
    return dotted(node) in ("os.environ", "environ")


def dotted(node: ast.expr) -> str:
    """`torch.cuda.set_device` of an expression of names; what comes before a call or an index is left out."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    words.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(words))

"""What `$((8 * 1024))` comes to, where it is made of numbers only."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from safelaunch import python_tree

_NUMBERS = re.compile(r"[0-9 \t+*/%()<-]{1,80}")
_MOST = 1 << 63  # the shell counts in 64 bits
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
    ast.LShift: lambda one, other: one << min(other, 64),
}


def value(text: str) -> str | None:
    """The number that an expression of numbers is; None for every other one, and where shells differ.

    A variable in it makes it unknown: in a loop it has another value each time.

    Args:
        text: what stands between `$((` and `))`.
    """
    if not _NUMBERS.fullmatch(text) or "**" in text or "//" in text:
        return None
    try:
        number = _of(python_tree.expression(text.strip()))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return str(number) if number is not None and 0 <= number < _MOST else None


def _of(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    operation = _OPERATIONS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if operation is None or not isinstance(node, ast.BinOp):
        return None
    one, other = _of(node.left), _of(node.right)
    if one is None or other is None or not (0 <= one < _MOST and 0 <= other < _MOST):
        return None  # a negative number is divided otherwise by Python
    return operation(one, other)

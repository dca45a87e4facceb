"""The syntax trees of texts that others have written, without a word of Python's about their style."""

from __future__ import annotations

import ast
import warnings


def module(text: str) -> ast.Module:
    """The tree of a program, or of a line of one. Python would warn of `"\\d"` and of `1if` on the user's terminal,
    as if they stood in a program that it runs.

    Raises:
        SyntaxError: it is no Python.
        ValueError: there is a NUL in it.
        RecursionError, MemoryError: it is nested too deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def expression(text: str) -> ast.expr:
    """The tree of an expression; errors are as for `module`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body

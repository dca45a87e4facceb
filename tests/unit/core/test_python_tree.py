"""Texts of others are read without a word on the terminal."""

from __future__ import annotations

import ast
import warnings

import pytest

from safelaunch import python_tree

# Python 3.12 and later warn of both on standard error; 3.10 and 3.11 where they are asked to.
STYLE = ('re.match("\\d", x)', "x = 1if y else 2")


@pytest.mark.parametrize("text", STYLE)
def test_python_does_not_warn_of_texts_of_others(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(python_tree.module(text), ast.Module)


def test_what_is_no_python_is_said() -> None:
    with pytest.raises(SyntaxError):
        python_tree.module("x = = 1")
    assert isinstance(python_tree.expression("1 + 2"), ast.BinOp)

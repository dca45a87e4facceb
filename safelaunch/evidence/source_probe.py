"""Runs in: a child process. Says what stands around lines of source files; a dead file system holds only this child.

On stdin a JSON list of [file, line], on stdout a line of JSON for each that could be read, as soon as it is known.
"""

from __future__ import annotations

import ast
import json
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

LIMIT = 4 << 20  # no program of this size was written by hand
WIDTH = 120
Loops = tuple[tuple[int, int], ...]
Conditions = tuple[tuple[int, str], ...]


def main() -> None:
    files: dict[str, tuple[str, ast.Module | None]] = {}
    for file, line in json.load(sys.stdin):
        if file not in files:
            files[file] = _read(file)
        source, module = files[file]
        lines = source.split("\n")  # as Python counts them: splitlines knows further ends
        if source and 0 < line <= len(lines):
            around = around_line(module, source, line) if module else ((), ())
            text = lines[line - 1].strip()[:WIDTH]
            record = {"file": file, "line": line, "text": text, "loops": around[0], "conditions": around[1]}
            print(json.dumps(record), flush=True)


def _read(file: str) -> tuple[str, ast.Module | None]:
    try:
        with tokenize.open(file) as stream:
            source = stream.read(LIMIT)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return "", None
    try:
        return source, ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source, None


def around_line(module: ast.Module, source: str, line: int) -> tuple[Loops, Conditions]:
    """The loops that the line is inside of, in its own function, and the conditions that it stands under."""
    loops: Loops = ()
    conditions: Conditions = ()
    block: list[Any] = module.body
    while True:
        node = next((node for node in block if _first(node) <= line <= _last(node)), None)
        if node is None:
            return loops, conditions
        name, block = _block(node, line)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and name == "body":
            loops, conditions = (), ()
        # The head of a loop is where it fetches its next item: a part of the loop. Its `else` is not.
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and name != "orelse":
            loops += ((node.lineno, _last(node.body[-1])),)
        if isinstance(node, (ast.If, ast.While)) and name:
            prefix = "else of: " if name == "orelse" else ""
            conditions += ((node.lineno, _text(source, node.test, prefix)),)
        if not name:
            return loops, conditions + tuple(_choices(node, source, line))


def _first(node: Any) -> int:
    if isinstance(node, ast.match_case):
        node = node.pattern
    return min(int(part.lineno) for part in (node, *getattr(node, "decorator_list", [])))


def _last(node: Any) -> int:
    return _last(node.body[-1]) if isinstance(node, ast.match_case) else int(node.end_lineno or node.lineno)


def _block(node: Any, line: int) -> tuple[str, list[Any]]:
    """The part of a compound statement that holds the line: its name and its statements (both empty: the head)."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and _first(block[0]) <= line <= _last(block[-1]):
            return name, block
    return "", []


def _choices(node: Any, source: str, line: int) -> Iterator[tuple[int, str]]:
    """The tests of conditional expressions, outermost first, in whose branches the line stands."""
    head = [
        child
        for name, field in ast.iter_fields(node)
        if name not in ("body", "handlers", "orelse", "finalbody", "cases") or not isinstance(field, list)
        for child in (field if isinstance(field, list) else [field])
        if isinstance(child, ast.AST)
    ]
    for top in head:
        for child in ast.walk(top):
            if not isinstance(child, ast.IfExp):
                continue
            taken, other = (_first(part) <= line <= _last(part) for part in (child.body, child.orelse))
            if taken or other:  # on one line both: which of them runs cannot be seen
                yield child.lineno, _text(source, child.test, "" if taken else "else of: ")


def _text(source: str, node: ast.expr, prefix: str) -> str:
    return (prefix + " ".join((ast.get_source_segment(source, node) or ast.unparse(node)).split()))[:WIDTH]


if __name__ == "__main__":
    main()

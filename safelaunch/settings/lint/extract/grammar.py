"""Shell scripts as trees, by tree-sitter's grammar of bash: loaded when the first script is read.

A tree has the position of each piece, and goes on behind an error. What the grammar cannot do is done before it, on a
copy of the text in which every byte keeps its place: templates and placeholders become words, and here documents become
blanks (it ends one at a line that only begins like its last, and reads none before `&`).

The grammars of other files were tried and left out. That of YAML drops the rest of a file behind its first error, which
templates and here documents in column one make of many job specs, and ends the process where a text is nested 300 deep.
Those of Dockerfiles and makefiles would save a few dozen lines, and read `x: export A=1` and `A={{ b }}` wrongly.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import resource
import signal
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from safelaunch import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node, Parser, Point

# The time of a text that is what its grammar is for is a tenth of it; some that are not would take hours.
SECONDS, SECONDS_PER_MIB = 0.3, 2.0
LARGE = 24 << 10  # bytes: from here on a text is read by a child first, which may end of it
PART = 0.75  # of the memory that is left, for that child: who reads the text after it needs a little more
LEAST_ROOM = 96 << 20  # bytes that have to be left: the grammar ends the process where it gets none
LOOKS = 8  # of the clock for one at the memory
CHUNK = 1 << 16
MOST_LOOKED_AT = 4096  # pieces of a tree, for the errors in it
PATIENCE = 16  # here documents without an end: each costs a look at all that follows

# <your-interface>, which people leave in a script for others to fill in. A shell would read it as two redirections.
PLACEHOLDER = r"<[A-Za-z](?:[A-Za-z0-9 _./:-]{0,60}[A-Za-z0-9])?>"
_MASKED = re.compile(
    rb"\$?\{\{(?:[^{}\n]|\{[^{}\n]*\})*\}\}|\{%[^\n]*?%\}|(?<![<0-9])"
    + PLACEHOLDER.encode()
    + rb"(?=[\s\"'/,.:=;)]|\Z)"
)
_QUOTES = re.compile(
    rb"""\\. | '[^']*' | "(?:[^"\\]|\\.)*" | (?<![^\s;(|&])\#[^\n]* | <<< | \n
       | <<(?P<tabs>-?)[ \t]*(?:'(?P<single>[^'\n]+)'|"(?P<double>[^"\n]+)"|(?P<escaped>\\?)(?P<name>[\w.!+-]+))""",
    re.VERBOSE | re.DOTALL,
)
_REMARK = re.compile(rb"`[ \t]*#[^`\n]*`")  # a comment within a command of several lines


class UnreadableError(Exception):
    """A text cannot be read as what it is; the message says why."""


class Document(NamedTuple):
    """A here document: its text, the line on which it starts (from 0), and whether the shell leaves it as it is."""

    text: str
    row: int
    quoted: bool


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def tree(data: bytes) -> Node:
    """The root of the tree of a script.

    Raises:
        UnreadableError: it takes much longer, or more memory, than any script of its size.
    """
    if len(data) > LARGE:
        _try(data)
    return _tree(data)


def _tree(data: bytes) -> Node:
    parser = _parser()
    until = time.process_time() + SECONDS + SECONDS_PER_MIB * len(data) / (1 << 20)
    why, looks = "", 0

    def piece(offset: int, _: Point) -> bytes:
        return data[offset : offset + CHUNK]

    def too_much(*_: object) -> bool:
        nonlocal why, looks
        looks += 1
        if time.process_time() > until:
            why = "it takes too long to read"
        elif looks % LOOKS == 0 and _room() < LEAST_ROOM:
            why = "it takes too much memory to read"
        return bool(why)

    try:
        return parser.parse(piece, progress_callback=too_much).root_node
    except ValueError:
        parser.reset()
        raise UnreadableError(why or "its grammar does not read it") from None


def _room() -> float:
    """The bytes of address space that this process may still take."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(OSError):  # no /proc
        return most - limits.in_use() if most >= 0 else float("inf")
    return float("inf")


def _try(data: bytes) -> None:
    """Read a text in a child with less memory than we have: the grammar is written in C, does not look whether it gets
    what it asks for, and ends its process where it does not."""
    pid = os.fork()
    if pid == 0:
        _end(data)
    status = None
    try:
        _, status = os.waitpid(pid, 0)
    finally:
        if status is None:  # the clock has rung
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise UnreadableError(f"its grammar ended with {signal.Signals(os.WTERMSIG(status)).name} in it")
    if os.WEXITSTATUS(status):
        raise UnreadableError("it takes too long, or too much memory, to read")


def _end(data: bytes) -> NoReturn:
    """The child: it leaves nothing, and says nothing but how it ends."""
    status = 1
    try:
        faulthandler.disable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        room = _room()
        with contextlib.suppress(OSError, ValueError):
            limits.take(int(PART * min(room, limits.ROOM)))
        _tree(data)
        status = 0
    finally:
        os._exit(status)


def torn(root: Node) -> Iterator[tuple[int, int]]:
    """The first and the last row (from 0) of each piece of a tree that the grammar could not place."""
    waiting = [root] if root.has_error else []
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            return
        node = waiting.pop()
        if node.is_error:
            yield node.start_point.row, node.end_point.row
        else:
            waiting += [child for child in node.children if child.has_error]


def masked(data: bytes) -> bytes:
    """A text in which templates and placeholders are words."""
    return _MASKED.sub(lambda match: b"X" * len(match[0]), data) if b"{" in data or b"<" in data else data


def shell(data: bytes) -> tuple[Node, dict[int, Document]]:
    """The tree of a script without its here documents, and these by the place of the word behind `<<`."""
    documents: dict[int, Document] = {}
    if b"<<" in data:
        data = _without_documents(data, documents)
    data = _REMARK.sub(lambda match: b" " * len(match[0]), data) if b"`" in data else data
    return tree(masked(data)), documents


def _without_documents(data: bytes, documents: dict[int, Document]) -> bytes:
    left = bytearray(data)
    waiting: list[re.Match[bytes]] = []
    pos = counted = row = 0
    patience = PATIENCE
    while patience and (match := _QUOTES.search(data, pos)):
        pos = match.end()
        if match["tabs"] is not None:
            waiting.append(match)
        elif match[0] == b"\n" and waiting:
            for found in waiting:
                name = found["single"] or found["double"] or found["name"]
                stop = re.compile(rb"(?m)^%s%s$" % (rb"\t*" if found["tabs"] else b"", re.escape(name))).search(
                    data, pos
                )
                if stop is None:
                    patience -= 1
                    continue
                row += data.count(b"\n", counted, pos)
                counted = pos
                operator = found.end("tabs")
                start = operator + len(data[operator : found.end()]) - len(data[operator : found.end()].lstrip())
                documents[start] = Document(
                    data[pos : stop.start()].decode("utf-8", "replace"),
                    row,
                    not found["name"] or bool(found["escaped"]),
                )
                left[found.start() : operator] = b"<".rjust(operator - found.start())
                left[pos : stop.end()] = re.sub(rb"[^\n]", b" ", data[pos : stop.end()])
                pos = stop.end()
            waiting.clear()
    return bytes(left)

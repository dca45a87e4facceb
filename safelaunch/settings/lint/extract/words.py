"""What a word of the shell says once its quotes are gone and its variables are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.settings.lint.extract import arithmetic, grammar

if TYPE_CHECKING:
    from tree_sitter import Node

# Stands for a piece that only a run can tell. No variable can hold it: the kernel ends one there.
UNKNOWN = "\0"

# What a variable holds (with UNKNOWN in it where that is not known), or None if the file never sets it. The second
# argument asks to be sure: a value that only one branch sets is then not known.
Lookup = Callable[[str, bool], "str | None"]
Assign = Callable[[str, str], None]

_DEPTH = 12  # of a default within a default
_GROWTH = 32768  # characters that variables may add to a word; X=$X$X, line after line, would double for ever
_SPECIAL = re.compile(r"""[\\'"`$<]""")
_PLACEHOLDER = re.compile(grammar.PLACEHOLDER)
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?:(:?[-=+?])(.*))?", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$(?:\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|\(|([A-Za-z_]\w*)|[0-9@*#?$!-])|`", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\`$])')
_BACKSLASH = re.compile(r"\\(.?)", re.DOTALL)
_BACKSLASH_QUOTED = re.compile(r'\\([$`"\\\n])')
_FILLED = re.compile(r"""'((?:[^'"\\$]|\\.)*\$[^'"\\]*)'""")
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TEMPLATE = re.compile(r"\{\{|\{%|<%|%>|(?<!\$)\{[A-Za-z_][A-Za-z0-9_]*\}")  # Jinja, ERB, str.format
_BLANK_SEPARATED = re.compile(
    r"""\n | (?:[^\s\\"']+ | \\[^\n] | "(?:[^"\\]|\\.)*" | '[^']*' | ["'] )+""", re.VERBOSE | re.DOTALL
)


class Token(NamedTuple):
    """One word as it stands in a file, quotes and all; the line and the column (from 0) where it starts, -1 where it
    stands in a text of its own."""

    raw: str
    line: int
    column: int = -1


def blank_separated(text: str, line: int = 1) -> Iterator[Token]:
    """The words of a text in which only quotes, backslashes and blanks mean something, as in `ENV` or `Environment=`.

    Args:
        text: the words, with \\n between lines.
        line: the line on which it starts.
    """
    for match in _BLANK_SEPARATED.finditer(text):
        if match[0] != "\n":
            yield Token(match[0], line)
        line += match[0].count("\n")


# What is no word, but holds words.
_HOLDERS = frozenset({
    "program", "array", "command", "declaration_command", "unset_command", "variable_assignments", "pipeline", "list",
    "if_statement", "for_statement", "while_statement", "case_statement", "function_definition", "subshell", "comment",
    "compound_statement", "redirected_statement", "negated_command", "do_group", "test_command", "ERROR",
    "file_redirect", "herestring_redirect", "command_name",
})  # fmt: skip


def below(node: Node, wanted: Callable[[Node], bool]) -> Iterator[Node]:
    """The outermost nodes that are wanted, in order."""
    todo = [node]
    while todo:
        this = todo.pop()
        if wanted(this):
            yield this
        else:
            todo += reversed(this.children)


def gathered(nodes: Iterable[Node], source: bytes, line: int) -> list[Token]:
    """The words that nodes are; what touches is one.

    Args:
        nodes: in order.
        source: the text in which they stand.
        line: the line on which that text starts.
    """
    found: list[Token] = []
    start = end = -1
    for node in nodes:
        if node.end_byte == node.start_byte:
            continue
        if node.start_byte != end:
            start = node.start_byte
            before = source[source.rfind(b"\n", 0, start) + 1 : start]
            found.append(Token("", line + node.start_point.row, len(before.decode("utf-8", "replace"))))
        end = node.end_byte
        found[-1] = found[-1]._replace(raw=source[start:end].decode("utf-8", "replace"))
    return found


def words_of(text: str, line: int) -> list[Token]:
    """The words of a text that holds those of a command or of an array, whatever operators stand between them.

    Args:
        text: the words.
        line: the line on which it starts.
    """
    source = b"x " + text.encode("utf-8", "replace")
    try:
        root, _ = grammar.shell(source)
    except grammar.UnreadableError:
        return []
    nodes = below(root, lambda node: node.is_named and node.type not in _HOLDERS)
    return [word._replace(column=-1) for word in gathered(nodes, source, line)[1:]]


def outside(_name: str, _certain: bool) -> str | None:
    """The lookup of a file that sets nothing itself."""
    return None


def expand(raw: str, lookup: Lookup = outside, assign: Assign | None = None) -> str:
    """The text of a word, with UNKNOWN for each piece that cannot be told.

    `${X:-default}` is the default where the file does not set X: that is the value when nothing else is set.

    Args:
        raw: the word as it stands in the script.
        lookup: the variables that the script has set so far.
        assign: told of each `${X:=default}` that takes effect.
    """
    if _TEMPLATE.search(raw):
        return UNKNOWN
    return _Words(raw, lookup, assign, 0).text() if _SPECIAL.search(raw) else raw


def known(text: str) -> str | None:
    """The text, or None where a piece of it is not known."""
    return None if UNKNOWN in text else text


class _Words:
    """The reading of one word, or of several with blanks between them."""

    def __init__(self, raw: str, lookup: Lookup, assign: Assign | None, depth: int) -> None:
        self.lookup, self.assign, self.depth = lookup, assign, depth
        self.source = b"x " + raw.encode("utf-8", "replace")
        self.room = len(raw) + _GROWTH

    def text(self) -> str:
        try:
            root = grammar.tree(grammar.masked(self.source))
        except grammar.UnreadableError:
            return UNKNOWN
        parts: list[str] = []
        self._pieces(root, 2, False, parts)
        return UNKNOWN if self.room < 0 or self.depth > _DEPTH else "".join(parts)

    def script(self) -> str:
        """The same for a word that holds shell text, with all that this shell will expand as it is."""
        try:
            root = grammar.tree(grammar.masked(self.source))
        except grammar.UnreadableError:
            return ""
        parts: list[str] = []
        self._texts(root, 2, parts)
        return "".join(parts)

    def _slice(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8", "replace")

    def _pieces(self, node: Node, start: int, quoted: bool, parts: list[str]) -> None:
        """What a node says: its children, and the text between them that the grammar passes over."""
        at = start
        for child in node.children:
            if child.end_byte <= at:
                continue
            parts.append(self._literal(self._slice(at, child.start_byte), quoted))
            self._piece(child, max(at, child.start_byte), quoted, parts)
            at = child.end_byte
        parts.append(self._literal(self._slice(at, node.end_byte), quoted))

    def _piece(self, node: Node, start: int, quoted: bool, parts: list[str]) -> None:
        kind = node.type
        if kind == "string" or kind == '"':
            inner = [child for child in node.children if child.type != '"']
            if kind == "string" and inner:
                parts.append(self._literal(self._slice(start + 1, inner[0].start_byte), True))
                self._string(node, inner, parts)
            elif kind == "string":
                parts.append(self._literal(self._slice(start + 1, node.end_byte - 1), True))
        elif kind == "raw_string":
            parts.append(self._slice(start + 1, node.end_byte - 1))
        elif kind == "ansi_c_string":
            parts.append(_ESCAPE.sub(_unescape, self._slice(start + 2, node.end_byte - 1)))
        elif kind in ("simple_expansion", "expansion"):
            blanks, _, reference = self._slice(start, node.end_byte).partition("$")
            parts.append(blanks)
            value = self._parameter(reference[1:-1] if reference.startswith("{") else reference)
            self.room -= len(value)
            parts.append(value)
        elif kind == "arithmetic_expansion":
            blanks, _, formula = self._slice(start, node.end_byte).partition("$((")
            parts.append(blanks + (arithmetic.value(formula.removesuffix("))")) or UNKNOWN))
        elif kind in ("command_substitution", "process_substitution"):
            parts.append(UNKNOWN)
        elif kind == "$" and self.source[node.end_byte : node.end_byte + 1] == b'"':
            pass  # $"..." is translated
        elif node.child_count and self.room >= 0:
            self._pieces(node, start, quoted, parts)
        else:
            parts.append(self._literal(self._slice(start, node.end_byte), quoted))

    def _string(self, node: Node, inner: list[Node], parts: list[str]) -> None:
        at = inner[0].start_byte
        for child in inner:
            parts.append(self._literal(self._slice(at, child.start_byte), True))
            self._piece(child, child.start_byte, True, parts)
            at = child.end_byte
        closed = node.children[-1].type == '"' and not node.children[-1].is_missing
        parts.append(self._literal(self._slice(at, node.end_byte - closed), True))

    def _literal(self, text: str, quoted: bool) -> str:
        if quoted:
            return _BACKSLASH_QUOTED.sub(lambda match: "" if match[1] == "\n" else match[1], text)
        text = _PLACEHOLDER.sub(UNKNOWN, text) if "<" in text else text
        text = _BACKSLASH.sub(lambda match: "" if match[1] == "\n" else match[1] or "\\", text)
        return UNKNOWN if "`" in text else text

    def _parameter(self, inner: str) -> str:
        return parameter(inner, self.lookup, self.assign, self.depth)

    def _texts(self, node: Node, start: int, parts: list[str]) -> None:
        at = start
        for child in node.children:
            if child.end_byte <= at:
                continue
            parts.append(self._slice(at, child.start_byte))
            text = self._slice(max(at, child.start_byte), child.end_byte)
            if child.type == "raw_string":
                parts.append(text[1:-1])
            elif child.type == "string":
                parts.append(_ESCAPED.sub(r"\1", opened(text[1:].removesuffix('"'))))
            elif child.type == "ansi_c_string":
                parts.append(_ESCAPE.sub(_unescape, text[2:-1]))
            elif child.child_count and child.type not in ("expansion", "command_substitution"):
                self._texts(child, max(at, child.start_byte), parts)
            else:
                parts.append(re.sub(r"\\([^\n])", r"\1", text))
            at = child.end_byte
        parts.append(self._slice(at, node.end_byte))


def parameter(inner: str, lookup: Lookup, assign: Assign | None = None, depth: int = 0) -> str:
    """The value of `${inner}`, with UNKNOWN where it cannot be told."""
    match = _PARAMETER.fullmatch(inner)
    if match is None or depth > _DEPTH:
        return UNKNOWN  # ${X%.*}, ${X[0]}, ${!X}, ${#X}
    name, operator, word = match.groups()
    value = lookup(name, bool(operator) and operator[-1] != "?")
    if operator is None or operator in (":?", "?"):
        return UNKNOWN if value is None else value
    if value is not None and (value == UNKNOWN or (value == "" and ":" not in operator)):
        return value
    if operator[-1] == "+":
        if value is None:
            return UNKNOWN
        return _Words(word, lookup, assign, depth + 1).text() if value else ""
    if value:
        return value
    if _TEMPLATE.search(word):
        return UNKNOWN
    default = _Words(word, lookup, assign, depth + 1).text() if _SPECIAL.search(word) else word
    if operator[-1] == "=" and assign is not None:
        assign(name, default)
    return default


def _unescape(match: re.Match[str]) -> str:
    for digits, base in zip(match.groups()[:3], (16, 16, 8), strict=True):
        if digits:
            return chr(int(digits, base))
    return _ESCAPES.get(match[4], match[4])


def opened(text: str) -> str:
    """A script that another shell has filled in: single quotes in it did not keep that shell from `'$X'`."""
    return _FILLED.sub(r'"\1"', text)


def script(raw: str) -> str:
    """A word that holds shell text (`bash -c WORD`), without its outer quotes and with all its line breaks."""
    return _Words(raw, outside, None, 0).script() if _SPECIAL.search(raw) else raw


def interpolate(text: str, lookup: Lookup = outside) -> str:
    """A text in which only variables are replaced, as a job spec has it; see `expand`."""
    if _TEMPLATE.search(text):
        return UNKNOWN

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[1] if match[1] in '$`"\\' else match[0]
        inner = match[2] or match[3]
        return parameter(inner, lookup) if inner else UNKNOWN

    if "$" not in text:
        return text
    return _REFERENCE.sub(value, text)


def quote(text: str) -> str:
    """A word of the shell that says this text, with its line breaks where they are."""
    return "'" + text.replace("'", "'\\''") + "'"

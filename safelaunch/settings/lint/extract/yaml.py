"""A reader of YAML by lines and indents, for job specs: it keeps lines and goes on where a strict parser gives up.

Templates (Helm, Jinja) and here documents that end in column one make most job specs invalid as they stand. Anchors,
tags and aliases are passed over.
"""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    bracketed,
    double_quoted,
    plain,
    single_quoted,
)

_KEY = re.compile(
    r"""
      (?: "((?:[^"\\]|\\.)*)" | '((?:[^']|'')*)' | ((?:[^\s"'\[\]{}\#&*!|>%@`,?-]|-(?=\S))(?:[^:]|:(?=\S))*) )
      [ \t]* : (?=[ \t]|\Z)
    """,
    re.VERBOSE,
)
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:[ \t]+|\Z))+")
_BLOCK = re.compile(r"([|>])(?:[+-]?([1-9])?[+-]?)[ \t]*(?:#.*)?\Z")
_COMMENT = re.compile(r"(?<![ \t])[ \t]+#.*\Z")  # tried once for each run of blanks
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^']|'')*'", re.DOTALL)
_MARK = re.compile(r"(?m)^(?=---(?:\s|\Z))")  # where the next document starts
_TEMPLATE = re.compile(r"\{%.*%\}\s*|\{\{-?\s*(?:if|else|end|range|with|define|template|include|/\*)\b.*\}\}\s*")
_DEEPEST = 100
_PATIENCE = 16


def parse(text: str, line: int = 1) -> list[Node]:
    """The nodes of all documents of a YAML text.

    Args:
        text: the text, with \\n between its lines.
        line: the line on which it starts.
    """
    nodes: list[Node] = []
    for document in _MARK.split(text):
        reader = _Reader(document, line)
        line += document.count("\n")
        while reader.peek() is not None:
            before = (reader.at, reader.column)
            nodes.append(reader.node(0))
            if (reader.at, reader.column) == before:
                reader.skip()
    return nodes


class _Reader:
    """The lines of a text and the place in them. `column` is where the rest of a line starts after `- `."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.first = line
        self.at = self.column = 0
        self.failures = 0
        self.starts: list[int] = []
        start = 0
        for each in self.lines:
            self.starts.append(start)
            start += len(each) + 1

    @property
    def number(self) -> int:
        return self.first + self.at

    def skip(self) -> None:
        self.at, self.column = self.at + 1, 0

    def peek(self) -> tuple[int, str] | None:
        """The indent and the text of the next line that says something; the reader stands on it then."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            rest = line[self.column :].lstrip(" \t")
            if rest and rest[0] != "#" and not rest.startswith(("{{", "{%", "---", "%YAML")) and rest != "...":
                return len(line) - len(rest), rest.rstrip()
            self.skip()
        return None

    def node(self, depth: int) -> Node:
        """The node that starts on the next line."""
        found = self.peek()
        if found is None or depth > _DEEPEST:
            line = self.number
            self.skip()
            return Scalar(None, line, null=True)
        indent, rest = found
        if rest == "-" or rest.startswith(("- ", "-\t")):
            return self._sequence(indent, depth)
        if _KEY.match(rest):
            return self._mapping(indent, depth)
        return self._value(indent, indent - 1)

    def _sequence(self, indent: int, depth: int) -> Sequence:
        result = Sequence(self.number)
        while (found := self.peek()) is not None:
            here, rest = found
            if here < indent or (here == indent and rest != "-" and not rest.startswith(("- ", "-\t"))):
                break
            if here > indent:
                result.items.append(self._orphan(depth))
                continue
            inner = rest[1:].lstrip(" \t")
            if inner and inner[0] != "#":
                result.items.append(self._after(len(rest) - len(inner) + indent, indent, depth))
            else:
                line = self.number
                self.skip()
                below = self.peek()
                deeper = below is not None and below[0] > indent
                result.items.append(self.node(depth + 1) if deeper else Scalar(None, line, null=True))
        return result

    def _mapping(self, indent: int, depth: int) -> Mapping:
        result = Mapping(self.number)
        while (found := self.peek()) is not None:
            here, rest = found
            if here < indent or (here == indent and (rest == "-" or rest.startswith("- "))):
                break
            if here > indent:
                result.entries.append(("", self.number, self._orphan(depth)))
                continue
            match = _KEY.match(rest)
            if match is None:
                self.skip()
                continue
            key = next((group for group in match.groups() if group is not None), "").strip()
            line = self.number
            inner = rest[match.end() :].lstrip(" \t")
            properties = _PROPERTIES.match(inner)
            if inner and inner[0] != "#" and not (properties and properties.end() == len(inner)):
                value = self._after(len(rest) - len(inner) + indent, indent, depth)
            else:
                self.skip()
                below = self.peek()
                deeper = below is not None and (
                    below[0] > indent or (below[0] == indent and (below[1] == "-" or below[1].startswith("- ")))
                )
                value = self.node(depth + 1) if deeper else Scalar(None, line, null=True)
            result.entries.append((key, line, value))
        return result

    def _orphan(self, depth: int) -> Node:
        before = (self.at, self.column)
        node = self.node(depth + 1)
        if (self.at, self.column) == before:
            self.skip()
        return node

    def _after(self, column: int, parent: int, depth: int) -> Node:
        """What follows `key: ` or `- ` on the line."""
        line = self.lines[self.at]
        properties = _PROPERTIES.match(line, column)
        if properties and properties.end() < len(line):
            column = properties.end()
            if line[properties.start()] == "!" and not line.startswith("!!", properties.start()):
                value = self._after_properties(column, parent, depth)
                return Scalar(None, value.line) if isinstance(value, Scalar) else value  # !Ref, !Sub
        return self._after_properties(column, parent, depth)

    def _after_properties(self, column: int, parent: int, depth: int) -> Node:
        rest = self.lines[self.at][column:]
        dash = self.lines[self.at][self.column : column].strip() == "-"
        if dash and (rest.startswith(("- ", "-\t")) or _KEY.match(rest)):
            self.column = column
            return self.node(depth + 1)
        return self._value(column, parent)

    def _value(self, column: int, parent: int) -> Node:
        """A scalar or a collection in brackets that starts at a column; it goes on below, deeper than `parent`."""
        line, number = self.lines[self.at], self.number
        rest = line[column:].rstrip()
        block = _BLOCK.match(rest)
        if block:
            self.skip()
            return self._block(block[1], int(block[2] or 0), parent)
        if rest[:1] in ("[", "{", '"', "'") and not rest.startswith("{{") and self.failures < _PATIENCE:
            start = self.starts[self.at] + column
            if rest[0] in "[{":
                found = bracketed(self.text, start, number)
                node, end = found if found else (None, -1)
            else:
                match = (_DOUBLE if rest[0] == '"' else _SINGLE).match(self.text, start)
                end = match.end() if match else -1
                quoted = double_quoted if rest[0] == '"' else single_quoted
                node = quoted(match[0], number) if match else None
            if node is not None:
                self.at += self.text.count("\n", start, end)
                self.skip()
                return node
            self.failures += 1
        self.skip()
        if rest.startswith(("*", "{{", "${{")):
            return Scalar(None, number)
        parts = [_COMMENT.sub("", rest)]
        while self.at < len(self.lines) and len(parts[-1]) == len(rest):
            below = self.lines[self.at]
            rest = below.strip()
            if not rest or len(below) - len(below.lstrip()) <= parent or rest[0] == "#" or _KEY.match(rest):
                break
            parts.append(_COMMENT.sub("", rest))
            self.skip()
        return plain(" ".join(parts), number, " \\\n".join(part.removesuffix("\\") for part in parts))

    def _block(self, style: str, width: int, parent: int) -> Scalar:
        number = self.number
        base = max(parent, 0) + width if width else -1
        taken: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.lstrip(" ")
            if bare.strip():
                indent = len(line) - len(bare)
                if indent <= parent:
                    if _TEMPLATE.fullmatch(bare) is None:
                        break
                    taken.append("")  # a line of Jinja or Helm may stand anywhere, and is no text
                    self.at += 1
                    continue
                base = indent if base < 0 else base
            taken.append(line)
            self.at += 1
        lines = [line[base:] if len(line) - len(line.lstrip(" ")) >= base else line.lstrip(" ") for line in taken]
        if style == "|":
            text = source = "\n".join(lines)
        else:
            text = re.sub(r"(?<!\n)\n(?!\n)", " ", "\n".join(lines).strip())
            source = "\n".join(
                f"{line} \\" if line.strip() and not line.endswith("\\") and following.strip() else line
                for line, following in zip(lines, [*lines[1:], ""], strict=False)  # a block may be empty
            )
        return Scalar(text.rstrip("\n"), number, source, block=True)

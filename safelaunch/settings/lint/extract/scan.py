"""Where a quoted or bracketed piece of shell text ends. Linear in the text, whatever it holds."""

from __future__ import annotations

import re

# <your-interface>, which people leave in a script for others to fill in. A shell would read it as two redirections.
PLACEHOLDER = r"<[A-Za-z](?:[A-Za-z0-9 _./:-]{0,60}[A-Za-z0-9])?>"

# What may change the reading, inside each kind of bracket; everything between is skipped in one step.
_INTEREST = {
    ")": re.compile(r"""[\\'"`()#\n]|\$[{'"]|<<-?(?!<)"""),
    "}": re.compile(r"""[\\'"`}]|\$[({'"]"""),
    '"}': re.compile(r"""[\\"`}]|\$[({]"""),  # within double quotes a ' is itself
    '"': re.compile(r"""[\\"`]|\$[({]"""),
    "`": re.compile(r"[\\`]"),
}
_ANSI_END = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_DELIMITER = re.compile(r"[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z0-9_.!+-]+))")

# After so many pieces that never end the text is no shell; each of them cost a look at all that follows.
_PATIENCE = 16


class Scanner:
    """Finds ends in one text.

    Args:
        text: the script.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.failures = 0

    def end(self, pos: int, closer: str) -> int:
        """The position after the `closer` of a piece that is open at `pos`.

        A piece that is never closed ends with its line: an apostrophe too many costs one line, not the file.

        Args:
            pos: the position after the opening bracket or quote.
            closer: `)`, `}`, `"`, "`", `'`, or `$'` for a string of C.
        """
        if self.failures < _PATIENCE:
            found = self._find(pos, closer)
            if found >= 0:
                return found
            self.failures += 1
        line_end = self.text.find("\n", pos)
        return len(self.text) if line_end < 0 else line_end

    def _find(self, pos: int, closer: str) -> int:
        text = self.text
        if closer == "'":
            return text.find("'", pos) + 1 or -1
        if closer == "$'":
            match = _ANSI_END.match(text, pos)
            return match.end() if match else -1
        stack = [closer]
        documents: list[tuple[str, bool]] = []
        while stack:
            top = stack[-1]
            match = _INTEREST[top].search(text, pos)
            if match is None:
                return -1
            piece, pos = match[0], match.end()
            if piece == "\\":
                pos += 1
            elif piece == top[-1]:
                stack.pop()
            elif piece in ("(", "$("):
                stack.append(")")
            elif piece in ('"', "`"):
                stack.append(piece)
            elif piece == '$"':
                stack.append('"')
            elif piece == "${":
                stack.append('"}' if top[0] == '"' else "}")
            elif piece in ("'", "$'"):
                pos = self._find(pos, piece)
                if pos < 0:
                    return -1
            elif piece == "#" and text[match.start() - 1] in " \t\n(;|&":
                newline = text.find("\n", pos)
                if newline < 0:
                    return -1
                pos = newline
            elif piece[:2] == "<<":
                delimiter = _DELIMITER.match(text, pos)
                if delimiter:
                    documents.append((delimiter[1] or delimiter[2] or delimiter[3], piece == "<<-"))
                    pos = delimiter.end()
            elif piece == "\n" and documents:
                for name, tabs in documents:
                    pos = max(pos, self.document_end(pos, name, tabs)[1])
                documents = []
        return pos

    def document_end(self, pos: int, delimiter: str, tabs: bool) -> tuple[int, int]:
        """Where a here document that starts at `pos` ends, and the position after its last line; (-1, -1) if never.

        Args:
            pos: the start of its first line.
            delimiter: the line that ends it.
            tabs: tabs may stand before that line (`<<-`).
        """
        text, size = self.text, len(self.text)
        if self.failures >= _PATIENCE:
            return -1, -1
        while pos < size:
            newline = text.find("\n", pos)
            stop = size if newline < 0 else newline
            if stop - pos >= len(delimiter):
                line = text[pos:stop]
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    return pos, min(stop + 1, size)
            pos = stop + 1
        self.failures += 1
        return -1, -1

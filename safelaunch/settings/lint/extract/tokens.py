"""The words and operators of a shell script, each with its line.

`shlex` cannot serve here: it drops the line on which a word starts, reads `a#b` as a comment, splits `$(a b)`, knows
no here documents, raises at an apostrophe too many, and goes character by character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from safelaunch.settings.lint.extract.scan import PLACEHOLDER, Scanner


class Token(NamedTuple):
    """One token. `raw` is the text as it stands in the script, quotes and all; `line` is where it starts.

    `kind` is `word`, `op`, `newline`, `comment` (only those that a scheduler reads) or `document` (the body of a here
    document, which comes before the newline of the command that reads it; `quoted` when nothing in it is expanded).
    `glued` is true when no blank stands before it.
    """

    kind: Literal["word", "op", "newline", "comment", "document"]
    raw: str
    line: int
    glued: bool = False
    quoted: bool = False


_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|<<<|<<-|<<|&>>|&>|<&|>&|<>|>>|>\||[|&;<>()]")
_PLAIN = re.compile(r"""[^ \t\r\f\v\n\\'"`$|&;<>()]+""")
_SIMPLE = re.compile(r"""([ \t]*)([^ \t\r\f\v\n\\'"`$|&;<>()#][^ \t\r\f\v\n\\'"`$|&;<>()]*)(?=[ \t\n])""")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=\Z")
_PLACEHOLDER = re.compile(PLACEHOLDER + r"(?=[\s\"'/,.:=]|\Z)")
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|COBALT|PJM|FLUX:|flux:|\$)[ \t]")
_SIMPLE_DELIMITER = re.compile(r"[\\'\"]")


def tokens(text: str, line: int = 1) -> Iterator[Token]:
    """All tokens of a script, in order.

    Args:
        text: the script, with \\n between its lines.
        line: the line on which it starts.
    """
    scanner = Scanner(text)
    pos, size = 0, len(text)
    glued = False
    waiting: list[bool] = []  # the here documents of this line: whether tabs are stripped
    delimiters: list[str] = []
    while pos < size:
        simple = _SIMPLE.match(text, pos)
        if simple and len(delimiters) == len(waiting):  # most words
            yield Token("word", simple[2], line, glued and not simple[1])
            pos = simple.end()
            glued = True
            continue
        blank = _BLANK.match(text, pos)
        if blank:
            line += blank[0].count("\n")
            pos = blank.end()
            glued = False
            continue
        char = text[pos]
        if char == "\n":
            pos += 1
            for tabs, raw in zip(waiting, delimiters, strict=False):
                start, end = scanner.document_end(pos, _SIMPLE_DELIMITER.sub("", raw), tabs)
                if start >= 0:
                    body = text[pos:start]
                    yield Token("document", body, line + 1, quoted=bool(_SIMPLE_DELIMITER.search(raw)))
                    line += text.count("\n", pos, end)
                    pos = end
                else:
                    yield Token("document", "", line + 1)
            yield Token("newline", "\n", line)
            line += 1
            waiting, delimiters, glued = [], [], False
        elif char == "#":
            end = text.find("\n", pos)
            end = size if end < 0 else end
            if _DIRECTIVE.match(text, pos):
                yield Token("comment", text[pos:end], line)
            pos = end
        elif char == "(" and text.startswith("((", pos):
            end = scanner.end(pos + 1, ")")
            if text[end - 2 : end] == "))":  # arithmetic, which sets nothing for a program
                raw, pos = text[pos:end], end
                yield Token("word", raw, line, glued)
                line += raw.count("\n")
            else:
                yield Token("op", "(", line, glued)
                pos += 1
            glued = True
        elif (
            char in "|&;<>()"
            and text[pos : pos + 2] not in ("<(", ">(")
            and not (char == "<" and _PLACEHOLDER.match(text, pos))
        ):
            operator = _OPERATOR.match(text, pos)
            raw = operator[0] if operator else char
            yield Token("op", raw, line, glued)
            pos += len(raw)
            if raw in ("<<", "<<-"):
                waiting.append(raw == "<<-")
            glued = True
        else:
            end = _word_end(scanner, pos)
            raw = text[pos:end]
            yield Token("word", raw, line, glued)
            if len(delimiters) < len(waiting):
                delimiters.append(raw)
            line += raw.count("\n")
            pos = end
            glued = True
    yield Token("newline", "\n", line)


def _word_end(scanner: Scanner, start: int) -> int:
    text, size = scanner.text, len(scanner.text)
    pos = start
    while pos < size:
        plain = _PLAIN.match(text, pos)
        if plain:
            pos = plain.end()
            continue
        char = text[pos]
        if char == "\\":
            pos += 2
        elif char in "'\"`":
            pos = scanner.end(pos + 1, char)
        elif char == "$":
            following = text[pos + 1 : pos + 2]
            if following in ("(", "{"):
                pos = scanner.end(pos + 2, ")" if following == "(" else "}")
            elif following in ("'", '"'):
                pos = scanner.end(pos + 2, "$'" if following == "'" else '"')
            else:
                pos += 1
        elif char == "(" and pos > start and (text[pos - 1] in "@?*+!" or _ARRAY.match(text, start, pos)):
            pos = scanner.end(pos + 1, ")")  # an array, or a pattern of names
        elif char in "<>" and pos == start and text.startswith("(", pos + 1):
            pos = scanner.end(pos + 2, ")")
        elif char == "<" and (placeholder := _PLACEHOLDER.match(text, pos)):
            pos = placeholder.end()
        else:
            break
    return max(pos, start + 1) if pos <= size else size


_BLANK_SEPARATED = re.compile(
    r"""\n | (?:[^\s\\"']+ | \\[^\n] | "(?:[^"\\]|\\.)*" | '[^']*' | ["'] )+""", re.VERBOSE | re.DOTALL
)


def blank_separated(text: str, line: int = 1) -> Iterator[Token]:
    """The words of a text in which only quotes, backslashes and blanks mean something, as in `ENV` or `Environment=`.

    Args:
        text: the words, with \\n between lines.
        line: the line on which it starts.
    """
    for match in _BLANK_SEPARATED.finditer(text):
        if match[0] != "\n":
            yield Token("word", match[0], line)
        line += match[0].count("\n")

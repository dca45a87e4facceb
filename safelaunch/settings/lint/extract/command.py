"""One simple command of a shell script: what it sets, and the scripts that stand in its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safelaunch.settings.lint.extract import tools
from safelaunch.settings.lint.extract.options import Pair, Script, from_words
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.words import UNKNOWN, Token, expand, quote, script, words_of

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(
    r"""("?)\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(\[[@*]\])?(?::?-[^${}"]*)?\}|([A-Za-z_][A-Za-z0-9_]*))("?)"""
)
_MOST_WORDS = 512  # that variables may add to a command


class Reference(NamedTuple):
    """A word that is nothing but a variable."""

    name: str
    splits: bool


def run(words: Sequence[Token], scope: Scope) -> Iterator[Script]:
    """Note what a command sets, and give the scripts that stand in it, at the moment when they would run.

    Args:
        words: the command's words, prefix assignments first.
        scope: takes its variables.
    """
    first = next((word for word in words if not _ASSIGNMENT.match(word.raw)), None)
    if first is not None and _reference(first):
        words = [_prefix(word, scope) for word in spliced(words, scope)]
    before = 0
    while before < len(words) and _ASSIGNMENT.match(words[before].raw):
        before += 1
    if before == len(words):
        for word in words:
            _assign(word, scope)
        return
    rest = spliced(words[before:], scope)
    if not rest:
        return
    name = expand(rest[0].raw, scope.lookup).rsplit("/", 1)[-1]
    builtin = bool(tools.BUILTINS.fullmatch(name))
    if not builtin:
        for word in words[:before]:
            match = _ASSIGNMENT.match(word.raw)
            if match and not match[2]:
                value = _value(word.raw[match.end() :], scope, word.line)
                scope.found.add(match[1], _appended(match[1], match[3], value, scope), word.line, path=scope.path)
        if name not in (".", "source", "module", "eval"):
            scope.found.programs += 1
    if name == "eval":
        yield from _evaluated(rest[1:], scope)
    elif builtin:
        _builtin(name, rest[1:], scope)
    else:
        for item in from_words(rest, scope):
            if isinstance(item, Pair):
                scope.found.add(item.name, item.value, item.line, path=scope.path)
            elif item.word is not None:
                yield Script(*_text(item.word, scope), item.kind)
            else:
                yield item


def _evaluated(words: Sequence[Token], scope: Scope) -> Iterator[Script]:
    """What `eval` runs: its words joined, with the line breaks that stand between them in the file."""
    text, first, line = "", 0, 0
    for word in words:
        piece, at = _text(word, scope)
        first, line = first or at, line or at
        text += " \\\n" * (at - line) + " " + piece
        line = max(line, at) + piece.count("\n")
    if text:
        yield Script(text, first, "eval")


def _prefix(word: Token, scope: Scope) -> Token:
    """bash -c "$SETTINGS python x.py", where SETTINGS is X=1: the shell that is started sees the assignment."""
    reference = _reference(word)
    value = scope.lookup(reference.name, False) if reference else None
    if value is None or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_./:,^=+-]*", value):
        return word
    return word._replace(raw=value, line=scope.candidates(reference.name)[-1].line if reference else word.line)


# ------------------------------------------------------------------------------------------ assignments


def _assign(word: Token, scope: Scope, local: bool = False) -> None:
    match = _ASSIGNMENT.match(word.raw)
    if match is None or match[2]:
        return
    name, raw = match[1], word.raw[match.end() :]
    inner = _several(raw, word.line, scope)
    if match[3]:
        inner = (*_pieces(name, scope), *inner)[:_MOST_WORDS]
    value = UNKNOWN if raw.startswith("(") else _appended(name, match[3], _value(raw, scope, word.line), scope)
    scope.assign(name, value, word.line, raw, inner, local or raw.startswith("("))


def _value(raw: str, scope: Scope, line: int) -> str:
    return expand(raw, scope.lookup, lambda name, value: scope.assign(name, value, line))


def _appended(name: str, plus: str, value: str, scope: Scope) -> str:
    if not plus:
        return value
    old = scope.lookup(name, True)
    return UNKNOWN if old is None else old + value


def _several(raw: str, line: int, scope: Scope) -> tuple[Token, ...]:
    """The words of an array, or of a text that holds several."""
    if raw.startswith("("):
        inner = raw[1:].removesuffix(")")
    elif " " in raw or "\n" in raw or "\t" in raw:
        inner = script(raw)
    else:
        return ()
    words = spliced(words_of(inner, line), scope)
    return tuple(words[:_MOST_WORDS]) if len(words) > 1 or raw.startswith("(") else ()


def _reference(word: Token) -> Reference | None:
    match = _REFERENCE.fullmatch(word.raw) if "$" in word.raw else None
    if match is None:
        return None
    return Reference(match[2] or match[4], not match[1] or bool(match[3]))


def _pieces(name: str, scope: Scope) -> list[Token]:
    return [piece for candidate in scope.candidates(name) for piece in candidate.words]


def _split(name: str, scope: Scope) -> list[Token]:
    """The words of a value that is known as a whole only: DOCKER=${DOCKER:-"sudo docker"}."""
    candidates = scope.candidates(name)
    value = scope.lookup(name, False) or ""
    return [Token(quote(word), candidates[-1].line) for word in value.split()] if " " in value else []


def spliced(words: Sequence[Token], scope: Scope) -> list[Token]:
    """The words, with $ARGS and "${ARGS[@]}" replaced by the words that these variables hold."""
    result: list[Token] = []
    room = _MOST_WORDS
    for word in words:
        reference = _reference(word)
        pieces = (
            (_pieces(reference.name, scope) or _split(reference.name, scope))[:room]
            if reference and reference.splits
            else []
        )
        room -= len(pieces)
        result += pieces or [word]
    return result


def _text(word: Token, scope: Scope) -> tuple[str, int]:
    """The shell text that a word holds, and its line; `bash -c "$COMMAND"` is where COMMAND was set."""
    reference = _reference(word)
    if reference:
        texts = [found for found in scope.candidates(reference.name) if found.raw and not found.raw.startswith("(")]
        if texts:
            return script(texts[-1].raw), texts[-1].line
    return script(word.raw), word.line


# --------------------------------------------------------------------------------------------- builtins


def _builtin(name: str, words: Sequence[Token], scope: Scope) -> None:
    if name in ("export", "declare", "typeset", "readonly", "local", "integer", "float"):
        _declare(name, words, scope)
    elif name in ("unset", "unsetenv"):
        for word in words:
            if not word.raw.startswith("-"):
                scope.unset(word.raw)
    elif name == "setenv" and words:
        value = expand(words[1].raw, scope.lookup) if len(words) > 1 else ""
        variable = expand(words[0].raw, scope.lookup)
        scope.mark(variable)
        scope.assign(variable, value, words[0].line, words[1].raw if len(words) > 1 else "")
    elif name == "set":
        _set(words, scope)
    elif name in ("for", "select", "foreach") and words:
        values = [expand(word.raw, scope.lookup) for word in words[2:]]
        value = values[0] if len(values) == 1 else UNKNOWN
        scope.assign(words[0].raw, value, words[0].line)
    elif name in ("read", "mapfile", "readarray", "getopts"):
        for word in words:
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word.raw):
                scope.assign(word.raw, UNKNOWN, word.line)
    elif name in (":", "test", "[", "true"):
        for word in words:
            if "=" in word.raw:
                _value(word.raw, scope, word.line)  # : "${X:=1}" sets X


def _declare(name: str, words: Sequence[Token], scope: Scope) -> None:
    exports = name == "export"
    local = name == "local"
    hides = False
    for word in words:
        match = _ASSIGNMENT.match(word.raw)
        if word.raw[:1] in ("-", "+") and not match:
            flags = word.raw[1:]
            if name == "export":
                hides = hides or "n" in flags
                exports = exports and "f" not in flags and "n" not in flags
            elif "x" in flags:
                exports = word.raw[0] == "-"
            continue
        text = "" if match else expand(word.raw, scope.lookup)
        quoted = _NAME_VALUE.fullmatch(text)  # export "X=1"
        variable = match[1] if match else quoted[1] if quoted else text
        if exports and (match or quoted):
            scope.mark(variable)
        if match:
            _assign(word, scope, local and not exports)
        elif quoted:
            scope.assign(variable, quoted[2], word.line, local=local and not exports)
        elif exports:
            scope.export(variable)
        elif hides:
            scope.hide(variable)


def _set(words: Sequence[Token], scope: Scope) -> None:
    if len(words) > 2 and words[1].raw == "=":  # csh: set x = 1
        scope.assign(words[0].raw, expand(words[2].raw, scope.lookup), words[0].line)
        return
    option = exported = False
    for word in words:
        sign, flags = word.raw[:1], word.raw[1:]
        if option:
            option = False
            if word.raw == "allexport":
                scope.all_exported = exported
        elif sign not in ("-", "+") or flags == "-":
            return  # the rest are the positional parameters
        else:
            exported = sign == "-"
            option = flags.endswith("o")
            if "a" in flags:
                scope.all_exported = exported

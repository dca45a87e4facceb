"""What a Dockerfile sets: `ENV` of all stages, and what the command of its image sets for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.readers import read_as
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.shell import read as read_shell
from safelaunch.settings.lint.extract.shell import read_words
from safelaunch.settings.lint.extract.tree import Scalar, Sequence, bracketed
from safelaunch.settings.lint.extract.words import Token, blank_separated, expand, quote

_INSTRUCTION = re.compile(r"[ \t]*(?:ONBUILD[ \t]+)?([A-Za-z]+)(?:[ \t]+|(?=\\\n)|\Z)", re.IGNORECASE)
_ESCAPE = re.compile(r"(?:#[^\n]*\n)*#[ \t]*escape[ \t]*=[ \t]*`", re.IGNORECASE)
_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z0-9_.]+)\1")
_FLAG = re.compile(r"(?:--[a-z]+(?:=\S*)?(?:[ \t]|\\\n)+)+")
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OLD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)", re.DOTALL)


class _Instruction(NamedTuple):
    name: str
    text: str
    line: int
    documents: list[tuple[str, int]]


def read(text: str, line: int, scope: Scope) -> None:
    """Note what a Dockerfile sets; see `readers.read_as`.

    `ARG` sets nothing for programs, but gives its default to an `ENV` below. What `RUN` exports holds for that step of
    the build only, and no job sees it.
    """
    globals_: dict[str, tuple[str, int]] = {}
    started = False
    for found in _instructions(text, line):
        if found.name == "FROM":
            started = True
        elif found.name == "ARG":
            for word in blank_separated(found.text, found.line):
                match = _PAIR.fullmatch(word.raw)
                if match:
                    value = expand(match[2], scope.lookup)
                    scope.assign(match[1], value, word.line, local=True)
                    if not started:
                        globals_[match[1]] = (value, word.line)
                elif word.raw in globals_:
                    scope.assign(word.raw, *globals_[word.raw], local=True)
        elif found.name == "ENV":
            _env(found, scope)
        elif found.name in ("CMD", "ENTRYPOINT"):
            _command(found, scope)
        elif found.name in ("COPY", "ADD"):
            target = found.text.split()[-1:] or [""]
            for body, start in found.documents:
                kind = kind_of(target[0], body)
                if kind:
                    read_as(kind, body, start, Scope(scope.found, scope))


def _env(found: _Instruction, scope: Scope) -> None:
    words = list(blank_separated(found.text, found.line))
    if words and "=" not in words[0].raw:
        match = _OLD.fullmatch(found.text.strip())
        if match:
            scope.mark(match[1])
            scope.assign(match[1], expand(match[2].strip(), scope.lookup), words[0].line)
        return
    before = [(word, _PAIR.fullmatch(word.raw)) for word in words]
    # All of one instruction see the values from before it.
    values = [expand(match[2], scope.lookup) if match else "" for _, match in before]
    for (word, match), value in zip(before, values, strict=True):
        if match:
            scope.mark(match[1])
            scope.assign(match[1], value, word.line)


def _command(found: _Instruction, scope: Scope) -> None:
    text, line = found.text, found.line
    flags = _FLAG.match(text)
    if flags:
        line += flags[0].count("\n")
        text = text[flags.end() :]
    inner = Scope(scope.found, scope)
    if found.documents and _DOCUMENT.match(text):
        for body, start in found.documents:
            kind = kind_of("", body)
            read_as("shell" if kind == "env" else kind or "shell", body, start, inner)
        return
    words = bracketed(text, 0, line) if text.startswith("[") else None
    if words and isinstance(words[0], Sequence):
        items = [item for item in words[0].items if isinstance(item, Scalar) and item.text is not None]
        read_words([Token(quote(item.source), item.line) for item in items], inner)
    else:
        for body, _ in found.documents:
            text += f"\n{body}"
        read_shell(text, line, inner)


def _instructions(text: str, first: int) -> Iterator[_Instruction]:
    """The instructions, comments taken out; a continued line keeps its place in the text of its instruction."""
    escape = "`" if _ESCAPE.match(text) else "\\"
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        match = _INSTRUCTION.match(lines[at] + "\n")
        if match is None or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        start = at
        parts = [lines[at][match.end() :] if match.end() <= len(lines[at]) else ""]
        if not parts[0] and lines[at].rstrip().endswith(escape):
            parts = [escape]
        while at + 1 < len(lines) and (parts[-1].rstrip().endswith(escape)):
            at += 1
            bare = lines[at].strip()
            parts.append(escape if not bare or bare.startswith("#") else lines[at])
        at += 1
        body = "\n".join(part.rstrip()[:-1] + "\\" if part.rstrip().endswith(escape) else part for part in parts)
        name = match[1].upper()
        documents: list[tuple[str, int]] = []
        if name in ("RUN", "COPY", "ADD") and "<<" in body:
            for document in _DOCUMENT.finditer(body):
                begin = at
                while at < len(lines) and lines[at].lstrip("\t") != document[2]:
                    at += 1
                documents.append(("\n".join(lines[begin:at]), first + begin))
                at += 1
            if len(documents) and not _DOCUMENT.match(body) and name == "RUN":
                # `RUN cat <<EOF > file`: the shell reads the document itself.
                body = "\n".join([body, *(lines[start + len(parts) : at])])
                documents = []
        yield _Instruction(name, body, first + start, documents)

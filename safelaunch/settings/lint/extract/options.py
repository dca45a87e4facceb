"""The words of a command that set variables for the program it starts: `docker run -e X=1`, `env X=1`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from safelaunch.settings.lint.extract import tools
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.tools import Style
from safelaunch.settings.lint.extract.words import UNKNOWN, Token, expand

_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# ./in_container.sh -e NCCL_DEBUG=INFO: what a script of somebody's own makes of -e is clear by the name that follows.
_OF_WRAPPERS = frozenset({"-e", "-x", "-E", "--env-var", "--setenv"})
_CERTAIN = re.compile(r"(?:TORCH_)?NCCL_[A-Z0-9_]+=|GLOO_[A-Z_]+=")
_SEPARATED = {
    separator: re.compile(rf"""(?:\\{separator}|[^{separator}'"]|'[^']*'|"[^"]*"|['"])+""") for separator in ",:;"
}
_SEPARATORS = {"commas": ",", "colons": ":", "semicolons": ";"}


class Pair(NamedTuple):
    """One variable for the program that a command starts."""

    name: str
    value: str
    line: int


class Script(NamedTuple):
    """A text within a command that a shell will read, or a JSON text. `word` is what holds it, where not yet read."""

    text: str
    line: int
    kind: Literal["shell", "eval", "json"] = "shell"
    word: Token | None = None


def from_words(words: Sequence[Token], scope: Scope) -> Iterator[Pair | Script]:
    """What the words of a command set for the program that it starts, in order.

    Args:
        words: the command and its arguments.
        scope: the variables that may stand in them.
    """
    texts = [expand(word.raw, scope.lookup) for word in words]
    options: dict[str, Style] = dict(tools.UNKNOWN if texts[0].startswith(UNKNOWN) else tools.ANY)
    seen: set[str] = set()
    at, size = 0, len(words)
    while at < size:
        text = texts[at]
        base = "" if text.startswith("-") else text.rsplit("/", 1)[-1]
        if base == "env" and at and texts[at - 1] == "set" and seen & {"kubectl", "oc"}:
            yield from _pairs(words, texts, range(at + 1, size))
            return
        if base in tools.TAKE_WORDS:
            at = at + 1
            while at < size and (texts[at].startswith("-") or _NAME_VALUE.match(texts[at])):
                if texts[at] in ("-S", "--split-string") and at + 1 < size:
                    yield Script(f"env {texts[at + 1]}", words[at + 1].line)
                at += bool(tools.WORD_OPTIONS.fullmatch(texts[at]))
                yield from _pairs(words, texts, range(at, min(at + 1, size)))
                at += 1
            continue
        if text.startswith("--entrypoint"):
            at += text == "--entrypoint"
            if at < size and re.split("[/=]", texts[at])[-1] in tools.SHELLS:
                options.update(tools.SHELL)
            at += 1
            continue
        if base in tools.SHELLS:
            yield from _shell(words, texts, at + 1)
            return
        remote = base.lstrip("_")  # a function of the script's own around it
        if remote in tools.REMOTE:
            yield from _remote(words, texts, at + 1, *tools.REMOTE[remote])
            return
        if tools.OWN_WORDS.fullmatch(base):
            if tools.PYTHON.fullmatch(base):
                yield from _python(words, texts, at + 1)
            return
        if base in ("conda", "mamba", "micromamba") and "vars" in texts:
            yield from _pairs(words, texts, range(texts.index("vars"), size))
            return
        if base in tools.TOOLS:
            options.update(tools.TOOLS[base])
            seen.add(base)
        elif text in _OF_WRAPPERS and text not in options and at + 1 < size and _CERTAIN.match(texts[at + 1]):
            yield from _pairs(words, texts, range(at + 1, at + 2))
            at += 1
        elif text.startswith("-"):
            found, at = _option(words, texts, at, options)
            yield from found
        at += 1


def _pairs(words: Sequence[Token], texts: Sequence[str], where: range) -> Iterator[Pair]:
    for index in where:
        match = _NAME_VALUE.fullmatch(texts[index])
        if match:
            yield Pair(match[1], match[2], words[index].line)


def _option(
    words: Sequence[Token], texts: Sequence[str], at: int, options: Mapping[str, Style]
) -> tuple[list[Pair | Script], int]:
    """What one option sets, and the index of the last word that it took."""
    text = texts[at]
    name, equals, attached = text.partition("=")
    if name in options and equals:
        style, value, line = options[name], attached, words[at].line
    elif text in options and at + 1 < len(texts):
        style = options[text]
        at += 1
        value, line = texts[at], words[at].line
    elif text[:2] in options and not text.startswith("--"):  # -eX=1
        style, value, line = options[text[:2]], text[2:], words[at].line
    else:
        return [], at
    if style == "script":
        return [Script(value, line, word=None if equals else words[at])], at
    if style == "json":
        return [Script(value, line, "json")], at
    if style == "mca":
        if value != "mca_base_env_list" or at + 1 >= len(texts):
            return [], at
        at += 1
        return list(_separated(texts[at], ";", words[at].line)), at
    if style == "two" and "=" not in value and at + 1 < len(texts):
        at += 1
        return ([Pair(value, texts[at], line)] if _NAME.fullmatch(value) else []), at
    if style == "many":
        first = at
        while at + 1 < len(texts) and _NAME_VALUE.fullmatch(texts[at + 1]):
            at += 1
        return list(_pairs(words, texts, range(first, at + 1))), at
    if style == "csv":
        style = "pair" if value.count("=") == 1 else "commas"
    if style in _SEPARATORS:
        return list(_separated(value, _SEPARATORS[style], line)), at
    match = _NAME_VALUE.fullmatch(value)
    return ([Pair(match[1], match[2], line)] if match else []), at


def _python(words: Sequence[Token], texts: Sequence[str], at: int) -> Iterator[Pair]:
    """python xpk.py workload create --env NCCL_DEBUG=INFO."""
    for index in range(at, len(words)):
        text = texts[index]
        pair = text[6:] if text.startswith("--env=") else text if texts[index - 1] == "--env" else ""
        match = _NAME_VALUE.fullmatch(pair)
        if match and match[1].isupper() and "_" in match[1]:
            yield Pair(match[1], match[2], words[index].line)


def _separated(text: str, separator: str, line: int) -> Iterator[Pair]:
    for piece in _SEPARATED[separator].finditer(text):
        match = _NAME_VALUE.fullmatch(piece[0].strip())
        if match:
            value = match[2]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            yield Pair(match[1], value.replace(f"\\{separator}", separator), line)


def _shell(words: Sequence[Token], texts: Sequence[str], at: int) -> Iterator[Script]:
    while at < len(words) and texts[at][:1] in ("-", "+"):
        if tools.COMMAND_OPTION.fullmatch(texts[at]) and at + 1 < len(words):
            yield Script("", words[at + 1].line, word=words[at + 1])
            return
        at += 1


def _remote(words: Sequence[Token], texts: Sequence[str], at: int, valued: str, hosts: int) -> Iterator[Script]:
    while at < len(words):
        text = texts[at]
        if text.startswith("-"):
            at += 2 if len(text) == 2 and text[1] in valued else 1
        elif hosts:
            hosts -= 1
            at += 1
        else:
            break
    if at + 1 == len(words):
        yield Script("", words[at].line, word=words[at])
    elif at < len(words):
        yield Script(" ".join(texts[at:]), words[at].line)

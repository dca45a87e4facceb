"""What is a secret among variables of the environment and in texts: shared by all that shows them or hands them on.

Structure comes first (keys in blocks, URLs, headers, commands, names with values), then what issuers put into their
tokens, then what looks drawn at random beside a word that tells. Only the lines that hold a word that tells are looked
at closely: a log of a training hardly has one. Standard library only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from safelaunch import escapes, shortened
from safelaunch.redaction import (
    announced,
    blocks,
    commands,
    documents,
    introduced,
    manifests,
    names,
    pairs,
    shapes,
    structure,
    told,
    values,
)
from safelaunch.redaction.commands import REDACTED

ESCAPED = re.compile(r"\\{1,16}[nrt]")
SPACES = {"n": "\n", "r": "\n", "t": "\t"}
MARKS = re.compile(f"[{told.MARKS}]")
# Behind a cut nobody knows what was announced. A frame of a traceback is none.
_BEHIND_CUT = re.compile(
    re.escape(shortened.LEFT_OUT)
    + r"((?:[^\w\\<]|\\{1,16}[nrt]){0,200}(?!File \\{0,8}\"))(?:[^\s\\]|\\(?!\\{0,15}[nrt]))+"
)
SHORTEST = 6  # characters: nothing that is shorter can be a secret with its name
BLOCK = 1 << 14  # characters
# A text of several lines in a program, or in TOML: it ends where its quotes do.
_QUOTES = re.compile(r"[=:]\s?\w{0,2}(\"{3}|'{3})[ \t\r]*\Z")
QUOTED = 2048  # characters of one
MORE = 3  # lines after one that ends where a value is to come
SHORTEST_NUMBER = 10_000  # that may be a password
# Fields of a document that holds a name and its value, in lower case.
NAMES, VALUES = {"name", "key", "k", "variable"}, {"value", "val", "v"}
LOGINS = {"auth", "login", "basic"}  # last words of fields that hold a user and a password
COMMANDS = {"argv", "args", "arguments", "command", "cmd", "cmdline", "entrypoint", "script_args"}  # fields


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret."""
    return redact(name, value) != value


def redact(name: str, value: str) -> str:
    """The value of a variable as it may be shown to a colleague."""
    if value and told.is_secret(name, value, alone=True):
        return REDACTED
    return text(value)


def text(value: str) -> str:
    """Any text (a log, a traceback, a command line, a document) without what looks like a secret in it.

    Counts of tokens, pieces of text that tokenizers call tokens, hashes and paths stay.
    """
    if len(value) < SHORTEST:
        return value
    plain = escapes.without(value)  # within a word they would hide it
    shown = _text(plain)
    if shortened.LEFT_OUT in shown:
        shown = _BEHIND_CUT.sub(rf"{shortened.LEFT_OUT}\1{REDACTED}", shown)
    return value if shown == plain and not escapes.moves(value) else shown


def _text(value: str) -> str:
    if "\r\n" in value:
        value = value.replace("\r\n", "\n")  # as an end of a line it would hide that a text goes on
    value = blocks.without(manifests.without_manifests(structure.without_blocks(value)))
    low = structure.lower(value)
    parts: list[str] = []
    done = at = 0
    find = _hints().search
    while match := find(low, at):
        begin = _begin(value, match.start(), done)
        at = _end(value, match.end())
        # Lines that follow each other are looked at together: a call costs more than a line.
        while at - begin < BLOCK and (match := find(low, at, _end_of_next(value, at))):
            at = _end(value, match.end())
        parts += [value[done:begin], _lines(value[begin:at])]
        done = at
    return "".join([*parts, value[done:]]) if parts else value


def arguments(values_: list[str]) -> list[str]:
    """A command line without its secrets: `--api-key X` stands in two of its words."""
    shown: list[str] = []
    for before, value in zip(["", *values_], values_, strict=False):
        name = before.lstrip("-")
        given = before.startswith("-") and "=" not in before and not value.startswith("-")
        shown.append(REDACTED if given and value and told.is_secret(name, value, alone=True) else text(value))
    # Options without a name of their own: `curl -u ada:X`, `mysql -pX`.
    together = commands.without("\0".join(shown), "\0").split("\0")
    return together if len(together) == len(shown) else shown


def lines(values_: Sequence[str]) -> list[str]:
    """Texts that follow each other without their secrets: what one of them announces may stand in a later one. As many
    come back; of a key in a block each line is a secret of its own."""
    before = "\n".join(values_).split("\n")
    after = text(structure.without_blocks("\n".join(values_), lines=True)).split("\n")
    if len(after) < len(before):
        at = next((at for at, line in enumerate(after) if line != before[at]), len(after) - 1)
        after[at + 1 : at + 1] = [REDACTED] * (len(before) - len(after))
    shown: list[str] = []
    at = 0
    for value in values_:
        end = at + 1 + value.count("\n")
        shown.append("\n".join(after[at:end]))
        at = end
    return shown


def records(values_: Sequence[Any]) -> list[Any]:
    """JSON documents that follow each other, such as the lines of a log, without their secrets: what the text of one
    announces may stand in the same field of a later one."""
    texts: dict[tuple[str, ...], list[tuple[dict[str, Any], str]]] = {}
    copies = [_copied(value, (), texts) for value in values_]
    for places in texts.values():
        if len(places) > 1:
            shown = lines([holder[key] for holder, key in places])
            for (holder, key), one in zip(places, shown, strict=True):
                holder[key] = one
    return [document(copy) for copy in copies]


def _copied(value: Any, path: tuple[str, ...], texts: dict[tuple[str, ...], list[tuple[dict[str, Any], str]]]) -> Any:
    """An object of JSON with copies of those within; `texts` learns where each field has its texts."""
    if not isinstance(value, dict):
        return value
    copy: dict[str, Any] = {}
    for key, item in value.items():
        copy[key] = _copied(item, (*path, key), texts)
        if isinstance(item, str):
            texts.setdefault((*path, key), []).append((copy, key))
    return copy


def document(value: Any, name: str = "") -> Any:
    """A JSON document without its secrets: by the names of its fields, and in all of its texts, lists of lines and
    command lines."""
    if isinstance(value, dict):
        # Settings stand as `NAME: {value: ..., origin: ...}`, variables of a container as `{name: NAME, value: ...}`.
        named = next((item for key, item in value.items() if str(key).lower() in NAMES), name)
        of_value = named if isinstance(named, str) else name
        held = {*VALUES, "content"} if "variable" in {str(key).lower() for key in value} else VALUES
        is_told = names.kind(name) in ("password", "secret")
        shown = {}
        for key, item in value.items():
            own = of_value if str(key).lower() in held else str(key)
            shown[text(str(key))] = document(item, name if is_told and not names.kind(own) else own)
        return shown
    if isinstance(value, list):
        if name and names.kind(name) in ("password", "secret"):
            return [document(item, name) for item in value]
        if not all(isinstance(item, str) for item in value):
            return [document(item) for item in value]
        if len(value) == 2 and (
            _is_pair(*value) or (LOGINS.intersection(names.words(name)[-1:]) and _is_login(value[1]))
        ):
            return [value[0], REDACTED]
        # Whatever is not told to be a command line may be lines of a text: a key begins on one and ends on another.
        return arguments(value if name.lower() in COMMANDS else lines(value))
    if isinstance(value, int) and abs(value) >= SHORTEST_NUMBER and names.kind(name) == "password":
        return REDACTED
    if not isinstance(value, str):
        return value
    return redact(name, value) if name else text(value)


def _is_pair(name: str, value: str) -> bool:
    """Whether two items of a list are a header, a variable or an option with its value, and not two names."""
    secret = told.is_secret(name.lstrip("-"), value, alone=True)
    return secret and not names.kind(value) and not (value.isidentifier() and not values.is_random(value))


def _is_login(value: str) -> bool:
    """Whether it is the password of a user, and no way to log in: `scram-sha-256`."""
    return values.is_random(value) or (values.is_chosen(value) and not values.PLAIN.fullmatch(value))


def _end_of_next(value: str, at: int) -> int:
    end = value.find("\n", at + 1)
    return len(value) if end < 0 else end


def _begin(value: str, at: int, done: int) -> int:
    """Where the lines begin that belong to the one at `at`: a value may stand in front of its name."""
    begin = earlier = value.rfind("\n", 0, at) + 1
    if not pairs.holds_value(value, max(begin - pairs.WINDOW, done), begin):
        return begin
    for _ in range(MORE):
        earlier = value.rfind("\n", 0, max(earlier - 1, 0)) + 1
        if earlier < done:
            break
        if pairs.holds_value(value, earlier, begin):
            begin = earlier
    return begin


def _end(value: str, at: int) -> int:
    """Where the lines end that belong to the one at `at`: a value may stand on the next one, or after an empty one."""
    end = value.find("\n", at)
    if quotes := _QUOTES.search(value, max(value.rfind("\n", 0, end) + 1, end - 200), end) if end > 0 else None:
        closing = value.find(quotes[1], end, end + QUOTED)
        end = value.find("\n", closing) if closing > 0 else end
    elif end > 0 and blocks.OPENS.search(value, max(value.rfind("\n", 0, end) + 1, end - 200), end):
        end = blocks.end_of_text(value, end)
    for _ in range(MORE):
        if end < 0 or not _goes_on(value, max(value.rfind("\n", 0, end) + 1, end - 200), end):
            break
        end = value.find("\n", end + 1)
    return len(value) if end < 0 else end


def _goes_on(value: str, begin: int, end: int) -> bool:
    """Whether what a line tells is in one of the next ones."""
    if structure.OPEN.search(value, begin, end) or not value[begin:end].strip():
        return True
    if value[end - 1] in ".!" and announced.ANNOUNCES.search(value, begin, end):
        return True
    after = end
    for _ in range(MORE if pairs.holds_value(value, end, end + pairs.WINDOW) else 0):
        following = _end_of_next(value, after)
        if pairs.holds_value(value, after, following):
            return pairs.NAMED.search(value, begin, end) is not None or after == end
        if following == len(value):
            break
        after = following
    return False


def _lines(value: str) -> str:
    """Lines that hold a word that tells."""
    value = documents.without(value, document)
    if "\\" not in value or not ESCAPED.search(value) or MARKS.search(value):
        return _plain(value)
    # A text within a text, such as a log in JSON: its ends of lines become such, each with a mark of how it was
    # written.
    kinds = list(dict.fromkeys(ESCAPED.findall(value)))[: len(told.MARKS)]
    ends = {kind: SPACES[kind[-1]] + mark for kind, mark in zip(kinds, told.MARKS, strict=False)}
    # Of three, two are a backslash that divides a command over two lines (or four of six).
    marked = {kind: ("\\" if len(kind) % 3 == 1 and kind[-1] == "n" else "") + end for kind, end in ends.items()}
    value = ESCAPED.sub(lambda found: marked.get(found[0], found[0]), value)
    value = _plain(blocks.without(manifests.without_manifests(structure.without_blocks(value))))
    for kind, end in ends.items():
        value = value.replace(marked[kind], kind).replace(end, kind)
    return value


def _plain(value: str) -> str:
    low = value.lower()
    if _kept().search(low):
        for hints, pattern, replacement in _patterns_of(introduced.KEPT):
            if any(hint in low for hint in hints):
                value = pattern.sub(replacement, value)
    for hints, pattern, replacement in _patterns():
        for hint in hints:
            if hint in low:
                value = pattern.sub(replacement, value)
                break
    return structure.without_named(value)


@functools.cache
def _patterns() -> tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]:
    """Compiled at first use: a launch that shows nothing does not pay for them."""

    return (
        *_patterns_of(introduced.INTRODUCED),
        (("",), shapes.compiled(), REDACTED),
        ((":aa", "q~", "-us", ".atlasv1.", "=="), shapes.free(), REDACTED),
    )


@functools.cache
def _patterns_of(
    introduced_: tuple[tuple[tuple[str, ...], str], ...],
) -> tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]:
    return tuple((hints, re.compile(pattern), r"\g<1>" + REDACTED) for hints, pattern in introduced_)


@functools.cache
def _kept() -> re.Pattern[str]:
    return re.compile(shapes.by_first_letter(introduced.KEPT_HINTS))


@functools.cache
def _hints() -> re.Pattern[str]:
    """What a line holds, in lower case, that is looked at closely."""
    issued = [re.escape(prefix.lower()) + r"[^\s\"',]{8}" for prefix, _ in shapes.ISSUED]
    encoded = [re.escape(prefix.lower()[:10]) for prefix in shapes.ENCODED]
    found = [
        shapes.by_first_letter(issued, "[a-z0-9_-]"),
        shapes.by_first_letter([*encoded, *structure.HINTS, *shapes.FREE_HINTS]),
    ]
    return re.compile("|".join(found))

"""Secrets whose names stand beside them without a sign between: fields, arguments of calls, statements, rows."""

from __future__ import annotations

import re

from safelaunch.redaction import names, told, values
from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.shapes import by_first_letter
from safelaunch.redaction.told import MARKS, VALUE, is_secret

# ------------------------------------------------------------------------- `name: NAME` beside `value: ...`

_QUOTE = r"\\{0,8}[\"']?"
_SIGN = rf"{_QUOTE}[ \t]{{0,40}}[:=]\s{{0,3}}"
_FIELDS = ("name", "Name", "NAME", "key", "Key", "KEY", "ariable", "ield", "nvVar", "nvvar", "roperty")
NAMED = re.compile(rf"(?:{by_first_letter(_FIELDS)}){_SIGN}{_QUOTE}([A-Za-z_][\w.:/-]{{1,80}})")
_VALUED = re.compile(rf"(?<!\w)(?:\w{{0,24}}[Vv]alue|VALUE){_SIGN}(?:[|>][+0-9-]{{0,2}}\s{{1,20}})?" + VALUE)
_VALUE_FIELD = re.compile(r"[Vv]alue\\{0,8}[\"']?[ \t]{0,20}[:=]|VALUE[\"']?[ \t]{0,20}[:=]|<value>|\bValue '")
WINDOW = 300  # characters between a name and its value
_ENDS = re.compile(rf"[{{}}]|(?<!: )[<>]|\n[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?)?[ \t]*-[ \t]|\n[ \t]*\n")
# A property of Hadoop's, `<name>NAME</name> <value>...</value>`, in either order, and one of Apple's lists.
_PROPERTY = re.compile(
    rf"(<(name|key)>\s?([\w.-]{{1,120}})\s?</\2>[\s{MARKS}]{{0,80}}<(?:value|string)>)([^<\n]{{1,2048}})"
)
_PROPERTY_AFTER = re.compile(
    rf"(<(value)>)([^<\n]{{1,2048}})(?=</value>[\s{MARKS}]{{0,80}}<(?:name|key)>\s?([\w.-]{{1,120}})\s?</)"
)


def holds_value(text: str, begin: int, end: int) -> bool:
    """Whether a line holds the value whose name is in another one."""
    if text.find("alue", begin, end) < 0 and text.find("VALUE", begin, end) < 0:
        return False
    return _VALUE_FIELD.search(text, begin, end) is not None


def without_pairs(value: str) -> str:
    """A text without the values that stand in a field beside the one with their name, in either order."""
    if "alue" not in value and "VALUE" not in value and "</key>" not in value:
        return value
    value = _PROPERTY.sub(lambda found: _of_property(found, found[3], found[4]), value)
    value = _PROPERTY_AFTER.sub(lambda found: _of_property(found, found[4], found[3]), value)
    parts: list[str] = []
    done = 0
    for match in NAMED.finditer(value):
        name = match[1]
        if not names.kind(name):
            continue
        found = _value_after(value, match.end()) or _value_before(value, match.start())
        if found is None or found.start(1) < done or not is_secret(name, told.split(found[1])[1], alone=True):
            continue
        parts += [value[done : found.start(1)], told.redacted(found[1])]
        done = found.end(1)
    return "".join([*parts, value[done:]]) if parts else value


def _of_property(match: re.Match[str], name: str, value: str) -> str:
    return match[1] + REDACTED if is_secret(name, value.strip(), alone=True) else match[0]


def _value_after(value: str, begin: int) -> re.Match[str] | None:
    end = begin + WINDOW
    for border in (_ENDS, NAMED):
        found = border.search(value, begin, end)
        end = found.start() if found else end
    found = _VALUED.search(value, begin, end)
    return _VALUED.match(value, found.start()) if found else None


def _value_before(value: str, end: int) -> re.Match[str] | None:
    begin = max(end - WINDOW, 0)
    for found in _ENDS.finditer(value, begin, end):
        begin = found.end()
    found_value = _VALUED.search(value, begin, end)
    return None if found_value is None or NAMED.search(value, begin, end) else found_value


# --------------------------------------------------------- calls, statements, rows: `setenv("NAME", "value")`

_CALL = re.compile(
    r"(?:set|put|push|env|add|append|get|default|config|export|header|prop|param|secret|insert|update|option|var"
    r")\w{0,24}\s?\(\s?\\{0,8}[\"']\Z|\((?:set|put)env \\{0,8}[\"']\Z",
    re.IGNORECASE,
)
_LISTED = re.compile(r"[(\[{,]\s{0,3}\\{0,8}[\"']\Z")
_STATEMENT = re.compile(
    r"(?:\b(?:setenv|pushenv|append_env|setx|export|set-environment|addProperty|secrets? (?:set|put)|config set"
    r"|set -\w{1,3}|(?:set )?\$?(?:::)?env\(|config --\w{1,10} [\w.]{0,40})|\#define|\b(?:ENV|ARG))"
    r"(?: -{1,2}\w{1,12})?[ \t]{0,8}[\"']?\Z"
)
_ARGUMENT = re.compile(r"(\\{0,8}[\"'](?:\s?,\s{0,3}| )(?:\[\[)?(?=\[\[|\\{0,8}\w{0,2}[\"']|(?<=\[)))" + VALUE)
_OPERAND = re.compile(r"([\"')]?[ \t]{1,8}(?:(?:--body|-b)[ =])?[{\[]{0,2}(?![-&|]))" + VALUE)
_CELL = re.compile(r"([ \t]{0,60}(?:[|\u2502\u2503]|\\{1,8}u250[23])[ \t]{0,8}|\t[ \t]{0,40}| {2,60})" + VALUE)
# The next cell of a row that is drawn, or marked up: its border says that no sentence goes on there.
_FRAMED = re.compile(
    r"([ \t]{0,60}(?:[|\u2502\u2503]|\\{1,8}u250[23])[ \t]{0,60}"
    rf"|</t[dh]>[\s{MARKS}]{{0,80}}<t[dh][^<>\n]{{0,80}}>[\s{MARKS}]{{0,80}})" + VALUE
)
BEFORE = 64  # characters that are looked at in front of a name


def behind(value: str, begin: int, end: int, name: str) -> re.Match[str] | None:
    """The secret that belongs to a name as the next argument of a call, of a statement, or in the next cell of a row.

    Args:
        value: the text.
        begin: where the name begins in it.
        end: where it ends.
        name: the name.
    """
    variable = "_" in name or name.isupper()
    quoted = value[end : end + 1] in ("\\", '"', "'")
    if (match := _FRAMED.match(value, end)) and _is_cell(name, match[2]):
        return match
    if not (variable or quoted):
        return None  # `tokens seen`
    before = value[max(begin - BEFORE, 0) : begin]
    if quoted and before[-1:] in ("'", '"') and (match := _ARGUMENT.match(value, end)):
        if _CALL.search(before):
            return match if _is_argument(name, match[2]) else None
        bare = told.split(match[2])[1]
        drawn = values.is_random(bare) or (name.isupper() and values.is_chosen(bare) and not bare.isupper())
        return match if drawn and _LISTED.search(before) and _is_argument(name, match[2]) else None
    if variable and _STATEMENT.search(before) and (match := _OPERAND.match(value, end)):
        return match if _is_argument(name, match[2]) else None
    if name.isupper() and "_" in name and (match := _CELL.match(value, end)):
        bare = told.split(match[2])[1]
        drawn = values.is_random(bare) or (values.is_chosen(bare) and not bare.isupper())
        return match if drawn and _is_argument(name, bare) else None
    return None


def _is_cell(name: str, value: str) -> bool:
    """Whether the next cell is the secret of a name, whatever the name's letters: only what is drawn, or chosen as a
    password, is."""
    bare = told.split(value)[1]
    chosen = names.kind(name) == "password" and any(map(str.isdecimal, bare)) and values.is_chosen(bare)
    return name.lower() != "key" and (values.is_random(bare) or chosen) and _is_argument(name, bare)


def _is_argument(name: str, value: str) -> bool:
    bare = told.split(value)[1]
    name_of_another = values.PLAIN.fullmatch(bare) and names.kind(bare)
    told_secret = is_secret(name, bare, alone=True, told=not values.is_letters(bare))
    return told_secret and not name_of_another and (not bare.isalpha() or values.is_letters(bare))


# ----------------------------------------------------------------------- changes: `"old" -> "new"`

_CHANGED = re.compile(r"(\s{0,3}(?:->|=>|\u2192|\\{1,8}u2192)\s{0,3})" + VALUE)
_TO = re.compile(r"( to )" + VALUE)
_WAS = re.compile(r"( (?:was |has )?(?:changed |updated |rotated )?from )" + VALUE)
_STATES = re.compile(
    rf"((?:old|new|before|after|current|previous|plaintext|old_value|new_value|value|default){_SIGN})" + VALUE
)
_OBJECT = re.compile(r"\\{0,8}[\"']?\\{0,8}\]?\\{0,8}[\"']?\s?[:=]\s?\{[^{}]{0,400}")
_FIRST = re.compile(r"\\{0,8}[\"']?[ \t]{0,60}[:=][ \t]{0,20}((?:null|none|\([\w ]{1,40}\))(?= ?(?:->|=>|\u2192)))?")


def changed(value: str, at: int, name: str, sign: re.Pattern[str] = _CHANGED) -> tuple[int, str] | None:
    """Where the value ends that another is changed to, and what to show of it. `at`: behind the first one."""
    match = sign.match(value, at)
    if match is None or not is_secret(name, told.split(match[2])[1], alone=True):
        return None
    return match.end(), match[1] + told.redacted(match[2])


def first_of_change(value: str, at: int) -> int | None:
    """Where the stand-in ends that a value is changed from. `at`: behind the name."""
    match = _FIRST.match(value, at)
    return match.end() if match and match[1] else None


def was(value: str, at: int, name: str) -> list[tuple[int, str]]:
    """Both values of `NAME changed from X to Y`."""
    match = _WAS.match(value, at)
    then = changed(value, match.end(), name, _TO) if match else None
    if match is None or then is None:
        return []
    return [(match.end(), match[1] + told.redacted(match[2])), then]


def without_states(value: str, at: int, name: str) -> tuple[int, str] | None:
    """A small object behind a name, such as `{"old": ..., "new": ...}`, without its values: its end, what to show."""
    found = _OBJECT.match(value, at)
    if found is None:
        return None

    def shown(match: re.Match[str]) -> str:
        if not is_secret(name, told.split(match[2])[1], alone=True):
            return match[0]
        return match[1] + told.redacted(match[2])

    without = _STATES.sub(shown, found[0])
    return None if without == found[0] else (found.end(), without)

"""Whether the value behind a name is a secret, and how languages write a value."""

from __future__ import annotations

import re

from safelaunch.redaction import names, values
from safelaunch.redaction.commands import REDACTED

# Of private use in Unicode: behind an end of a line that was an escape, in a text within a text.
MARKS = "".join(map(chr, range(0xE000, 0xE010)))
LONGEST_NAME = 80  # characters
# Signs of other alphabets, as they are and as JSON writes them.
COLON, ARROW = r"\uff1a|\\{1,8}uff1a", r"\u2192|\\{1,8}u2192"

# What may stand in front of a quote: `r"`, `b'`, `u8"`, `@"`, `$'`, `N'`, `r#"`.
_PREFIX = r"(?:u8|[rbfuRBFULN@$]{0,2})\#{0,2}"
# Quotes of typesetters: how they begin, how they end.
_BEGINS, _ENDS = "\u201c\u201d\u201e\u00ab\u2018\u2039\u300c", "\u201c\u201d\u00bb\u2019\u203a\u300d"
QUOTED = (
    rf"(?:{_PREFIX}(?:\\{{0,8}}\"){{3}}[^\"]{{0,2048}}(?:\\{{0,8}}\"){{3}}|'''[^']{{0,2048}}'''"
    rf"|\\{{0,8}}{_PREFIX}\\{{0,8}}\"[^\"]{{0,2048}}\"|\\{{0,8}}{_PREFIX}\\{{0,8}}'[^']{{0,2048}}'"
    rf"|[{_BEGINS}][^{_ENDS}\n]{{1,256}}[{_ENDS}]"
    r"|%22[^%\s]{1,256}%22|&(?:quot|apos|\#3[49]);[^&\n]{1,256}&(?:quot|apos|\#3[49]);"
    r"|%[qQ]?[({\[][^\n)}\]]{1,256}[)}\]])"
)
VALUE = (
    rf"({QUOTED}|\\{{0,8}}[\"'](?=\w)[^\s\"',;]{{1,256}}|(?:[^\s\"',;&)}}\]<>`]|`(?=\w)){{1,2048}}|<[^\s<>]{{0,80}}>)"
)
# What a log or a listing puts in front of a line.
MARKED = rf"[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?|[0-9]{{1,6}}[:|](?=[ \t])|[<>*](?=[ \t]))?[ \t]{{0,80}}"
# Where the value begins that a line has no more room for. Blanks are matched in one way alone: there may be many.
NEXT = (
    r"(?:[ \t]*(?:(?:[\\(\[|>][|>+0-9-]{0,2}|[|>+0-9-]{1,2})[ \t]*)?\r?\n"
    rf"{MARKED}(?:[-][ \t])?)"
)
_SCHEME = re.compile(r"(?:bearer|basic|token|apikey) +(?=[{$<%])", re.IGNORECASE)  # `f"Bearer {key}"`
# What opens a value and what closes it.
_FORMS = tuple(
    (re.compile(opening), re.compile(closing + r"\Z"))
    for opening, closing in (
        (r"[uUL8]{0,2}R\\{0,8}\"\w{0,16}\(", r"\)\w{0,16}\\{0,8}\""),
        (f"[{_BEGINS}]", f"[{_ENDS}]"),
        ("%22", "%22"),
        ("&(?:quot|apos|#3[49]);", "&(?:quot|apos|#3[49]);"),
        (r"%[qQ]?[({\[]", r"[)}\]]"),
        (rf"\\{{0,8}}{_PREFIX}(?:\\{{0,8}}[\"'])+", r"(?:\\{0,8}[\"'])*\\{0,8}\#{0,2}"),
        (r"[\\`]{0,8}", r"[\\\"']*"),
    )
)


def split(value: str) -> tuple[str, str, str]:
    """A value as it is written: what opens it, itself, what closes it."""
    for opening, closing in _FORMS:
        begin = opening.match(value)
        end = begin and closing.search(value, max(begin.end(), len(value) - 40))
        if begin and end:
            return begin[0], value[begin.end() : end.start()], end[0]
    return "", value, ""


def redacted(value: str) -> str:
    """What to show instead of a value: its quotes stay."""
    opening, _, closing = split(value)
    return f"{opening}{REDACTED}{closing}"


def is_secret(name: str, value: str, *, alone: bool, told: bool = False) -> bool:
    """Whether the value of a name is a secret.

    Args:
        name: of a variable, an option, a field.
        value: without its quotes.
        alone: it is all that stands behind the name, as in the environment, and no word of a sentence.
        told: in prose or a document, where `token: x` may be a sentence.
    """
    kind, value = names.kind(name), value.strip()
    if value[:1] in ("<", "{") and values.is_random(value.strip("<>{}")):
        value = value.strip("<>{}")
    if not kind:
        return values.is_drawn(value) and not names.is_public(name)
    if value.startswith("arn:") or ("." in value and values.NUMBER.fullmatch(value, 0, 64)):
        return False  # the name of something at Amazon; a probability of a piece of text
    if (
        values.is_stand_in(_SCHEME.sub("", value, 1))
        or REDACTED in value[:64]
        or names.words(value[:LONGEST_NAME]) == names.words(name)
    ):
        return False  # `--api-key API_KEY` in a help text, `token=token` in a line of code
    if kind == "password":
        return _is_password(name, value, told=told)
    if values.NUMBER.fullmatch(value, 0, 64) or values.is_file(value):
        return kind == "secret" and value.isdecimal() and len(value) >= 8
    if kind == "secret":
        return len(value) >= 4 and not (told and _is_prose(name, value))
    if name == "key" and (values.PLACE.match(value) or values.is_number_of_64_bits(value)):
        return False  # of a store: `ray:gcs:node:...`; a number of 64 bits
    if values.is_random(value) or values.is_login(value):
        return True
    if names.words(name)[-2:] == ["secret", "id"] and values.is_alternating(value):
        return True  # of Vault's AppRole; Amazon's are names
    loud = alone and name.isupper() and names.words(name)[-1] in ("key", "keys", "auth")
    return loud and len(value) >= 6 and not values.is_word(value)


def _is_prose(name: str, value: str) -> bool:
    """Whether `token: x` may be a sentence, or a table of names."""
    variable = name.isupper() and "_" in name
    if names.words(name)[-1] in ("token", "key", "keys", "cookie", "cookies") and not variable:
        return values.PLAIN.fullmatch(value) is not None
    return value.isalpha() or (values.is_word(value.rstrip(".")) and not value[-1].isdecimal())


def _is_password(name: str, value: str, *, told: bool) -> bool:
    last = names.words(name)[-1]
    if (last == "pwd" and value.startswith(("/", "~"))) or value in ("0", "1"):
        return False
    if last in ("pass", "pw") and values.NUMBER.fullmatch(value):
        return False  # `pass: 3`
    return not told or (len(value) >= 4 and not (last == "passwd" and value.isalpha()))

"""Secrets behind names that tell: `NAME = value` as configurations, documents and programs write it."""

from __future__ import annotations

import re

from safelaunch.redaction import blocks, names, pairs, told, values
from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.told import ARROW, COLON, LONGEST_NAME, MARKS, NEXT, QUOTED, VALUE, is_secret

# What a value is handed to, or is the other choice to: `str("X")`, `SecretStr("X")`, `os.getenv("N", "X")`, `x or "X"`.
_WRAPPED = (
    r"(?:(?:new |&)?(?:[A-Za-z_]\w{0,30}(?:\.|::)){0,3}(?:[Ss]ecret\w{0,10}|[Pp]assword|[Ss]tring|str|bytes|bytearray"
    r"|b64decode|from\w{0,12}|to_string|quote|Some|PASSWORD)\(\s?"
    r"|(?:os\.)?(?:environ\.get|getenv)\(\s?[\"']\w{1,80}[\"']\s?,\s?|[\w.]{1,60} (?:or|\|\||\?\?) )"
    rf"(?={QUOTED})"
)
# The type of a variable: `password: str = "X"`, `const PASSWORD: &str = "X"`.
_TYPED = (
    rf"\s?:\s?&?(?:'static )?[\w.]{{1,30}}(?:\[[\w., |]{{1,60}}\])?(?: \| None)?\s?=\s?"
    rf"(?:Field\((?:default=)?)?(?={QUOTED})"
)
_HEREDOC = (
    rf"[ \t]{{0,3}}=?[ \t]{{0,3}}(?:\$\(cat )?<<[-~]?\s?[\"']?\w{{1,20}}[\"']?[ \t]{{0,3}}\r?\n[{MARKS}]?[ \t]{{0,80}}"
)
_SIGNS = rf"(?::=|=>|->|{ARROW}|[=!]==?(?=\s?{QUOTED})|\|\|=|::(?=\s)|=(?!=)|:|{COLON}|\?=|%3[Dd])"
# Behind a name: what stands between it and its value, and that.
_ASSIGNED = re.compile(
    rf"({_TYPED}|{_HEREDOC}|\\{{0,8}}[\"']?(?:[\])]|\[[0-9]{{0,5}}\]|[\"']?\}}(?=\s?=))?"
    rf"(?:(?:\s{{0,3}}|[ \t]{{4,60}}){_SIGNS}(?:\s?[!&]!?\w{{1,20}}\s)?"
    rf"(?:{NEXT}|(?:\s{{0,3}}|[ \t]{{4,60}})[(\[]?\s{{0,3}}(?:{_WRAPPED})?)|>))" + VALUE
)
_DEFAULT = re.compile(r"\s?=\s?[A-Za-z_.]{1,40}(?:\(|\s|\Z)")
_GIVEN = re.compile(r"([^\S\n]+(?!-|\\\r?\n)|[\"'],\s*[\"'](?!-))" + VALUE)
# The value of an option on the next line, or as the next item of a list: nothing else is on it.
_BELOW = re.compile(
    rf"(\\{{0,8}}[\"']?(?:[ \t]{{1,8}}\\)?{NEXT}(?!-))({QUOTED}|[^\s\"',]{{5,2048}}[^\s\"',\\])"
    r"(?=[ \t\r]*(?:\n|\Z|\\{0,8}[\"']))"
)
# A value that goes on: shells join what is quoted in pieces, and what a backslash divides.
_PIECE = re.compile(r"\\{0,8}(?:'[^'\s,:\]})]{1,1024}'|\"[^\"\s,:\]})]{1,1024}\")")
_DIVIDED = re.compile(
    rf"\\?\r?\n[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?[ ]?|[0-9]{{1,6}}[:|][ ])?([^\s\"'#&|;-][^\s\"']{{0,2048}})"
)
_BUILT = re.compile(r"([({]\s?)(?=\\{0,8}[\"'])" + VALUE)  # `.password("X")`
_COMPARED = re.compile(rf"(\)\s?[=!]==?\s?(?={QUOTED}))" + VALUE)  # `getenv("PASSWORD", "X") == "Y"`
_FOREIGN_COLON, _FOREIGN_ARROW = re.compile(COLON), re.compile(ARROW)
# A part of each name that tells (`names.kind`), in lower case.
_TELLS = re.compile(
    r"pass|pwd|pw|secret|token|key|cred|cookie|auth|jwt|bearer|otp|webhook|pat|sas|psk|sig|mnemonic|seedphrase|login|basic|_sk|sess|(?<![a-z])sid(?![a-z])|salt"
)
_LONG_NUMBER = re.compile(r"[\"']?\s?[=:]\s?[\"']?((?:[0-9a-fA-F]{24})?[0-9a-fA-F]{40})(?![0-9A-Za-z_])")
_REST_OF_NAME = re.compile(r"[\w.-]{0,80}")
# How vocabularies of tokenizers mark the begin of a word, as it is and as JSON writes it.
_PIECES = ("\u0120", "\u2581", "##")
_WRITTEN_PIECES = ("u0120", "u2581")
_ARN = re.compile(r"\barn:aws[\w-]*:[\w:/-]*\Z")  # the name of something at Amazon
# Keys of caches and stores, which programs print in full.
_STORED = re.compile(r"cach|compil|lookup|inductor|store key|memo")


def begin_of_name(value: str, at: int) -> int:
    """Where the name begins that a part of it is at `at`."""
    begin = at
    while begin > 0 and at - begin < LONGEST_NAME and (value[begin - 1].isalnum() or value[begin - 1] in "_.-"):
        begin -= 1
    return begin


def is_stored(low: str, at: int) -> bool:
    """Whether the word `key` at `at` is the one of a cache. `low`: the text in lower case."""
    return _STORED.search(low, max(low.rfind("\n", 0, at) + 1, at - 120), at) is not None


def without_named(value: str, low: str) -> str:
    """A text without the values of names that tell. `low`: the text in lower case."""
    parts: list[str] = []
    done = at = 0
    while tells := _TELLS.search(low, at):
        begin = begin_of_name(value, tells.start())
        rest = _REST_OF_NAME.match(value, tells.end())
        at = rest.end() if rest else tells.end()
        name = value[begin:at].lstrip("-.")
        if not name or not names.kind(name) or (name.lower() == "key" and is_stored(low, begin)):
            continue
        if name.startswith(_WRITTEN_PIECES) or value.endswith(_PIECES, 0, begin):
            continue
        if value.startswith(":?", at) and value.endswith("${", 0, begin):
            continue  # what a shell says where the variable is not set
        if value[begin - 1 : begin] == ":" and _ARN.search(value, max(begin - LONGEST_NAME, 0), begin):
            continue
        for end, shown in _behind(value, begin, at, name):
            parts += [value[done:at], shown]
            done = at = end
    return "".join([*parts, value[done:]]) if parts else value


def _behind(value: str, begin: int, at: int, name: str) -> list[tuple[int, str]]:
    """What to show behind a name instead, and where that ends; nothing where it is no secret."""
    given = value[begin] == "-"
    match = _ASSIGNED.match(value, at) or (_given(value, at) if given else None)
    if value[begin - 1 : begin] == "$" and not (match and "=" in match[1] and told.split(match[2])[0]):
        return []
    shown = _shown(name, match, given=given) if match else None
    if match and shown is not None:
        whole = _end_of_value(value, match)
        found = [(whole, shown if whole == match.end() else shown.rstrip("\\"))]
        head = blocks.OPENED.search(match[1])
        last = blocks.end_of_text(value, at + head.end() - 1) if head else 0
        if last > whole:
            found = [(last, found[0][1] + blocks.without_text(value, whole, last))]
    elif match and (states := pairs.without_states(value, at, name)):
        return [states]
    elif both := pairs.was(value, at, name):
        return both
    elif argument := pairs.behind(value, begin, at, name):
        found = [(argument.end(), argument[1] + told.redacted(argument[2]))]
    elif (built := _BUILT.match(value, at)) and _is_built(name, told.split(built[2])[1]):
        found = [(built.end(), built[1] + told.redacted(built[2]))]
    else:
        # `NAME = null -> "X"`, or one that was none.
        end = pairs.first_of_change(value, at) or (match.end() if match else None)
        found = [(end, value[at:end])] if end else []
        then = pairs.changed(value, end, name) if end else None
        return [(then[0], value[at:end] + then[1])] if then else []
    then = pairs.changed(value, found[0][0], name) or pairs.changed(value, found[0][0], name, _COMPARED)
    return [*found, then] if then else found


def _given(value: str, at: int) -> re.Match[str] | None:
    """What follows an option, on its line or below it."""
    if match := _GIVEN.match(value, at):
        return match
    match = _BELOW.match(value, at)
    bare = told.split(match[2])[1] if match else ""
    return match if values.is_random(bare) or values.is_chosen(bare) else None


def _end_of_value(value: str, match: re.Match[str]) -> int:
    """Where a value ends that may be written in pieces."""
    end = match.end()
    if value[end - 1] in "'\"" and match[2][0] in "'\"\\":
        while piece := _PIECE.match(value, end):
            end = piece.end()
    elif value[end - 1] == "\\" or value.startswith("\\", end):
        divided = _DIVIDED.match(value, end)
        end = divided.end() if divided else end
    return end


def _is_built(name: str, bare: str) -> bool:
    """Whether it is one, and no prompt or name."""
    plain = values.PLAIN.fullmatch(bare) and not (names.kind(name) == "password" and bare[-1].isdecimal())
    return values.is_chosen(bare) and not plain and is_secret(name, bare, alone=True)


def _shown(name: str, match: re.Match[str], *, given: bool) -> str | None:
    """What to show behind a name instead; None where it is no secret."""
    shown, value = match.groups()
    between = _FOREIGN_COLON.sub(":", _FOREIGN_ARROW.sub("->", shown))
    opening, bare, _ = told.split(value)
    block = "|" in between or ">" in between or "<<" in between
    if "\n" in between and not (opening or block or given or "\\" in between):
        return None
    if "\n" in between and ":" in between and opening.endswith(('"""', "'''")):
        return None  # what documents a class or a function
    if "->" in between and bare.isalpha():
        return None
    if ":" in between and name.lower() == "token" and values.PIECE.fullmatch(bare):
        return None  # `generated token: "Hello"`
    if ":" in between and not opening and bare.isidentifier() and _DEFAULT.match(match.string, match.end()):
        return None  # a type: `password: SecretStr = Field(...)`
    alone = given or "=" in between or bool(opening) or not between.strip()
    prose = (":" in between and not opening and not block) or "==" in between or "!=" in between
    if not is_secret(name, bare, alone=alone, told=prose):
        return None
    return shown + told.redacted(value)


def without_long_numbers(value: str) -> str:
    """A text without numbers that only keys are, under names that do not say that they are public."""
    parts: list[str] = []
    done = 0
    for match in _LONG_NUMBER.finditer(value):
        name = value[begin_of_name(value, match.start()) : match.start()]
        if name and values.is_drawn(match[1]) and not names.is_public(name):
            parts += [value[done : match.start(1)], REDACTED]
            done = match.end(1)
    return "".join([*parts, value[done:]]) if parts else value

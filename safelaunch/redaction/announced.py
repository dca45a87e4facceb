"""Secrets that a sentence announces: `Use the following password:`, `Incorrect API key provided: X`."""

from __future__ import annotations

import re

from safelaunch.redaction import assigned, names, values
from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.shapes import by_first_letter
from safelaunch.redaction.told import COLON, LONGEST_NAME, MARKS

# What services answer: `Incorrect API key provided: X`. In lower case; the value is looked at as it is.
_ANSWER = re.compile(
    r"(?:key|token|password|secret|credentials?|passphrase)"
    r"(?: (?:provided|used|given|received|was|is|value|of|for|sent|found|supplied|presented|rejected|set to|id)){0,3}"
    r"\s?[:=]?\s{1,2}[\"'`(]?([a-z0-9+/_=~.-]{6,512})"
)
_NO_LOCKS = (names.TABLES | names.PIECES) - {
    "invalid",
    "unknown",
    "unexpected",
    "missing",
    "any",
    "required",
    "expected",
}
# What is announced.
_KEYS = "api access secret license encryption private unseal account recovery shared signing master auth admin product"
_NOUN = "({})\\b".format(
    by_first_letter(
        [
            "passw(?:or)?d", "passphrase", "passcode", "credentials?", "secret", "token",
            *(rf"{word} code" for word in ("one-time", "verification", "recovery", "backup", "login")),
            *(rf"{word}[ _-]?keys?" for word in _KEYS.split()),
        ],
        r"\w",
    )
)  # fmt: skip
_NOUNS = re.compile(_NOUN)
_NEXT_LINE = rf"[ \t]{{0,16}}\r?\n[{MARKS}]?(?:[ \t]{{0,16}}\r?\n)?[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?)?[ \t]{{0,16}}"
_ALONE = r"\\{0,8}[\"'`(]?([^\s\"'`()\\]{6,512})[\"'`)]?(?=[ \t.]{0,8}(?:\(|\r?\n|\Z|\\{0,8}[\"'`]))"
# At the end of the line or as the next one.
_AT_THE_END = re.compile(
    rf"{_NOUN}([^\n:\uff1a]{{0,120}})(?::|{COLON}|(?<=[.!])(?={_NEXT_LINE}))(?:[ \t]{{1,8}}|{_NEXT_LINE}){_ALONE}"
)
# Within the sentence.
_WITHIN = re.compile(
    rf"{_NOUN}((?: [\w@.'-]{{1,40}}){{0,5}}? (?:is|set to|is now:?|generated -|created -|as)|(?<=password)) [\"'`\[]?"
    r"([^\s\"'`\[\]\\]{6,512})[\"'`\]]?(?=[\s,;.\\\"]|\Z)"
)
_USED = re.compile(r"\b(?:using|with)(?: the)? (passw(?:or)?d|passphrase|passcode) ()[\"'`]?([^\s\"'`\\]{6,128})")
_REVERSED = re.compile(
    r"[\"'`]([^\s\"'`]{6,128})[\"'`] (?:as|is) (?:your|the|an?) (?:[\w-]{1,20} ){0,3}"
    r"(?:password|passphrase|passcode|api key|secret|token)\b"
)
# `Log in with admin / X`, `the credentials are admin:X`.
_BOTH = re.compile(
    r"\b(?:credentials?|log ?in|sign in)(?: are| is| with| as| using|:){0,2} [\"'`]?[\w@.-]{1,40}[\"'`]?"
    r"(?: / |:)[\"'`]?([^\s\"'`/\\]{6,128})(?=[.,]?(?:\s|\Z|\\{0,8}[\"'`]))"
)
_SAID = re.compile(
    r"\b(?:your|new|generated|created|temporary|initial|default|following"
    r"|here|save|copy|store|note|shown|again|reset|was set|root)\b"
)
_REFUSED = re.compile(
    r"\b(?:required|expired|failed|invalid|wrong|incorrect|prompts?|policy|must|length|missing|error|denied|unknown"
    r"|not found|no|cannot|could|file|path|for|user|by|from|of|account|host|url|name|id|hash|commit|digest|type"
    r"|provider|count|limit|budget|revision|version|image|fingerprint|algorithm|size|number)\Z"
)
# How codes to recover an account look, in capitals or with digits.
_GROUPS = re.compile(r"(?:[A-Z0-9]{4,8}-){1,9}[A-Z0-9]{4,8}|(?=[a-z-]*[0-9])(?:[a-z0-9]{4,8}-){1,9}[a-z0-9]{4,8}")
# What names a number that everybody may know.
_OF_ALL = re.compile(
    r"\b(?:hash|digest|sha[0-9]{0,3}|commit|fingerprint|checksum|revision|image|etag|md5|count|index|ids?|uuid)\b"
)
ANNOUNCES = re.compile(
    r"(?:passw|passphrase|passcode|credential|secret|token|code|key)[^\n]{0,160}[.!:)][ \t\r]{0,8}\Z"
)

# Each with words of which one must be there.
_ANNOUNCED: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    ((":", ".", "!", "\uff1a", "uff1a"), _AT_THE_END),
    ((" is ", " set to ", "ted -", " as ", "password"), _WITHIN),
    (("passw", "passp", "passc"), _USED),
)
_TURNED: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    ((" as ", " is "), _REVERSED),
    (("credential", "log in", "login", "sign in"), _BOTH),
)


def without_announced(value: str, low: str) -> str:
    """A text without what its sentences announce. `low`: the text in lower case."""
    spans: list[tuple[int, int]] = []
    if _NOUNS.search(low):
        for words, pattern in _ANNOUNCED:
            if any(word in low for word in words):
                found = [match for match in pattern.finditer(low) if _is_announced(value, match, low)]
                spans += [match.span(3) for match in found]
    for words, pattern in _TURNED:
        if any(word in low for word in words):
            found = [match for match in pattern.finditer(low) if values.is_chosen(value[match.start(1) : match.end(1)])]
            spans += [match.span(1) for match in found]
    parts: list[str] = []
    done = 0
    for begin, end in sorted(spans):
        if begin >= done:
            parts += [value[done:begin], REDACTED]
            done = end - (value[end - 1] in ".,;")
    return "".join([*parts, value[done:]]) if parts else value


def _is_announced(value: str, match: re.Match[str], low: str) -> bool:
    found = value[match.start(3) : match.end(3)]
    noun, between = match[1], match[2].strip(" .!:()`'\"")
    bare = found.rstrip(".,;")
    line = low[max(low.rfind("\n", 0, match.start()) + 1, match.start() - 80) : match.end(2)]
    if _REFUSED.search(between) or _OF_ALL.search(between) or low[match.start() - 1 : match.start()] in ("-", "_", "/"):
        return False
    if noun in ("recovery code", "backup code") and _GROUPS.fullmatch(bare):
        return True
    if not values.is_chosen(bare):
        return False
    said = _SAID.search(line) is not None
    if noun.startswith(("passw", "passp", "passc")):
        said = said or bare[-2:].isdecimal() or " for " in match[2]
        return not values.PLAIN.fullmatch(bare) or (said and bare[-1].isdecimal())
    return values.is_random(bare) or (said and len(bare) >= 12 and not values.PLAIN.fullmatch(bare))


def without_answers(value: str, low: str) -> str:
    """A line without what looks drawn at random behind a word that tells. `low`: the line in lower case."""
    parts: list[str] = []
    done = 0
    for match in _ANSWER.finditer(low):
        begin, end = match.span(1)
        if low.endswith("gpg: ", 0, match.start()):
            continue  # the number of a public key
        if (
            match[0].startswith("key")
            and low[match.start() - 1 : match.start()] == " "
            and assigned.is_stored(low, match.start())
        ):
            continue
        end -= value[end - 1] == "."
        if _is_answer(value[begin:end], match[0], _name_before(low, match.start() - 1)):
            parts += [value[done:begin], REDACTED]
            done = end
    return "".join([*parts, value[done:]]) if parts else value


def _is_answer(found: str, told: str, before: str) -> bool:
    if before in _NO_LOCKS or (not before and told.startswith("key") and values.is_number_of_64_bits(found)):
        return False
    if told.startswith(("passw", "passphrase")) and (" is " in told or told[-len(found) - 1] in "\"'`"):
        letters = any(c.isalpha() for c in found)
        return letters and any(c.isdecimal() for c in found) and not values.is_file(found)
    return values.is_random(found)


def _name_before(value: str, end: int) -> str:
    """The word that ends here."""
    begin = end
    while begin > 0 and end - begin < LONGEST_NAME and value[begin - 1].isalnum():
        begin -= 1
    return value[begin:end]

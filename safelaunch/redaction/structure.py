"""Secrets by what stands around them: blocks of keys, URLs, headers, commands, names with values."""

from __future__ import annotations

import re

from safelaunch.redaction import commands, introduced, names, values
from safelaunch.redaction.commands import REDACTED

# Of private use in Unicode: behind an end of a line that was an escape, in a text within a text.
MARKS = "".join(map(chr, range(0xE000, 0xE010)))

# ------------------------------------------------------------------------------------------------- blocks of keys

BEGIN, END = "-----BEGIN ", "-----END "
_HEAD = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_TAIL = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_MARK = rf"[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?[ \t]?|[ \t]{{0,80}}[\"']?)"
_MARKED = re.compile(_MARK)
MOST = 20_000  # characters of a key


def without_blocks(value: str) -> str:
    """A text without private keys in PEM or OpenPGP's armor (RFC 7468, RFC 9580), be it cut at its begin or its end."""
    if "PRIVATE KEY" not in value:
        return value
    parts: list[str] = []
    at = 0
    first_end = _TAIL.search(value)
    first = _HEAD.search(value)
    cut = first_end is not None and (first is None or first_end.start() < first.start())
    if first_end and cut and _MARKED.fullmatch(value, value.rfind("\n", 0, first_end.start()) + 1, first_end.start()):
        at = first_end.end()  # the begin has been cut off
        parts += [value[: _begin_of_lines(value, first_end.start())], REDACTED]
    while head := _HEAD.search(value, at):
        tail = _TAIL.search(value, head.end(), head.end() + MOST)
        parts += [value[at : head.start()], REDACTED]
        at = tail.end() if tail else _end_of_lines(value, head.end())
    return "".join([*parts, value[at:]])


def _begin_of_lines(value: str, end: int) -> int:
    """Where the lines of base64 begin that end here."""
    begin = end
    for _ in range(400):
        before = value.rfind("\n", 0, max(begin - 1, 0)) + 1
        if begin == 0 or not _is_of_key(value[before:begin]):
            break
        begin = before
    return begin


def _end_of_lines(value: str, begin: int) -> int:
    """Where the lines of base64 end that begin here."""
    at = value.find("\n", begin)
    if at < 0:
        return len(value)
    for _ in range(400):
        after = value.find("\n", at + 1)
        if not _is_of_key(value[at + 1 : after if after >= 0 else len(value)]):
            return at
        if after < 0:
            return len(value)
        at = after
    return at


_LINE_OF_KEY = re.compile(
    _MARK + r"(?:[A-Za-z0-9+/=]{20,200}|[A-Za-z0-9+/=]{1,200}|[A-Z][A-Za-z-]{2,20}: [^\n]{1,100})?\s*[\"',]{0,2}\s*"
)


def _is_of_key(line: str) -> bool:
    return len(line) < 300 and _LINE_OF_KEY.fullmatch(line) is not None


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
# A prefix that nobody here knows, and what follows it.
_PREFIXED = re.compile(r"(?<=[_-])(?<!sha256-)(?<!sha384-)(?<!sha512-)[A-Za-z0-9]{32,512}(?![A-Za-z0-9_/.-]|\Z\.)")
_BARE = re.compile(r"(?<![\w/.-])(?:[0-9a-f]{24})?[0-9a-f]{40}(?![\w/.-])")
_TELLING = re.compile(r"api[ _-]?key|token|secret|login|credential|passw|bearer|unauthorized|authenticat")


def without_answers(value: str, low: str) -> str:
    """A line without what looks drawn at random behind a word that tells. `low`: the line in lower case."""
    parts: list[str] = []
    done = 0
    for match in _ANSWER.finditer(low):
        begin, end = match.span(1)
        if low.endswith("gpg: ", 0, match.start()):
            continue  # the number of a public key
        end -= value[end - 1] == "."
        if _is_answer(value[begin:end], match[0], _name_before(low, match.start() - 1)):
            parts += [value[done:begin], REDACTED]
            done = end
    return "".join([*parts, value[done:]]) if parts else value


def _is_answer(found: str, told: str, before: str) -> bool:
    if before in _NO_LOCKS:
        return False
    if told.startswith(("passw", "passphrase")) and (" is " in told or told[-len(found) - 1] in "\"'`"):
        letters = any(c.isalpha() for c in found)
        return letters and any(c.isdigit() for c in found) and not values.is_file(found)
    return values.is_random(found)


def without_random(value: str) -> str:
    """A line without numbers beside a word that tells, and without what follows a prefix and is drawn at random."""
    value = _PREFIXED.sub(lambda found: REDACTED if values.is_mixed(found[0]) else found[0], value)
    low = lower(value)
    if not _TELLING.search(low):
        return value

    def shown(found: re.Match[str]) -> str:
        line = low[low.rfind("\n", 0, found.start()) + 1 : (low.find("\n", found.end()) + 1 or len(low) + 1) - 1]
        told = values.is_drawn(found[0]) and _TELLING.search(line) and not names.is_public(line)
        return REDACTED if told else found[0]

    return _BARE.sub(shown, value)


# ------------------------------------------------------------------------------------------- names with values

# Where a value is yet to come: on the next line, in brackets, in a block of YAML, behind the mark of a rank.
OPEN = re.compile(
    r"(?:name[\"']?: ?[\"']?[\w-]{1,80}[\"']?,?|[=:(\[,|>\\]|[|>][+-]|[=:]\s?[\"']{1,3}[^\"'\n]*|</name>)[ \t\r]*\Z"
)
_NEXT = r"(?:[ \t]*[\\(\[|>]?[|>+-]{0,2}[ \t]*\r?\n[MARKS]?(?:\[[\w .:-]{1,40}\]:?)?[ \t]{0,80}(?:[-][ \t])?)".replace(
    "MARKS", MARKS
)
VALUE = (
    r"([rbfuRBFU]{0,2}(?:\\{0,8}\"){3}[^\"]{0,2048}(?:\\{0,8}\"){3}|\\{0,8}[rbfuRBFU]{0,2}\"[^\"]{0,2048}\"|\\{0,8}[rbfuRBFU]{0,2}'[^']{0,2048}'"
    r"|(?:[^\s\"',;&)}\]<>`]|`(?=\w)){1,2048}|<[^\s<>]{0,80}>)"
)
# Behind a name: what stands between it and its value, and that.
_ASSIGNED = re.compile(
    r"(\\{0,8}[\"']?[\])]?"
    rf"(?:\s{{0,3}}(?::=|=>|->|[=:]|\?=)(?:\s?!!?\w{{1,10}}\s)?(?:{_NEXT}|\s{{0,3}}[(\[]?\s{{0,3}})|>))" + VALUE
)
_GIVEN = re.compile(r"(\s+(?!-)|[\"'],\s*[\"'](?!-))" + VALUE)
# A part of each name that tells (`names.kind`), in lower case.
_TELLS = re.compile(
    r"pass|pwd|pw|secret|token|key|cred|cookie|auth|jwt|bearer|otp|webhook|pat|sas|psk|sig|mnemonic|seedphrase|login|basic|_sk"
)
_LONG_NUMBER = re.compile(r"[\"']?\s?[=:]\s?[\"']?((?:[0-9a-fA-F]{24})?[0-9a-fA-F]{40})(?![0-9A-Za-z_])")
LONGEST_NAME = 80  # characters

# In a line, in lower case: without one of these it holds none of what this file knows.
HINTS = (
    r"passw", r"passphrase", r"passcode", r"pass(?:in|out)?[=: ](?=pass:)", r"pass\b", r"pwd", r"secret",
    # Counts of tokens stand in each line of many logs, and `key=...` with a short value is no lock's.
    r"token(?!iz|s?[/ ](?:s\b|per|sec)|s?[\"']?\s?[=:]\s?[0-9]{1,7}\b)",
    r"key(?!error|board|words?\b|\(s\)|s\(\)|(?<![a-z0-9_-]key)[\"']?\s?[=:]\s?[\"']?[^\s\"',]{1,15}(?:[\s\"',]|$))",
    r"cred", r"auth(?!or\b|ors\b)", r"cookie", r"bearer", r"basic [a-z0-9+/]{12}", r"login", r"jwt", r"otp",
    r"://[^\s/]{0,200}[:@]", r"://[^\s]{0,200}[?&](?:sig|code|x-)", r"\?sig=", r"&sig=", r"signature", r"sas\b",
    r"curl", r"mysql", r"maria", r"redis-cli", r"mongo", r"ldap", r"sqlcmd", r"smbclient", r"unzip", r"zip -", r"7z",
    r"ipmitool", r"openssl", r"mc alias", r"hooks\.", r"webhook", r"telegram", r"ifttt",
    r"==(?<=[a-z0-9+/]{20}==)", r"lftp", r"keytool", r"rclone", r"logic\.azure",
    r"_[a-z0-9]{32}", r"-[a-z0-9]{32}", r"private", r"mnemonic", r"psk\b",
    r"uid=", r"user id=", r"sig=", r"_sk[\"']?\s?[=:]", r"honeycomb", r"/t/", r":[56]432:", r"from-literal", r"feishu",
    r"larksuite", r"ossutil", r"obsutil", r"tosutil", r"coscmd", r"sudo -s", *introduced.FOREIGN_HINTS,
    r"=[ \"']{0,2}[0-9a-f]{40}", r":[ \"']{0,2}[0-9a-f]{40}",
)  # fmt: skip


def is_secret(name: str, value: str, *, alone: bool, told: bool = False) -> bool:
    """Whether the value of a name is a secret.

    Args:
        name: of a variable, an option, a field.
        value: without its quotes.
        alone: it is all that stands behind the name, as in the environment, and no word of a sentence.
        told: in prose or a document, where `token: x` may be a sentence.
    """
    kind = names.kind(name)
    if not kind:
        return values.is_drawn(value) and not names.is_public(name)
    if values.is_stand_in(value) or REDACTED in value[:64] or names.words(value[:LONGEST_NAME]) == names.words(name):
        return False  # `--api-key API_KEY` in a help text, `token=token` in a line of code
    if kind == "password":
        return _is_password(name, value, told=told)
    if values.NUMBER.fullmatch(value, 0, 64) or values.is_file(value):
        return kind == "secret" and value.isdigit() and len(value) >= 8
    if kind == "secret":
        return len(value) >= 4 and not (told and _is_prose(name, value))
    if values.is_random(value) or values.is_login(value):
        return True
    loud = alone and name.isupper() and names.words(name)[-1] in ("key", "keys", "auth")
    return loud and len(value) >= 6 and not values.is_word(value)


def _is_prose(name: str, value: str) -> bool:
    """Whether `token: x` may be a sentence, or a table of names."""
    if names.words(name)[-1] in ("token", "key", "keys", "cookie", "cookies"):
        return values.PLAIN.fullmatch(value) is not None
    return value.isalpha() or (values.is_word(value.rstrip(".")) and not value[-1].isdigit())


def _is_password(name: str, value: str, *, told: bool) -> bool:
    last = names.words(name)[-1]
    if (last == "pwd" and value.startswith(("/", "~"))) or value in ("0", "1"):
        return False
    if last in ("pass", "pw") and values.NUMBER.fullmatch(value):
        return False  # `pass: 3`
    return not told or (len(value) >= 4 and not (last == "passwd" and value.isalpha()))


def without_named(value: str) -> str:
    """A line without the values of names that tell a secret, of options, and of what services answer."""
    value = commands.without(value)
    value = _PAIR.sub(_of_pair, _without_long_numbers(_without_named(value, lower(value))))
    value = _PROPERTY.sub(_of_pair, value)
    value = without_answers(value, lower(value))
    return without_random(value)


# `name: NAME`, then `value: ...`: variables of a container.
_PAIR = re.compile(
    r"(\b(?:name|key)\\{0,8}[\"']?\s?[:=]\s?\\{0,8}[\"']?([A-Za-z_][\w.-]{1,80})\\{0,8}[\"']?,?[\sMARKS]{1,20}\\{0,8}[\"']?value\\{0,8}[\"']?\s?[:=]\s?)".replace(
        "MARKS", MARKS
    )
    + VALUE
)


# A property of Hadoop's: `<name>NAME</name> <value>...</value>`.
_PROPERTY = re.compile(rf"(<name>\s?([\w.-]{{1,120}})\s?</name>[\s{MARKS}]{{0,80}}<value>)([^<\n]{{1,2048}})")


def _of_pair(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    bare = value.lstrip("\\").strip("\"'\\")
    if not is_secret(name, bare, alone=True):
        return match[0]
    quotes = value[: len(value) - len(value.lstrip("\\\"'"))]
    return f"{before}{quotes}{REDACTED}{quotes}"


def lower(value: str) -> str:
    """In lower case, each character in its place: the lower case of some is two."""
    low = value.lower()
    return low if len(low) == len(value) else "".join(c.lower() if c.isascii() else c for c in value)


def _begin_of_name(value: str, at: int) -> int:
    """Where the name begins that a part of it is at `at`."""
    begin = at
    while begin > 0 and at - begin < LONGEST_NAME and (value[begin - 1].isalnum() or value[begin - 1] in "_.-"):
        begin -= 1
    return begin


def _name_before(value: str, end: int) -> str:
    """The word that ends here."""
    begin = end
    while begin > 0 and end - begin < LONGEST_NAME and value[begin - 1].isalnum():
        begin -= 1
    return value[begin:end]


_REST_OF_NAME = re.compile(r"[\w.-]{0,80}")


def _without_named(value: str, low: str) -> str:
    parts: list[str] = []
    done = at = 0
    while told := _TELLS.search(low, at):
        begin = _begin_of_name(value, told.start())
        rest = _REST_OF_NAME.match(value, told.end())
        at = rest.end() if rest else told.end()
        name = value[begin:at].lstrip("-.")
        if value[begin - 1 : begin] == "$" or not name or not names.kind(name):
            continue
        given = value[begin] == "-"
        match = _ASSIGNED.match(value, at) or (_GIVEN.match(value, at) if given else None)
        shown = _named_value(name, match, given=given) if match else None
        if match and shown is not None:
            parts += [value[done : match.start()], shown]
            done = at = match.end()
    return "".join([*parts, value[done:]]) if parts else value


def _named_value(name: str, match: re.Match[str], *, given: bool) -> str | None:
    """What to show behind a name instead; None where it is no secret."""
    between, value = match.groups()
    bare = _STRING_PREFIX.sub("", value).lstrip("\\").strip("\"'\\")
    quoted = value != bare
    if "\n" in between and not (quoted or "|" in between or ">" in between or "\\" in between):
        return None
    alone = given or "=" in between or quoted or not between.strip()
    if not is_secret(name, bare, alone=alone, told=":" in between and not quoted):
        return None
    quotes = value[: len(value) - len(value.lstrip("\\\"'"))] if value[0] in "\\\"'" else ""
    return f"{between}{quotes}{REDACTED}{quotes}"


_STRING_PREFIX = re.compile(r"\A\\{0,8}[rbfuRBFU]{0,2}(?=[\"'])")


def _without_long_numbers(value: str) -> str:
    """A line without numbers that only keys are, under names that do not say that they are public."""
    parts: list[str] = []
    done = 0
    for match in _LONG_NUMBER.finditer(value):
        name = value[_begin_of_name(value, match.start()) : match.start()]
        if name and values.is_drawn(match[1]) and not names.is_public(name):
            parts += [value[done : match.start(1)], REDACTED]
            done = match.end(1)
    return "".join([*parts, value[done:]]) if parts else value

"""Secrets by what stands around them: blocks of keys, URLs, headers, commands, names with values."""

from __future__ import annotations

import re

from safelaunch.redaction import announced, assigned, commands, introduced, names, pairs, refused, values
from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.told import COLON, MARKS

# ------------------------------------------------------------------------------------------------- blocks of keys

BEGIN, END = "-----BEGIN ", "-----END "
_HEAD = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_TAIL = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_MARK = rf"[{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?[ \t]?|[ \t]{{0,80}}[\"']?)"
_MARKED = re.compile(_MARK)
MOST = 20_000  # characters of a key


def without_blocks(value: str, *, lines: bool = False) -> str:
    """A text without private keys in PEM or OpenPGP's armor (RFC 7468, RFC 9580), be it cut at its begin or its end;
    with as many `lines`, where asked."""
    if "PRIVATE KEY" not in value:
        return value
    parts: list[str] = []
    at = 0
    first_end = _TAIL.search(value)
    first = _HEAD.search(value)
    cut = first_end is not None and (first is None or first_end.start() < first.start())
    if first_end and cut and _MARKED.fullmatch(value, value.rfind("\n", 0, first_end.start()) + 1, first_end.start()):
        at = first_end.end()  # the begin has been cut off
        begin = _begin_of_lines(value, first_end.start())
        parts += [value[:begin], _instead(value, begin, at) if lines else REDACTED]
    while head := _HEAD.search(value, at):
        tail = _TAIL.search(value, head.end(), head.end() + MOST)
        end = tail.end() if tail else _end_of_lines(value, head.end())
        parts += [value[at : head.start()], _instead(value, head.start(), end) if lines else REDACTED]
        at = end
    return "".join([*parts, value[at:]])


def _instead(value: str, begin: int, end: int) -> str:
    return "\n".join([REDACTED] * (value.count("\n", begin, end) + 1))


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


# A prefix that nobody here knows, and what follows it.
_PREFIXED = re.compile(r"(?<=[_-])(?<!sha256-)(?<!sha384-)(?<!sha512-)[A-Za-z0-9]{32,512}(?![A-Za-z0-9_/.-]|\Z\.)")
_BARE = re.compile(r"(?<![\w/.-])(?:[0-9a-f]{24})?[0-9a-f]{40}(?![\w/.-])")
_TELLING = re.compile(r"api[ _-]?key|token|secret|login|credential|passw|bearer|unauthorized|authenticat")


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
    r"(?:name[\"']?: ?[\"']?[\w-]{1,80}[\"']?,?|[=:(\[,|>\\]|[|>][+0-9-]{1,2}|[=:]\s?[\"']{1,3}[^\"'\n]*"
    r"|</(?:name|key|value)>|</t[dh]>|(?<![\w-])--?[A-Za-z][\w-]{1,60}\\{0,8}[\"']?|\b(?i:bearer|basic)"
    rf"|<<[-~]?\s?[\"']?\w{{1,20}}[\"']?|{COLON})[ \t\r]*\Z"
)

# In a line, in lower case: without one of these it holds none of what this file knows.
HINTS = (
    r"passw", r"pass[_-]?phrase", r"passcode", r"_pat\b", r"pw[\"']?\s?[=:]", r"bindpw", r"rootpw", r"salt\b",
    r"sess(?:ion)?id[\"']?\s?[=:]", r"sid[\"']?\s?[=:]", r"_session[\"']?\s?[=:]", r"fernet", r"hmac",
    r":[^\s:@/]{6,64}@[a-z0-9.-]{1,100}:[0-9]", r"jdbc:oracle", r"a[ks]ia[0-9a-z]{16}:", r"<<<", r"<\(",
    r"seed[ _-]phrase", r"recovery phrase", r"vault", r"put-parameter", r"snowsql", r"sqlplus", r"expdp", r"impdp",
    r"useradd", r"usermod", r"net use", r"luksopen", r"swanlab",
    r"::add-mask::", r"codecov",
    r"pass(?:in|out)?[=: ](?=pass:)", r"pass\b", r"pwd", r"secret",
    # Counts of tokens stand in each line of many logs, and `key=...` with a short value is no lock's.
    r"token(?!iz|s?[/ ](?:s\b|per|sec)|s (?:seen|processed|trained|consumed|so far)|s?[\"']?\s?[=:]\s?[0-9]{1,7}\b)",
    r"key(?!error|board|words?\b|\(s\)|s\(\)|(?<![a-z0-9_-]key)[\"']?\s?[=:]\s?[\"']?[^\s\"',]{1,15}(?:[\s\"',]|$))",
    r"cred", r"auth(?!or\b|ors\b)", r"cookie", r"bearer", r"basic [a-z0-9+/]{12}", r"login", r"jwt", r"otp",
    r"://[^\s/]{0,200}[:@]", r"://[^\s]{0,200}[?&](?:sig|code|x-)", r"\?sig=", r"&sig=", r"signature", r"sas\b",
    r"curl", r"mysql", r"maria", r"redis-cli", r"mongo", r"ldap", r"sqlcmd", r"smbclient", r"unzip", r"zip -", r"7z",
    r"ipmitool", r"openssl", r"mc alias", r"hooks\.", r"webhook", r"telegram", r"ifttt",
    r"==(?<=[a-z0-9+/]{20}==)", r"lftp", r"keytool", r"rclone", r"logic\.azure",
    r"_[a-z0-9]{32}", r"-[a-z0-9]{32}", r"private", r"mnemonic", r"psk\b",
    r"uid=", r"user id=", r"sig=", r"_sk[\"']?\s?[=:]", r"honeycomb", r"/t/", r":[56]432:", r"from-literal", r"feishu",
    r"response=\\{0,8}\"[0-9a-f]{32}",
    r"larksuite", r"ossutil", r"obsutil", r"tosutil", r"coscmd", r"sudo -s", *introduced.FOREIGN_HINTS,
    r"one-time code", r"recovery code", r"verification code", r"backup code", r"login code",
    r"log in with", r"sign in with", *introduced.KEPT_HINTS,
    r"\\u00[2-7][0-9a-f]", r"@\S{0,80}\\/",  # what JSON need not escape
    r"=[ \"']{0,2}[0-9a-f]{40}", r":[ \"']{0,2}[0-9a-f]{40}",
)  # fmt: skip


def without_named(value: str) -> str:
    """A line without the values of names that tell a secret, of options, and of what services answer."""
    value = commands.without(value)
    value = assigned.without_long_numbers(assigned.without_named(value, lower(value)))
    value = refused.without_refused(pairs.without_pairs(value))
    value = announced.without_announced(value, lower(value))
    value = announced.without_answers(value, lower(value))
    return without_random(value)


def lower(value: str) -> str:
    """In lower case, each character in its place: the lower case of some is two."""
    low = value.lower()
    return low if len(low) == len(value) else "".join(c.lower() if c.isascii() else c for c in value)

"""What is a secret among variables of the environment and in texts: shared by all that shows them or hands them on."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

# TOKENIZERS_PARALLELISM, which many set, is none.
SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|(^|_)KEYS?(_|$)|PRIVATE|COOKIE|AUTH"
    r"|_(PWD|PASS)$",
    re.IGNORECASE,
)
URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret: by its name, or by credentials in a URL."""
    return bool(SECRET.search(name) or URL_CREDENTIALS.search(value))


def redact(name: str, value: str) -> str:
    """The value as it may be shown to a colleague."""
    return "<redacted>" if SECRET.search(name) and value else URL_CREDENTIALS.sub("<redacted>@", value)


REDACTED = "<redacted>"

# Tokens that can be told by their own shape, as their issuers and the secret scanners of GitHub and GitLab list them.
SHAPES = (
    r"(?:hf|api_org)_[A-Za-z0-9]{20,}",  # Hugging Face
    r"gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[A-Za-z0-9_.-]{18,}",
    r"sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",  # Stripe
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}",  # AWS
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}",  # Slack
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web tokens
    r"AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",  # Google
    r"npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{20,}|dckr_pat_[A-Za-z0-9_-]{20,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",  # SendGrid, Shopify
    r"r8_[A-Za-z0-9]{37}|gsk_[A-Za-z0-9]{40,}|nvapi-[A-Za-z0-9_-]{40,}|tgp_v1_[A-Za-z0-9_-]{30,}",
    r"dapi[0-9a-f]{32}(?:-[0-9])?|do[opr]_v1_[0-9a-f]{64}|hv[sb]\.[A-Za-z0-9_-]{24,}",
    r"wandb_v[0-9]_[A-Za-z0-9_]{30,}|tskey-[a-z]+-[A-Za-z0-9-]{16,}|lin_api_[A-Za-z0-9]{32,}",
)

# What stands after these belongs to them. Group 1 stays, the rest of the match goes. In front of each, what a text has
# to hold in lower case: most texts have none of it, and looking for that takes no time.
INTRODUCED = (
    (
        "authorization",
        r"((?i:authorization)\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}\\{0,8}[\"']?"
        r"(?i:(?:bearer|basic|token|digest|apikey)\s+)?)[^\s\"',\\]+",
    ),
    ("bearer", r"(\b[Bb]earer\s+)[A-Za-z0-9._~+/-]{16,}=*"),
    ("cookie", r"((?i:\b(?:set-)?cookie)\\{0,8}[\"']?\s?:\s?\\{0,8}[\"']?)(?=[^\s\"'=]+=)[^\"'\n]+"),
    ("wandb", r"((?i:wandb)[^\n]{0,40}?(?i:login|key)[^\n]{0,20}?\b)[0-9a-f]{40}\b"),
    ("login", r"(\blogin\s+\S+\s+password\s+)\S+"),  # .netrc
    ("curl", r"(\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[\s=]+[\"']?[^\s:\"']+:)[^\s\"']+"),
    ("hooks.slack.com", r"(https?://hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]+"),
    ("discord", r"(https?://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9/_-]+"),
    (
        "",
        r"([?&](?i:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|AWSAccessKeyId|key)=)[^&\s\"'<>]{8,}",
    ),
    ("://", r"(\b\w{1,20}://)[^/\s:@\"'<>]*:[^/\s\"'<>]+(?=@)"),
    ("://", r"(\bhttps?://)[A-Za-z0-9_-]{20,}(?=@)"),
)
PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)


# `name=value`, `name: value`, `"name": "value"`, then `--name value` and `"--name", "value"`; values may be quoted.
VALUE = r"(\\{0,8}\"[^\"\n]{0,2048}\"|\\{0,8}'[^'\n]{0,2048}'|[^\s\"',;&)}\]]{1,2048})"
ASSIGNED = r"(?<![\w$-])(-{0,2}\\{0,8}[\"']?)([A-Za-z_][\w.-]{1,80})(\\{0,8}[\"']?\s{0,3}[=:]\s{0,3})" + VALUE
GIVEN = r"(?<![\w-])(--?)([A-Za-z][\w.-]{1,80})(\s+(?!-)|[\"'],\s*[\"'](?!-))" + VALUE

STRONG = re.compile(
    r"passw(?:or)?d|passwd|passphrase|secret|credentials?"
    r"|(?:secret|api|access|private|signing|encryption|account|master|storage|ssh|wandb)_?keys?(?:_?id)?"
)
TOKEN = re.compile(r"tokens?")
PIECE = re.compile(
    r"(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|special|next|last|first|num|max|min|per|new|total|prompt|input"
    r"|output|stop|end|start|target|draft|eo[td]|fim|bad|current|prev|sampled|generated|decoded|tool|user|think)_?tokens?"
)
HARMLESS = re.compile(
    r"[-+]?[0-9][0-9.,_]*[a-z%]{0,3}|none|null|true|false|required|missing|\*+|[<\[{($].*|", re.I | re.S
)
FILE = re.compile(r"(?:~|\.{1,2})?/[\w./-]+|\w+\.(?:json|txt|pem|key|toml|yaml|model)")
RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/_=.~-]{16,}")
ESCAPED = re.compile(r"(\\{1,16}[nrt])")
SHORTEST = 6  # characters: nothing that is shorter can be a secret with its name


def text(value: str) -> str:
    """Any text (a log, a traceback, a command line, a document) without what looks like a secret in it.

    Known shapes of tokens go, private keys, credentials in URLs, and what stands behind the name of a secret. Counts
    of tokens, pieces of text that tokenizers call tokens, hashes and paths stay.
    """
    if len(value) < SHORTEST:
        return value
    if ESCAPED.search(value):
        # A text within a text, such as a log in JSON: its lines are looked at one by one, then what spans them.
        value = _patterns()[0][1].sub(REDACTED, value)
        value = "".join(
            part if len(part) < SHORTEST or at % 2 else _plain(part) for at, part in enumerate(ESCAPED.split(value))
        )
    return _plain(value)


def _plain(value: str) -> str:
    low = value.lower()
    for hint, pattern, replacement in _patterns():
        if hint in low:
            value = pattern.sub(replacement, value)
    for pattern in _named():
        value = _without_named(pattern, value)
    return value


def arguments(values: list[str]) -> list[str]:
    """A command line without its secrets: `--api-key X` stands in two of its words."""
    shown: list[str] = []
    for before, value in zip(["", *values], values, strict=False):
        name = before.lstrip("-")
        given = before.startswith("-") and "=" not in before and not value.startswith("-")
        shown.append(REDACTED if given and value and _is_named_secret(name, value, given=True) else text(value))
    return shown


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Compiled at first use: a launch that shows nothing does not pay for them."""

    def compiled() -> Iterator[tuple[str, re.Pattern[str], str]]:
        yield "-----begin ", re.compile(PRIVATE_KEY, re.DOTALL), REDACTED
        for hint, pattern in INTRODUCED:
            yield hint, re.compile(pattern), r"\g<1>" + REDACTED
        yield "", re.compile(r"(?<![A-Za-z0-9_-])(?:" + "|".join(SHAPES) + ")"), REDACTED

    return tuple(compiled())


@functools.cache
def _named() -> tuple[re.Pattern[str], ...]:
    return (re.compile(ASSIGNED), re.compile(GIVEN))


def _without_named(pattern: re.Pattern[str], value: str) -> str:
    parts: list[str] = []
    done = at = 0
    while match := pattern.search(value, at):
        shown = _named_value(match)
        if shown is None:
            at = match.start(4) + match[4].startswith(("'", '"', "\\"))  # a message in quotes may hold another one
        else:
            parts += [value[done : match.start()], shown]
            done = at = match.end()
    return "".join([*parts, value[done:]])


def _named_value(match: re.Match[str]) -> str | None:
    """What to show instead; None where it is no secret."""
    before, name, between, value = match.groups()
    bare = value.lstrip("\\").strip("\"'\\")
    given = before.startswith("-") or not between.strip()
    if not _is_named_secret(name, bare, given=given, told=":" in between):
        return None
    quotes = value[: len(value) - len(value.lstrip("\\\"'"))]
    return f"{before}{name}{between}{quotes}{REDACTED}{quotes}"


def _is_named_secret(name: str, value: str, *, given: bool, told: bool = False) -> bool:
    """Whether the value of `name` is a secret. `given`: in a command line; `told`: in prose or a document."""
    plain = name.lower().replace("-", "_").replace(".", "_")
    if HARMLESS.fullmatch(value):
        return False
    if _ends(STRONG, plain):
        return ("pass" in plain or not FILE.fullmatch(value)) and (not told or len(value) >= 4)
    if FILE.fullmatch(value):
        return False
    if _ends(TOKEN, plain):
        if plain.endswith("s") or _ends(PIECE, plain):
            return not _ends(PIECE, plain) and RANDOM.fullmatch(value) is not None
        return RANDOM.fullmatch(value) is not None or (len(value) >= SHORTEST and (given or not told))
    shouted = name.isupper() and SECRET.search(name) is not None and "AUTHOR" not in name
    return shouted and len(value) >= SHORTEST


def _ends(pattern: re.Pattern[str], name: str) -> bool:
    return any(found.end() == len(name) for found in pattern.finditer(name))


def document(value: Any, name: str = "") -> Any:
    """A JSON document without its secrets: by the names of its fields, and in all of its texts and command lines."""
    if isinstance(value, dict):
        # Settings stand as `NAME: {value: ..., origin: ...}`.
        return {key: document(item, name if key == "value" else str(key)) for key, item in value.items()}
    if isinstance(value, list):
        words = all(isinstance(item, str) for item in value)
        return arguments(value) if words else [document(item) for item in value]
    if not isinstance(value, str):
        return value
    return REDACTED if name and _is_named_secret(name, value, given=False, told=True) else text(value)

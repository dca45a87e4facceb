"""How a value looks: as a setting, a file, a stand-in, or as drawn at random."""

from __future__ import annotations

import base64
import re

# What stands where a secret may stand, and is none: stand-ins, references to variables, words of settings, code.
STAND_IN = re.compile(
    r"none|null|nil|true|false|yes|no|on|off|auto|required|optional|missing|empty|unset|disabled|enabled"
    r"|text|integer|number|value|file|path|filename|directory|url|name"
    r"|to|for|and|or|the|is|in|from|with|via|if|option|flag|argument|must|may|was|not|[a-z_]+:"
    r"|not[ _-]?set|set|undefined|default"
    r"|hidden|masked|redacted|removed|invalid|expired|unknown|n/?a|(?:[a-z]{1,6}[_-])?\*+|x{3,}|\.{3,}|-+|changeme|example|placeholder|dummy"
    r"|basic|bearer|digest|negotiate|ntlm|oauth2?|token|password|secret|key|keys|str|string|bytes|int|float|bool|object"
    r"|your[-_a-z ]*|my[-_ ]?(?:token|key|password|secret)|[<{($%].*|\[(?:redacted|filtered|pad|unk|mask|cls|sep).*"
    r"|\[[\d\s,.+-]{0,200}\]|\#[0-9a-f]{3,8}|sig(?:[a-z]{2,6}[12]?|rtm(?:in|ax)[+-][0-9]{1,2})"
    r"|sensitive|(?:os\.|var\.|local\.|secrets\.|self\.|args\.|cfg\.|config\.|env\.|getenv|environ|settings\.)[\w.\[\]()'\"]*|[a-z_][a-z_.]*[(\[].*|",
    re.IGNORECASE | re.DOTALL,
)
NUMBER = re.compile(r"[-+]?(?:[0-9][0-9.,_]*(?:e[-+]?[0-9]+)?|0x[0-9a-f]+)[a-z%/]{0,5}", re.IGNORECASE)
FILE = re.compile(
    r"(?:~|\.{1,2})?/[\w./@+-]+|(?:[\w.-]+/)*[\w.-]+\.(?:json|txt|pem|key|crt|cer|pub|toml|ya?ml|model|bin|pt|pth|csv"
    r"|safetensors|py|ini|cfg|conf|env|log|sock|jsonl|parquet|arrow|npy|npz|tar|zip)(?:\.(?:gz|bz2|xz|zst))?"
)
PIECE = re.compile(r"(?:\#\#|[ \u0120\u2581])?[A-Za-z]{1,15}")  # of a text, as tokenizers cut it
# Words and small numbers: a name.
PLAIN = re.compile(r"[A-Za-z]+[0-9]{0,4}(?:[ _.:/-](?:[A-Za-z]+[0-9]{0,4}|[0-9]{1,4}))*")
# Where something lies in a store: `ray:gcs:node:...`.
PLACE = re.compile(r"(?:[A-Za-z][A-Za-z_-]{0,30}[:/]){2,}")
# What has letters and digits, and is known to all.
_KNOWN = re.compile(
    r"v?[0-9]+(?:\.[0-9]+)+\S*|[\w.-]+:[0-9]{1,5}(?:/\S*)?|\S+@[\w-]+(?:\.[\w-]+)+|\S+\.(?:org|com|net|io|de|edu|gov|local)"
    r"|[\w.-]+[=<>~!]=\S+|\S*://\S*|<\S*|[\[{($%&]\S*|\S*[/\\]\S*\.\w{1,5}|[\w.-]+\(\S*\)?|0x\S+|[0-9]{4}-[0-9]{2}-\S+"
    r"|[0-9.,:]+[A-Za-z%/]{0,6}|\S*<redacted>\S*|[A-Za-z_]+=\S*"
)
HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
RUN = re.compile(r"[A-Za-z0-9+/=_~-]{12,}")
CHANGES = re.compile(r"[a-z](?=[0-9A-Z])|[0-9](?=[A-Za-z])|[A-Z](?=[0-9])")
DIGIT_CHANGES = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
LONGEST = 512  # characters that are looked at: what follows does not make it less random


def is_harmless(value: str) -> bool:
    """A stand-in, a number or a switch."""
    return STAND_IN.fullmatch(value, 0, LONGEST) is not None or NUMBER.fullmatch(value, 0, 64) is not None


def is_stand_in(value: str) -> bool:
    """Something that stands where a secret may stand; numbers are none."""
    return STAND_IN.fullmatch(value, 0, LONGEST) is not None


def is_file(value: str) -> bool:
    """A path, or the name of a file."""
    return FILE.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Whether letters and digits change as often as in what is drawn at random: 16 characters or more, without what
    names are made of."""
    value = value[:LONGEST]
    if len(value) < 16 or is_file(value) or value.startswith(("http://", "https://")):
        return False
    if UUID.fullmatch(value):
        return True
    for run in RUN.findall(value):
        digits = len(DIGIT_CHANGES.findall(run))
        if HEX.fullmatch(run) and not run.isdecimal() and digits >= 4 and len(run) >= 16:
            return True
        if digits >= 2 and len(CHANGES.findall(run)) * 4 >= len(run) >= 16 and not PLAIN.fullmatch(run):
            return True
        if run.endswith("=") and len(run) >= 16 and run.rstrip("=").isalnum():
            return True  # base64
        if digits >= 1 and len(run) >= 32 and len(CHANGES.findall(run)) >= 8:
            return True
    return False


def is_alternating(value: str) -> bool:
    """Whether letters and digits follow each other as in no name: 10 characters or more."""
    return 10 <= len(value) <= LONGEST and value.isalnum() and len(DIGIT_CHANGES.findall(value)) * 2 >= len(value)


def is_mixed(value: str) -> bool:
    """Letters of both kinds and digits, changing often: what base62 of something random looks like."""
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(kind(c) for c in value) for kind in kinds) and len(CHANGES.findall(value)) * 4 >= len(value)


def is_login(value: str) -> bool:
    """Whether base64 of `user:password` (RFC 7617, and Docker's config.json)."""
    if len(value) < 8 or len(value) > LONGEST or len(value) % 4 or not RUN.fullmatch(value):
        return False
    try:
        plain = base64.b64decode(value, validate=True).decode("ascii")
    except ValueError:
        return False
    return plain.isprintable() and ":" in plain


def is_word(value: str) -> bool:
    """Words, such as `val_loss` or `image/png`, with a number at the end."""
    return re.fullmatch(r"[A-Za-z]+(?:[ _.:/,-][A-Za-z]+)*[0-9]*", value) is not None


def is_drawn(value: str) -> bool:
    """Whether a value alone tells that it is a key: 40 or 64 hexadecimal digits."""
    return len(value) in (40, 64) and HEX.fullmatch(value) is not None and len(DIGIT_CHANGES.findall(value)) >= 8


def is_number_of_64_bits(value: str) -> bool:
    """Hexadecimal digits of an address, or of a key in a table."""
    return len(value) <= 16 and HEX.fullmatch(value) is not None


def is_chosen(value: str) -> bool:
    """Whether it looks as passwords do that people choose or programs make: letters beside digits or marks."""
    if not 6 <= len(value) <= LONGEST or is_stand_in(value) or is_file(value) or _KNOWN.fullmatch(value):
        return False
    if is_letters(value):
        return True
    if any(c.isdecimal() for c in value):
        return any(c.isalpha() for c in value)
    kinds = (
        any(c.isupper() for c in value),
        any(c.islower() for c in value),
        any(c in "!#%*@+$^&?" for c in value[:-1]),
    )
    return all(kinds) and not value.isidentifier()


def is_letters(value: str) -> bool:
    """Whether it is of letters only whose kind changes as often as in what is drawn at random."""
    return value.isalpha() and len(value) >= 16 and len(re.findall(r"[a-z](?=[A-Z])", value)) * 5 > len(value)

"""Secrets in what programs say of a value that they refuse, and at a login without a scheme: the name is known, or the
place tells."""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.redaction import names, values
from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.told import MARKED, QUOTED, is_secret, redacted, split

_NAME = r"([A-Za-z_][\w.-]{1,80})"
# pydantic: the name of a field on a line, and below it what is wrong with its value.
_FIELD = re.compile(
    rf"((?:\A|[\n\"']){MARKED}{_NAME}[ \t]{{0,8}}\n[^\n]{{0,400}}?\binput_value=)({QUOTED}|[^\s,\]]{{1,512}})"
)
# argparse: `argument -t/--token: invalid int value: 'X'`.
_OPTION = re.compile(
    rf"(\b[Aa]rgument (?:-\w[/,] ?)?-{{0,2}}{_NAME}(?:[/,] ?-\w)?: [^\n'\"]{{0,80}}(?:value|choice): ?)({QUOTED})"
)
# OmegaConf: the value, and the path of its field on one of the next lines.
_PATH = re.compile(
    rf"(\bValue )({QUOTED})(?=[^\n]{{0,300}}(?:\n[^\n]{{0,200}}){{0,2}}\n{MARKED}full_key: ([\w.\[\]-]{{1,200}}))"
)
# `ada:X@host:5432`.
_LOGIN = re.compile(
    r"((?<![\w./:@-])[A-Za-z][\w.-]{0,31}:)([^\s:@/\"'<>]{6,64})(?=@(?!sha[0-9])[A-Za-z0-9][\w.-]{0,100}:[0-9]{2,5}(?!\w))"
)


def without_refused(value: str) -> str:
    """A text without values that were refused under a name that tells, and without passwords of logins."""
    if "input_value=" in value:
        value = _FIELD.sub(_shown(2, 3), value)
    if "rgument " in value:
        value = _OPTION.sub(_shown(2, 3), value)
    if "full_key" in value:
        value = _PATH.sub(_shown(3, 2), value)
    if "@" in value:
        value = _LOGIN.sub(lambda found: found[1] + REDACTED if values.is_chosen(found[2]) else found[0], value)
    return value


def _shown(name: int, secret: int) -> Callable[[re.Match[str]], str]:
    """What to show instead; the arguments are groups."""

    def shown(found: re.Match[str]) -> str:
        tells = names.kind(found[name]) and is_secret(found[name], split(found[secret])[1], alone=True)
        return found[1] + redacted(found[secret]) if tells else found[0]

    return shown

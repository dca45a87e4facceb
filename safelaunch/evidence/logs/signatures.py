"""The known messages: what they mean and where they lead. Shipped ones lie beside this file; users add their own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch import codes, regular, toml, user_files
from safelaunch.model import SafelaunchError
from safelaunch.model.logs import Known

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "signatures.toml")
ROLES = ("cause", "consequence", "outside", "alarm", "note")
_OF_EXCEPTIONS = ("cause", "consequence", "outside")
_KEYS = {"name", "pattern", "contains", "role", "code", "means", "remedy", "sources"}
_REQUIRED = ("name", "pattern", "role", "means")


@dataclass(frozen=True)
class Signature:
    """One known message.

    `pattern` is searched in each line that holds one of the texts of `contains`; without `contains` every line is
    searched, which is slow in large files. A part of the pattern named `rank` (`(?P<rank>\\d+)`) says which rank the
    message is about, where that is not the rank that wrote it. `own` is one of a user's file.
    """

    known: Known
    pattern: re.Pattern[str]
    contains: tuple[str, ...]
    sources: tuple[str, ...] = ()
    own: bool = False

    def search(self, text: str) -> re.Match[str] | None:
        """The message in a line, if it is there."""
        if self.contains and not any(part in text for part in self.contains):
            return None
        return self.pattern.search(text)


def user_file(environ: Mapping[str, str]) -> str:
    """The path of the user's own signatures, which may not exist."""
    return user_files.config(environ, "signatures.toml")


def load(
    files: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    broken: Callable[[SafelaunchError], None] | None = None,
) -> tuple[Signature, ...]:
    """A file of signatures cannot be used.

    Signatures are known messages, of logs and of the exceptions of a run. Those of `--signatures FILE` come first, then
    those that a profile names (`signatures` in [diagnosis]), then those of $XDG_CONFIG_HOME/safelaunch/signatures.toml
    (~/.config where that is not set), then the shipped ones; the first that fits a line is taken, and a name that is
    used again replaces the later one. Each is a table [[signature]] with `name`, `pattern` (a regular expression of
    Python, searched in one line), `role` (cause, consequence, outside, alarm or note) and `means`. It may have
    `contains` (texts of which one is in every such line, which makes reading fast), `code` (the code it leads to),
    `remedy` and `sources`.

    How it is concluded: the file cannot be read, is not TOML, or has a table that is incomplete or not understood; the
    message names the file and the signature. A launch goes on without that file, with a warning.

    What to do: compare with the shipped file, whose path the message names.
    """
    own = user_file(environ)
    paths = [*files, *([own] if os.path.exists(own) else []), SHIPPED]
    found: dict[str, Signature] = {}
    for path in paths:
        try:
            read = _read(path)
        except SafelaunchError as error:
            if broken is None:
                raise
            broken(error)
            continue
        for signature in read:
            signature = replace(signature, own=path != SHIPPED)
            found.setdefault(signature.known.name, signature)
    return tuple(found.values())


def shipped() -> tuple[Signature, ...]:
    """Those that come with safelaunch."""
    return tuple(_read(SHIPPED))


def any_of(patterns: Sequence[bytes]) -> re.Pattern[bytes]:
    """What finds all that one of them does; more, where they cannot be joined (flags, references to groups)."""
    try:
        return re.compile(b"|".join(b"(?:" + re.sub(rb"\(\?P<\w+>", b"(", part) + b")" for part in patterns))
    except (re.error, RecursionError, OverflowError):
        return re.compile(b"")


LOOKED_AT = 1 << 13  # characters at either end of a message: a pattern may take the square of a line


def of_exception(signatures: Sequence[Signature], chain: Sequence[str]) -> Known | None:
    """What the signatures say of an exception. The first of a chain tells why; what was raised after it counts where
    it names a cause.

    Args:
        signatures: those that are tried first come first.
        chain: types and messages, that from which all came first.
    """
    for text in chain:
        lines = (text if len(text) <= 2 * LOOKED_AT else f"{text[:LOOKED_AT]}\n{text[-LOOKED_AT:]}").split("\n")
        for signature in signatures:
            role = signature.known.role
            fits = role == "cause" or (role in _OF_EXCEPTIONS and text == chain[0])
            if fits and any(signature.search(line) for line in lines):
                return signature.known
    return None


def _read(path: str) -> list[Signature]:
    try:
        with open(regular.given(path), "rb") as file:
            data = toml.loads(file.read(toml.MOST_BYTES).decode())
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refuse(path, f"is not valid TOML: {error}") from None
    tables = data.get("signature")
    if not isinstance(tables, list) or set(data) != {"signature"}:
        raise _refuse(path, "has to consist of tables [[signature]]")
    return [_signature(path, index, table) for index, table in enumerate(tables, 1)]


def _signature(path: str, index: int, table: Any) -> Signature:
    if not isinstance(table, dict):
        raise _refuse(path, f"signature {index} is no table")
    name = table.get("name")
    which = f"signature {name!r}" if isinstance(name, str) else f"signature {index}"
    unknown, missing = set(table) - _KEYS, [key for key in _REQUIRED if key not in table]
    if unknown or missing:
        reason = f"has an unknown key {sorted(unknown)[0]}" if unknown else f"has no {missing[0]}"
        raise _refuse(path, f"{which} {reason}")
    contains, sources = _texts(path, which, table, "contains"), _texts(path, which, table, "sources")
    for key in ("name", "pattern", "role", "means", "code", "remedy"):
        if not isinstance(table.get(key, ""), str):
            raise _refuse(path, f"{which}: {key} has to be a string")
    if table["role"] not in ROLES:
        raise _refuse(path, f"{which}: role {table['role']!r} is none of {', '.join(ROLES)}")
    code = table.get("code", "")
    if code and code not in codes.CATALOGUE:
        raise _refuse(path, f"{which}: there is no code {code}")
    try:
        pattern = re.compile(table["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        raise _refuse(path, f"{which}: the pattern is no regular expression: {error}") from None
    known = Known(table["name"], table["role"], code, table["means"], table.get("remedy", ""))
    return Signature(known, pattern, contains, sources)


def _texts(path: str, which: str, table: dict[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _refuse(path, f"{which}: {key} has to be a list of strings")
    return tuple(value)


def _refuse(path: str, reason: str) -> SafelaunchError:
    return SafelaunchError(
        "SL290", f"{path} {reason}", f"the shipped signatures show the form: {SHIPPED}", exit_code=codes.EXIT_USAGE
    )

"""How settings and findings are put into words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from safelaunch.model import Finding
from safelaunch.redaction import redact
from safelaunch.settings.lint.context import Setting

Severity = Literal["note", "warning", "error"]

LONGEST = 60  # characters of a value that are shown
# Characters of a value that is judged: a longer one may hold a number that Python's int() refuses (4300 digits), and
# some patterns take the square of the length.
LONGEST_JUDGED = 4096

_OF_THE_CATALOGUE = re.compile(r" \([^()]*(?:snapshot|confirmed)[^()]*\)")
# A shell's variable or command, a value that is computed at launch, a placeholder of a document.
_NOT_YET_KNOWN = re.compile(r"[$`{}]|<[^<>]+>")


@dataclass(frozen=True)
class Fault:
    """What is wrong with a value. `says` goes on where `NAME=value` ends; `because` are whole lines."""

    severity: Severity
    says: str
    because: tuple[str, ...] = ()
    remedy: str = ""

    def finding(self, code: str, setting: Setting) -> Finding:
        """The fault of one setting, as a finding."""
        return Finding(
            code=code,
            severity=self.severity,
            summary=f"{shown(setting)} {self.says}",
            because=self.because,
            remedy=self.remedy,
            where=setting.origin.where,
        )


def literal(setting: Setting | None) -> str | None:
    """The value as the program will see it, or None where that cannot be told: not set, a command of a shell, a value
    that is computed at launch (`{run_dir}`), a placeholder (`<nic>`); or where it is too long to be looked at."""
    if setting is None or setting.value is None or len(setting.value) > LONGEST_JUDGED:
        return None
    if _NOT_YET_KNOWN.search(setting.value):
        return None
    return setting.value


def shown(setting: Setting) -> str:
    """`NAME=value`, without secrets, short; the name alone where the value cannot be told."""
    if setting.value is None:
        return setting.name
    return f"{setting.name}={quoted(redact(setting.name, setting.value))}"


def quoted(value: str) -> str:
    """A value in quotes where it needs them to be seen: empty, or with blanks or quotes."""
    value = value.replace("\n", "\\n")
    if len(value) > LONGEST:
        value = value[: LONGEST - 3] + "..."
    if value and not re.search(r"[\s'\"]", value):
        return value
    return f'"{value}"' if "'" in value or '"' not in value else f"'{value}'"


def listed(words: tuple[str, ...] | list[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def source(text: str) -> str:
    """Where a fact stands, as a `because` line; how it came into the catalogue is nobody's business."""
    return f"source: {_OF_THE_CATALOGUE.sub('', text)}"

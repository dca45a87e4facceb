"""Findings about files for programs: GitHub's annotations, and SARIF for code scanning and editors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from safelaunch.model import Finding
from safelaunch.printable import Line, whole

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_GITHUB = {"error": "error", "warning": "warning"}
_SARIF = {"error": "error", "warning": "warning"}


@dataclass(frozen=True)
class Placed:
    """A finding with its file and its place: lines from 1, columns from 1 and the last without; 0 where the whole file
    is meant. `more` are further lines."""

    finding: Finding
    path: str
    line: int = 0
    column: int = 0
    end_column: int = 0
    more: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A code as SARIF describes it."""

    code: str
    slug: str
    title: str
    text: str


def github(found: Iterable[Placed]) -> list[Line]:
    """Workflow commands that GitHub shows beside the lines of a change."""
    told: list[Line] = []
    for one in found:
        for line in (one.line, *one.more):
            places = {"file": one.path, "title": f"safelaunch {one.finding.code}"}
            if line:
                places["line"] = str(line)
            if line and line == one.line:
                places |= {"col": str(one.column), "endColumn": str(one.end_column)}
            properties = ",".join(f"{name}={_property(value)}" for name, value in places.items())
            word = _GITHUB.get(one.finding.severity, "notice")
            told.append(whole(f"::{word} {properties}::{_data(_message(one.finding))}"))
    return told


def _message(finding: Finding) -> str:
    return f"{finding.summary}; {finding.remedy}" if finding.remedy else finding.summary


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(found: Sequence[Placed], rules: Sequence[Rule], version: str) -> dict[str, Any]:
    """A log of SARIF 2.1.0.

    Args:
        found: what is told.
        rules: the codes that may be told.
        version: of safelaunch.
    """
    index = {rule.code: at for at, rule in enumerate(rules)}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "safelaunch", "version": version, "rules": [_rule(rule) for rule in rules]}
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, index) for one in found],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.slug.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": re.split(r"\n\s*\n", rule.text)[0]},
        "help": {"text": rule.text},
    }


def _result(one: Placed, index: dict[str, int]) -> dict[str, Any]:
    finding = one.finding
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _SARIF.get(finding.severity, "note"),
        "message": {"text": " ".join([f"{finding.summary}.", *(f"{because}." for because in finding.because)])},
        "locations": [_location(one.path, line, one) for line in (one.line, *one.more)],
    }
    if finding.remedy:
        result["message"]["text"] += f" {finding.remedy[0].upper()}{finding.remedy[1:]}."
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    return result


def _location(path: str, line: int, one: Placed) -> dict[str, Any]:
    uri = quote(PurePath(path).as_posix()) if not os.path.isabs(path) else PurePath(path).as_uri()
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        physical["region"] = {"startLine": line}
        if line == one.line:
            physical["region"] |= {"startColumn": one.column, "endColumn": one.end_column}
    return {"physicalLocation": physical}

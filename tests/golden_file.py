"""The golden cases as they lie on disk: tests/cases/golden.jsonl, a line for each, without what is as by default.

tests/unit/diagnosis/golden.py writes the file from its builders. A few cases lie in folders of their own beside it, as
older versions of the program have written them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from safelaunch.codec import from_json
from safelaunch.model import Case

CASES = Path(__file__).resolve().parent / "cases"
FILE = CASES / "golden.jsonl"
FOLDERS = sorted(path.parent for path in CASES.glob("*/case.json"))


@functools.cache
def lines() -> dict[str, dict[str, Any]]:
    """By name: `{"name", "case", "expected"}`."""
    found = map(json.loads, FILE.read_text().splitlines())
    return {one["name"]: one for one in found}


def names() -> list[str]:
    """Of all golden cases."""
    return list(lines())


def load(name: str) -> Case:
    """One of them."""
    return from_json(Case, lines()[name]["case"])

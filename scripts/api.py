#!/usr/bin/env python3
"""Prints the page docs/api.md: what a training script may call, from the docstrings of the package.

.venv/bin/python scripts/api.py > docs/api.md
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import safelaunch

HEAD = """\
# Python API

Written by `python scripts/api.py` from the docstrings. A training script may call these, and need not; nothing else of
the package is meant for it. Importing it loads the standard library only, and outside a run of safelaunch the functions
do nothing. The package has type annotations (`py.typed`).
"""


def page() -> str:
    """The page, whose sections come in the order of `__all__`."""
    example = inspect.cleandoc(safelaunch.__doc__ or "").split("\n\n")[-1]
    lines = [HEAD, "```python", "import safelaunch", "", *(line[4:] for line in example.split("\n")), "```", ""]
    for name in safelaunch.__all__:
        lines += _section(name, getattr(safelaunch, name))
    return "\n".join(lines).rstrip("\n")


def _section(name: str, function: Callable[..., Any]) -> Iterator[str]:
    signature = str(inspect.signature(function)).replace("'", "")
    context = "-> Iterator[None]" in signature
    yield f"## {name}\n"
    yield "```python"
    yield f"with safelaunch.{name}{signature.partition(' -> ')[0]}: ..." if context else f"safelaunch.{name}{signature}"
    yield "```\n"
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(function.__doc__ or "")):
        head, _, rest = paragraph.partition("\n")
        if head in ("Args:", "Raises:"):
            yield "Arguments:\n" if head == "Args:" else "Raises:\n"
            for name_of, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", rest, re.MULTILINE):
                yield f"- `{name_of}`: {' '.join(text.split())}"
            yield ""
        else:
            yield f"{paragraph}\n"


if __name__ == "__main__":
    print(page())

"""Writing documents whole or not at all. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any

from safelaunch.codec import to_json


def write_json(path: str, value: Any) -> None:
    """Write a document whole or not at all; a reader may look at any moment."""
    write_text(path, json.dumps(to_json(value), indent=1, default=str) + "\n")


def write_text(path: str, text: str) -> None:
    """Write a file whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    partial = f"{path}.part"
    with open(partial, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(partial, path)

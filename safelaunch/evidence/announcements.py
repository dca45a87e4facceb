"""What ranks tell of themselves while they run: JSON lines beside the black box."""

from __future__ import annotations

import json
from typing import Any

from safelaunch import black_box, regular
from safelaunch.evidence.beside import MOST


def read(path: str, index: int, pid: int, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The remarks of one rank since the last look, and where to go on.

    Args:
        path: of the black box.
        index: the local rank.
        pid: of the rank; a rank of an earlier attempt wrote into the same file.
        offset: bytes that have been read already.
    """
    try:
        text = regular.read(black_box.beside(path, index, "announcements"), MOST, offset=offset)
    except OSError:
        return [], offset  # nobody has said anything
    whole = text[: text.rfind(b"\n") + 1]
    found = [_parsed(line) for line in whole.split(b"\n") if line]
    return [remark for remark in found if remark.get("pid") == pid], offset + len(whole)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        remark = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return remark if isinstance(remark, dict) else {}

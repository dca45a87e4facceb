"""Slurm's short form of many host names, which `scontrol show hostnames` spells out: containers have no scontrol.

The form: slurm(1), "hostlist". `gpu[08-11,20],login` is gpu08, gpu09, gpu10, gpu11, gpu20 and login; a name may have
several pairs of brackets, of which the last one counts fastest.
"""

from __future__ import annotations

import itertools
import re

MOST = 1 << 16  # hosts; more are no list of a job
_NAME = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def spelled_out(text: str) -> tuple[str, ...]:
    """The names in their order; nothing where the text is no such list, or has more than `MOST` names."""
    names: list[str] = []
    for name in _NAME.findall(text):
        pieces = [_choices(inner) if inner else [plain] for inner, plain in _PIECE.findall(name)]
        count = 1
        for piece in pieces:
            count *= len(piece)
        if not 0 < count <= MOST - len(names):
            return ()
        names += ("".join(parts) for parts in itertools.product(*pieces))
    return tuple(names)


def _choices(inner: str) -> list[str]:
    """What stands between two brackets, each number as wide as it is written."""
    found: list[str] = []
    for part in inner.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return []
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) >= MOST - len(found):
            return []
        found += (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return found

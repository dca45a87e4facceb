"""Sizes in bytes, and how they are written."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30


def size(count: int) -> str:
    """A number of bytes in binary units: `512 MiB`, `1.5 GiB`."""
    for unit, length in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if count >= length:
            return f"{count / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

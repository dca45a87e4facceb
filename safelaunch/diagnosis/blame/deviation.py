"""The rank that deviates from its peers, or from what it has always done."""

from __future__ import annotations

from dataclasses import dataclass

OFTEN = 3  # times that something must have happened to be usual; an estimate


@dataclass(frozen=True)
class Deviation:
    """The rank that deviates, and from what; `too` are others that do as well."""

    rank: int
    text: str
    too: tuple[int, ...] = ()

"""Exceptions in which a process speaks of another one: whoever says so is a witness, and not the one at fault.

A rank that came through a step, and raises because others did not, has only waited for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.model.logs import LogLine

_WHO = r"(?:TP |DP |PP |EP |global |local |remote )?(?:rank|worker|peer|node|process)"
# Others in general, who did something else than the one that speaks.
_OTHERS = re.compile(
    r"\b(?:other|some|remaining|not all|all other|any other|certain) (?:of the )?(?:\w+ )?"
    r"(?:ranks?|workers?|peers?|nodes?)\b(?! than\b)|\banother (?:rank|worker|peer|node)\b"
    r"|\b(?:other|another|some) process(?:es)? (?:that |which )?"
    r"(?:did|has|have|had|fail|could|crash|died|exit|is dead|are dead)"
    rf"|\b(?:waiting|waited|wait|timed? ?out waiting) (?:for|on) (?:all |the )?(?:other )?{_WHO}(?:s|es)\b",
    re.IGNORECASE,
)
# One other, by its number.
_AWAITED = re.compile(
    rf"(?:wait\w*|errors?|exception|time[d ]*out|recv|receiv\w*|reply|response|message|hear\w*|heartbeat|lost|check)\b"
    rf"[^.;:]{{0,60}}?\b(?:(?:from|for|with|to|of|on) )?(?:the )?(?:logs? of )?{_WHO}s? (?:id )?"
    r"\[?(?P<ranks>\d{1,7}(?:, ?\d{1,7})*)",
    re.IGNORECASE,
)
_FAILING = re.compile(
    rf"\b{_WHO}s? \[?(?P<ranks>\d{{1,7}}(?:, ?\d{{1,7}})*)\]? "
    r"(?:did not|didn't|never|failed|has not|have not|hasn't|is not respond|is dead|exited|died|crashed|disconnected"
    r"|is missing|are missing|is gone|went away|was lost)",
    re.IGNORECASE,
)
_SELF = re.compile(
    r"\brank:? (?P<rank>\d{1,7})\]? (?:has |had |have )?(?:success\w* |already |could |can |was able to )?"
    r"(?:reach|finish|complet|load|wait|came|enter|arriv|join|receiv|pass|time[ds]? ?out)",
    re.IGNORECASE,
)


def testifies(message: str, rank: int | None) -> bool:
    """Whether an exception speaks of other ranks than the one that raised it.

    Args:
        message: of the exception.
        rank: that raised it, or None where that is not known.
    """
    own = rank if rank is not None else _speaker(message)
    return _OTHERS.search(message) is not None or bool(pointed_at(message, own) if own is not None else ())


def pointed_at(message: str, own: int | None) -> set[int]:
    """The ranks, by their numbers, that a message says were awaited, or failed; never the one that speaks."""
    own = own if own is not None else _speaker(message)
    found = [*_AWAITED.finditer(message), *_FAILING.finditer(message)]
    return {int(number) for match in found for number in re.findall(r"\d+", match["ranks"])} - {own}


def _speaker(message: str) -> int | None:
    """The rank that a message calls its own."""
    match = _SELF.search(message)
    return int(match["rank"]) if match else None


def awaited(victims: Iterable[tuple[int | None, LogLine]]) -> tuple[int, ...]:
    """The ranks for which all others of those that only followed say that they waited; none where they disagree."""
    victims = list(victims)
    selves = {rank if rank is not None else _speaker(at.text) for rank, at in victims}
    named = [found for rank, at in victims if (found := pointed_at(at.text, rank))]
    everybody = set.union(*named) if named else set()
    return tuple(sorted(everybody)) if not everybody & selves else ()

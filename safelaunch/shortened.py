"""Texts that are too long for their place. Standard library only."""

from __future__ import annotations

_BETWEEN_WORDS = " \t\r\n,;\"'()[]{}<>|"
_MORE = "..."


def shortened(text: str, most: int) -> str:
    """The beginning of a text, of at most `most` characters, without the word through which the cut goes: half a secret
    is not recognised as one. Of a path, the folders stay."""
    if len(text) <= most:
        return text
    end = most - len(_MORE)
    kept = text[:end]
    if text[end] not in _BETWEEN_WORDS:
        begin = max(kept.rfind(char) for char in _BETWEEN_WORDS) + 1
        kept = kept[: kept.rfind("/", begin) + 1] if kept.startswith("/", begin) else kept[:begin]
    return kept + _MORE

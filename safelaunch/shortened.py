"""Texts that are too long for their place. Standard library only."""

from __future__ import annotations

_BETWEEN_WORDS = " \t\r\n,;\"'()[]{}<>|"
_MORE = "..."
LEFT_OUT = "  ... the middle is left out ..."  # a line; `redaction` blanks the first word behind it
_DROPPED = 8  # words behind a cut within a line: of a sentence that announces a secret, and the secret


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


def without_middle(text: str, head: int, tail: int) -> str:
    """The beginning and the end of a text that is longer than both, without the lines through which the cuts go: what
    tells that a word is a secret stands in front of it. Where a line is too long to go, some of its words go.

    Args:
        text: of any length.
        head: characters that are kept of its beginning at most.
        tail: characters that are kept of its end at most, with what tells of the cut.
    """
    if len(text) <= head + tail:
        return text
    end = max(text.rfind("\n", head // 2, head), 0) or max(text.rfind(" ", head // 2, head), 0) or head
    return text[:end] + "\n" + LEFT_OUT + "\n" + text[_behind_a_cut(text, len(text) - tail + len(LEFT_OUT) + 2) :]


def _behind_a_cut(text: str, at: int) -> int:
    last = (at + len(text)) // 2
    end = text.find("\n", at - 1, last)
    if end >= 0:
        return end + 1
    begin = at
    for _ in range(_DROPPED):
        blank = text.find(" ", begin, last)
        if blank < 0:
            break
        begin = blank + 1
    return begin

"""Guess what a misspelt word was meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to `word`, or an empty string where none is close."""
    import difflib  # only an error pays for it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy that names the closest known word, or an empty string where none is close."""
    guess = nearest(word, known)
    return f"did you mean `{guess}`?" if guess else ""

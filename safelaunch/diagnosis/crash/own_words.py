"""What several ranks raised at one line: each has words of its own, and those of one are not said of another."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis.crash.first_failure import Failure
from safelaunch.diagnosis.wording import names, one_line, telling
from safelaunch.model import PyError

# torch/_utils.py, ExceptionWrapper: the exception of another process or thread, with its traceback below this line.
IN_WORKER = re.compile(r"Caught \w+ in (DataLoader worker process \d+|pin memory thread for device \w+)\.")
ADDRESS = re.compile(r"\b0x[0-9a-f]+")  # of an object: it differs, and tells nothing
TWO = 200  # characters: as many as a headline has for one
OTHERS = 2  # ranks, of which a line beneath it quotes the words


def raised(error: PyError) -> str:
    """`raised ValueError: a bad sample`."""
    within = IN_WORKER.match(error.message)
    if within is not None:  # what was raised there is the last line of what it brings along
        return f"raised {one_line(error.message.strip().splitlines()[-1])} in its {within[1]}"
    return f"raised {error.type}: {telling(error.message)}".rstrip(": ")


def quoted(failures: Sequence[Failure], everybody: str = "") -> tuple[str, tuple[str, ...]]:
    """Who raised what, as a headline, and lines with the words of others for which that has no room.

    Args:
        failures: whose exceptions are alike; the headline quotes the first.
        everybody: stands for the names of all, where that is known.
    """
    own = [(failure.rank, raised(failure.facts.error)) for failure in failures if failure.facts.error is not None]
    who = everybody or names(rank for rank, _ in own)
    (first, said), others = own[0], own[1:]
    if len({ADDRESS.sub("0x", text) for _, text in own}) == 1:
        return f"{who} {said}", ()
    if len(own) == 2 and not everybody and len(said) + len(others[0][1]) <= TWO:
        return f"rank {first} {said}; rank {others[0][0]} {others[0][1]}", ()
    differing = [(rank, text) for rank, text in others if text != said]
    return f"{who} failed alike; rank {first} {said}", tuple(f"rank {rank} {text}" for rank, text in differing[:OTHERS])

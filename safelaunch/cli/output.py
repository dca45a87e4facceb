"""How a subcommand answers: lines on the standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from safelaunch.model import SafelaunchError
from safelaunch.printable import Line, lines, whole

EXIT_USAGE = 2  # as in codes, which the way to `--help` does not load


def show(shown: Iterable[Line], stream: TextIO | None = None) -> None:
    """Write lines to a stream; None for the standard output."""
    _written("".join(f"{one}\n" for one in shown), stream or sys.stdout)


def show_text(text: str) -> None:
    """Write a text of several lines to the standard output."""
    show(lines(text.removesuffix("\n")))


def show_json(document: Any, indent: int = 1) -> None:
    """Write a document to the standard output: JSON in ASCII escapes all control characters (RFC 8259, 7)."""
    show([whole(part) for part in json.dumps(document, indent=indent, default=str).split("\n")])


def show_script(script: str) -> None:
    """Write a script of ours, in which nothing is from outside, to the standard output as it is."""
    _written(f"{script}\n", sys.stdout)


def _written(text: str, stream: TextIO) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> SafelaunchError:
    """The answer of a command cannot be written, or the directory in which it runs is gone.

    What to do: look at where the output is redirected to (`df`, and its permissions). Where the directory was removed,
    `cd` to one that exists; a shell stays in a directory that somebody else has removed.
    """
    summary = f"the answer cannot be written to the standard output: {error.strerror}"
    return SafelaunchError("SL007", summary, "look at where it is redirected to", exit_code=EXIT_USAGE)

"""The verdict on the terminal: the root traceback, then at most ten lines, and nothing after them."""

from __future__ import annotations

import dataclasses
import os

from safelaunch import redaction
from safelaunch.model import Verdict
from safelaunch.printable import PLACE_WIDTH, Line, line
from safelaunch.report.palette import PLAIN, Palette
from safelaunch.report.text import diagnostic

SCREEN = 25  # lines that a verdict with its traceback may take
BECAUSE = 5  # lines; the rest is in verdict.json


def lines(
    verdict: Verdict, bundle: str, *, exit_code: int | None = None, palette: Palette = PLAIN, most: int = BECAUSE
) -> list[Line]:
    """The verdict for a person.

    Args:
        verdict: what to print.
        bundle: folder of the incident, empty where there is none.
        exit_code: what safelaunch will exit with, where that is decided.
        palette: colours.
        most: lines that say why; logs, which have no bundle, show more of them.
    """
    end = [f"bundle: {relative(bundle)}" if bundle else "", f"exit {exit_code}" if exit_code is not None else ""]
    fields = [("confidence", verdict.confidence)] if verdict.kind != "infra" else []
    here = os.environ.get("PWD", "").rstrip(os.sep) + os.sep
    because = tuple(told.replace(here, "") if len(here) > 1 else told for told in verdict.because[:most])
    shown = dataclasses.replace(verdict, because=because, remedy="")
    remedy = f"{verdict.remedy}; `safelaunch explain {verdict.code}`" if verdict.remedy else ""
    text = diagnostic(
        shown,
        severity={"none": "note", "slow": "warning"}.get(verdict.kind, "error"),
        location=_location(verdict),
        fields=[*fields, *([("help", remedy)] if remedy else [])],
        palette=palette,
    )
    if any(end):
        text.append(line("   ", palette.paint("dim", "="), " ", "   ".join(filter(None, end)), width=PLACE_WIDTH))
    return [*traceback_lines(verdict, SCREEN - len(text) - 1, palette), *text]


def without_secrets(verdict: Verdict) -> Verdict:
    """A verdict that may be sent: what a program says when it fails may hold its keys."""
    place = verdict.location
    if place is not None:
        place = dataclasses.replace(place, file=redaction.text(place.file), function=redaction.text(place.function))
    return dataclasses.replace(
        verdict,
        host=redaction.text(verdict.host),
        location=place,
        summary=redaction.text(verdict.summary),
        because=tuple(redaction.lines(verdict.because)),
        remedy=redaction.text(verdict.remedy),
        traceback=redaction.text(verdict.traceback),
    )


def headline(verdict: Verdict) -> str:
    """One line, for a notice before the run has ended."""
    place = verdict.location
    said = place is None or f"{os.path.basename(place.file)}:{place.line}" in verdict.summary
    where = "" if said or place is None else f" ({relative(place.file)}:{place.line})"
    return f"{verdict.code}: {verdict.summary}{where}"


def _location(verdict: Verdict) -> str:
    who = [f"host {verdict.host}" if verdict.host else "", f"pid {verdict.pid}" if verdict.pid else ""]
    aside = ", ".join(part for part in who if part)
    if verdict.location is None:
        return aside
    place = f"{relative(verdict.location.file)}:{verdict.location.line}"
    function = f" in {verdict.location.function}" if verdict.location.function else ""
    return f"{place}{function}" + (f"   ({aside})" if aside else "")


def traceback_lines(verdict: Verdict, room: int, palette: Palette = PLAIN) -> list[Line]:
    """The root traceback under a title, shortened in its middle to `room` lines with the title."""
    if not verdict.traceback:
        return []
    # Indented, so that no line of a message can pass for one of ours.
    text = [line("  ", told) for told in verdict.traceback.rstrip().splitlines()]
    if len(text) > room - 1:
        # The end tells most: where it was raised, and the message.
        kept = _from_a_frame(text, room - 3)
        text = [text[0], line(f"    ... {len(text) - kept - 1} lines, all in the bundle ..."), *text[-kept:]]
    whose = f"traceback of rank {verdict.culprit_ranks[0]}" if verdict.culprit_ranks else "the traceback"
    return [palette.paint("dim", f"---- {whose} ----"), *text]


def _from_a_frame(text: list[Line], most: int) -> int:
    """How many of the last lines of a traceback are shown, at most `most`, so that the first of them begins a frame."""
    frames = [n for n in range(2, most + 1) if str(text[-n]).lstrip().startswith('File "')]
    return max(frames, default=most)


def relative(path: str) -> str:
    """Relative to here where that is shorter to read."""
    try:
        shorter = os.path.relpath(path) if os.path.isabs(path) else path
    except OSError:  # the current directory is gone
        return path
    return shorter if not shorter.startswith("..") else path

"""report.html: one file that a browser shows without a network, and that nothing in a log can turn into a program.

Every text goes through `element.text`: escaped, without secrets, not endless. There are no scripts, and the page
forbids them to itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from safelaunch.model import Verdict
from safelaunch.report import verdict as terminal
from safelaunch.report.page import calls, gpus, log_lines, ranks, stacks, surroundings, timeline, waits
from safelaunch.report.page.element import Html, cell, joined, style, tag
from safelaunch.report.page.sheet import SHEET
from safelaunch.report.page.subject import Subject, Surroundings, Waiting

__all__ = ["Subject", "Surroundings", "Waiting", "build"]

# Nothing is fetched and nothing runs, whatever a browser makes of the rest.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
NOTES = 40
MOST = 50  # verdicts on one page


def build(subjects: Sequence[Subject], known: Surroundings | None = None, written: float | None = None) -> str:
    """The page as HTML.

    Args:
        subjects: the verdicts, each with its evidence.
        known: what is known of the run; the verdicts are of one run then.
        written: seconds since the epoch, now by default.

    Pure but for the clock; a text of 1 MB costs about 50 ms (secrets are looked for), 1,024 ranks less than 2 s.
    """
    first = next((one.verdict for one in subjects if one.verdict is not None), None)
    title = f"{first.code}: {first.summary}" if first is not None else "safelaunch: nothing to tell"
    body = [part for one in subjects[:MOST] for part in _subject(one)]
    if len(subjects) > MOST:
        body.append(tag("p", f"... and {len(subjects) - MOST} more verdicts"))
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() if written is None else written))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", cell(title, 160)),
        style(SHEET),
    )
    told = [_safely(name, make) for name, make in surroundings.sections(known)] if known is not None else []
    foot = tag(
        "p", f"Written by safelaunch, {made}. Secrets are left out as far as they can be recognised.", class_="dim"
    )
    page = tag("html", head, tag("body", waits.arrow_head(), tag("main", *body, *told, foot)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _subject(one: Subject) -> list[Html]:
    parts: list[Html] = []
    if one.notes:
        parts.append(joined(tag("p", f"note: {cell(note, 1000)}", class_="dim") for note in one.notes[:NOTES]))
    if one.verdict is not None:
        parts = [*_verdict(one.verdict, one.folder), *parts]
    logs = one.logs
    if logs is not None:
        parts.append(_safely("the logs", lambda: log_lines.section(logs, one.verdict)))
    if one.case is None:
        return parts
    case = one.case
    drawn: tuple[tuple[str, Callable[[], Html | None]], ...] = (
        ("who waits for whom", lambda: waits.section(case, one.verdict, one.waits)),
        ("ranks", lambda: ranks.section(case, one.verdict)),
        ("GPUs", lambda: gpus.section(case, one.verdict)),
        ("stacks", lambda: stacks.section(case, one.verdict)),
        ("timeline", lambda: timeline.section(case, one.verdict)),
        ("collectives", lambda: calls.section(case, one.verdict)),
    )
    return [*parts, *(_safely(name, make) for name, make in drawn)]


def _safely(name: str, make: Callable[[], Html | None]) -> Html:
    """A section, or why there is none: what one case holds must not cost the reader all of the page."""
    try:
        return make() or joined(())
    except Exception as error:
        return tag("p", f"The section on {name} could not be made: {error!r}", class_="dim")


def _verdict(verdict: Verdict, folder: str) -> list[Html]:
    verdict = terminal.without_secrets(verdict)  # before its traceback is shortened: half a key is not recognised
    lines = terminal.lines(verdict, folder)
    parts = [
        tag("h1", cell(f"{verdict.code}: {verdict.summary}", 400)),
        tag("pre", "\n".join(lines), class_="verdict none" if verdict.kind == "none" else "verdict"),
    ]
    if len(verdict.because) > terminal.BECAUSE:
        rest = verdict.because[terminal.BECAUSE :]
        parts.append(tag("ul", *(tag("li", cell(line, 1000)) for line in rest[:40])))
    if any("all in the bundle" in line for line in lines):
        parts.append(tag("details", tag("summary", "the whole traceback"), tag("pre", _indented(verdict.traceback))))
    return parts


def _indented(traceback: str) -> str:
    """As on the terminal: a line of it that a program has made up begins where no line of ours does."""
    return "\n".join(f"  {line}" for line in traceback.splitlines())

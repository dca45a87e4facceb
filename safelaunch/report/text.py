"""The one renderer of diagnostics: findings, errors and verdicts look alike on a terminal.

```
error[SL401]: rank 2 raised ValueError: loss is nan
  --> train.py:88 in train_step   (host node-b, pid 4127)
   = because: ranks 0, 1 and 3 lost their connection to it
   = help: look at the traceback above
```
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from safelaunch.model import Diagnostic, Finding
from safelaunch.printable import PLACE_WIDTH, Line, line
from safelaunch.report.palette import PLAIN, Palette

HELP_WIDTH = 120  # characters of what to do, where a finding is one line
STYLES = {"error": "error", "warning": "warning", "note": "dim", "unchecked": "warning", "ok": "good", "skipped": "dim"}


def diagnostic(
    item: Diagnostic,
    *,
    severity: str = "",
    location: str = "",
    fields: Iterable[tuple[str, str]] = (),
    palette: Palette = PLAIN,
) -> list[Line]:
    """Lines for one diagnostic.

    Args:
        item: what to print.
        severity: overrides the finding's own; a bare diagnostic is an error.
        location: text after `-->`; a finding's own `where` by default, left out when empty.
        fields: further `= name: text` lines, printed between `because` and `help`.
        palette: colours.
    """
    severity = severity or (item.severity if isinstance(item, Finding) else "error")
    location = location or (item.where if isinstance(item, Finding) else "")
    head = palette.paint(STYLES[severity], f"{severity}[{item.code}]")
    lines = [line(head, ": ", palette.paint("strong", item.summary))]
    if location:
        lines.append(line("  ", palette.paint("dim", "-->"), " ", location, width=PLACE_WIDTH))
    lines += [_field("because", text, palette) for text in item.because]
    lines += [_field(name, text, palette) for name, text in fields]
    if item.remedy:
        lines.append(_field("help", item.remedy, palette))
    return lines


def _field(name: str, text: str, palette: Palette) -> Line:
    return line("   ", palette.paint("dim", "="), f" {name}: ", text)


def short(finding: Finding, palette: Palette = PLAIN) -> Line:
    """A finding in one line: what is the case, what to do, and the line of the file that says so."""
    place = f" ({finding.where})" if re.search(r":\d+$", finding.where) else ""
    remedy = textwrap.shorten(finding.remedy, HELP_WIDTH, placeholder=" ...")
    told = f"{finding.summary}; {remedy}" if remedy else finding.summary
    head = palette.paint(STYLES[finding.severity], f"{finding.severity}[{finding.code}]")
    return line(head, ": ", palette.paint("strong", told), place)

"""All codes as a page of Markdown: `safelaunch explain --all`, docs/codes.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from safelaunch.codes import Code

HEAD = """\
# Codes

Written by `safelaunch explain --all`. `safelaunch explain SL301` prints one of them. A code once shipped keeps
its meaning.
"""
# By the hundreds of their numbers.
FAMILIES = {
    "0": "The command line",
    "1": "The node, before the start",
    "2": "Profiles, variables and files of jobs",
    "3": "Hangs",
    "4": "Failures",
    "5": "Slow runs",
    "6": "Nodes and schedulers",
    "9": "safelaunch itself",
}
# In a sentence of a docstring these are meant as they are; between backticks Markdown leaves them alone.
_MARKS = re.compile(r"(`[^`]*`)|([\\<>*_#|])")


def markdown(explained: Iterable[tuple[Code, str]]) -> str:
    """The page.

    Args:
        explained: each code with its explanation, in their order.
    """
    lines, family = [HEAD], ""
    for entry, text in explained:
        if entry.code[2] != family:
            family = entry.code[2]
            lines.append(f"## {FAMILIES.get(family, 'Others')}\n")
        lines += [f"### {entry.code}\n", f"**{_plain(entry.title)}** (`{entry.slug}`)\n", *_blocks(text), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _blocks(text: str) -> Iterator[str]:
    """The lines of a docstring: what is set in stands as it is, a list stays a list."""
    code = False
    before = ""
    for line in text.split("\n"):
        indented = line.startswith("    ")
        if indented != code and (line or code):
            yield from ("", "```") if indented else ("```",)
            code = indented
        if line.startswith("- ") and before and not before.startswith(("- ", "  ")):
            yield ""
        yield line[4:] if code else _plain(line)
        before = line
    if code:
        yield "```"


def _plain(line: str) -> str:
    mark = "- " if line.startswith("- ") else ""
    return mark + _MARKS.sub(lambda found: found[1] or f"\\{found[2]}", line.removeprefix(mark))

"""`safelaunch explain CODE`: what a code means, how it is concluded, what to do; `--all` for every one."""

from __future__ import annotations

import argparse
import inspect
from functools import reduce
from importlib import import_module

from safelaunch.cli import output
from safelaunch.codes import CATALOGUE, EXIT_USAGE, Code
from safelaunch.model import SafelaunchError
from safelaunch.report import code_pages


def run(argv: list[str]) -> int:
    """Print the explanation of one code, or the list of all."""
    args = parser().parse_args(argv)
    if args.code is None:
        entries = list(CATALOGUE.values())
        if args.all and not args.json:
            output.show_text(code_pages.markdown((entry, text(entry)) for entry in entries))
            return 0
        listing = [f"{entry.code}  {entry.title}" for entry in entries]
        if args.json:
            output.show_json([_document(entry) for entry in entries])
        else:
            output.show_text("\n".join(listing))
        return 0
    entry = CATALOGUE.get(args.code.upper())
    if entry is None:
        raise SafelaunchError(
            "SL001",
            f"there is no code {args.code}",
            "`safelaunch explain` without a code lists all of them",
            exit_code=EXIT_USAGE,
        )
    document = _document(entry)
    if args.json:
        output.show_json(document)
    else:
        output.show_text(f"{entry.code} ({entry.slug}): {entry.title}\n\n{document['text']}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch explain", description=__doc__)
    made.add_argument("code", nargs="?", help="for example SL401; without one, all codes are listed")
    made.add_argument("--all", action="store_true", help="explain all codes, as the page docs/codes.md")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def text(entry: Code) -> str:
    """The explanation: the docstrings of the checks or rules that conclude this code."""
    found = []
    for place in entry.text.split():
        module, _, path = place.partition(":")
        found.append(inspect.getdoc(reduce(getattr, path.split("."), import_module(f"safelaunch.{module}"))) or "")
    return "\n\nOr:\n\n".join(found)


def _document(entry: Code) -> dict[str, str]:
    return {"code": entry.code, "slug": entry.slug, "title": entry.title, "text": text(entry)}

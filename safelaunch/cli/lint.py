"""`safelaunch lint [FILE|FOLDER|PROFILE...]`: what is wrong in the files of jobs, before anything runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from safelaunch import __version__, codes, printable
from safelaunch.cli import findings, output
from safelaunch.cli.lint_files import LintedFiles
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION
from safelaunch.report import lint_formats, lint_text
from safelaunch.report.lint_formats import Placed
from safelaunch.report.palette import for_stream
from safelaunch.settings import profile as profiles
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.lint.installed import Installed, stated
from safelaunch.settings.lint.jobs import fix, look
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.sizes import plural

USAGE = """\
usage: safelaunch lint [FILE|FOLDER|PROFILE...] [options]

Look for what is wrong in the files of jobs: scripts and schedulers' scripts, job specs in YAML or
JSON, Dockerfiles, makefiles, .env files, programs that set os.environ, profiles. Nothing is run.
Below a folder, files of jobs are found by their names and by what is in them. Without a name, the
current folder is looked through; - is the standard input.

options:
  --format text|json|github|sarif  how findings are written; default: text
  --fix                 change what is certain: renamed variables, dead ones, quotes
  --diff                show what --fix would change, and change nothing
  --torch VERSION       judge by this version of torch, such as 2.15; default: the one that is
                        installed
  --nccl VERSION        the same for NCCL, such as 2.30
  --ignore CODE[,CODE]  leave these findings out
  --filter              of files that are named, look at those of jobs only, as below a folder
  --profiles            look at all profiles that can be named as well
  --exit-zero           exit with 0 whatever was found
  -v, --verbose         show all findings, not only the first 50 lines
  -h, --help            show this text

exit code: 0 where nothing is wrong, or only notes were made; 1 where something was found; 2 where a
file cannot be read, or the command line is wrong. `# safelaunch: ignore[SL215]` in a file leaves a
finding out, on its own line or on the next; `# safelaunch: ignore-file[SL215]` in all of the file.
"""

EXIT_FOUND, EXIT_ERROR = 1, 2
MOST_LINES = 50  # of text, without -v


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse."""
    options = parser().parse_intermixed_args(argv)
    if options.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    if options.fix and options.diff:
        raise misuse("--fix changes files, --diff only shows it: not both", "see `safelaunch lint --help`")
    installed = _installed(options)
    lint = LintedFiles(installed, dict.fromkeys(_codes(options.ignore), "off"))
    lint.look(options.paths or ([] if options.profiles else ["."]), named=not options.filter)
    if options.profiles:
        lint.profiles(list(profiles.available(os.environ)))
    if options.fix or options.diff:
        return _fixed(lint, options)
    _show(lint, options)
    return _exit_code(lint, options)


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch lint")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--format", choices=("text", "json", "github", "sarif"), default="text")
    made.add_argument("--fix", action="store_true")
    made.add_argument("--diff", action="store_true")
    made.add_argument("--torch", default="")
    made.add_argument("--nccl", default="")
    made.add_argument("--ignore", action="append", default=[])
    made.add_argument("--filter", action="store_true")
    made.add_argument("--profiles", action="store_true")
    made.add_argument("--exit-zero", "--exit_zero", action="store_true")
    made.add_argument("-v", "--verbose", action="store_true")
    made.add_argument("paths", nargs="*", metavar="FILE|FOLDER|PROFILE")
    return made


def _codes(given: Sequence[str]) -> Iterator[str]:
    for code in (word.strip().upper() for words in given for word in words.split(",")):
        if code and code not in codes.CATALOGUE:
            raise misuse(f"there is no code {code}", "`safelaunch explain` lists all of them")
        yield code


def _installed(options: argparse.Namespace) -> Installed:
    from safelaunch.run.lint import installed_of

    if not (options.torch or options.nccl):
        return installed_of(os.environ, findings.SCAN_S)
    try:
        return stated(options.torch, options.nccl)
    except ValueError as error:
        raise misuse(str(error), "such as --torch 2.15 --nccl 2.30") from None


def _show(lint: LintedFiles, options: argparse.Namespace) -> None:
    if options.format == "json":
        output.show_json(_document(lint), 2)
    elif options.format == "github":
        output.show(lint_formats.github(_placed(one) for one in lint.remarks))
    elif options.format == "sarif":
        found = [_placed(one) for one in lint.remarks]
        output.show_json(lint_formats.sarif(found, _rules(found), __version__), 2)
    else:
        _show_text(lint, verbose=options.verbose)


def _show_text(lint: LintedFiles, *, verbose: bool) -> None:
    palette = for_stream(sys.stdout)
    shown = left = 0
    ordered = sorted(lint.remarks, key=lambda one: (look.ORDER.get(one.finding.severity, 3),))
    for at, one in enumerate(ordered):
        if one.span is None:
            lines = lint_text.lines(one.finding, one.finding.where or one.path, None, "", (), palette)
        else:
            place = (one.span.line, one.span.start, one.span.end)
            lines = lint_text.lines(one.finding, one.path, place, lint.source(one), one.more, palette)
        if not verbose and shown and shown + len(lines) > MOST_LINES:
            left = len(ordered) - at
            break
        shown += len(lines)
        output.show([*lines, printable.line()])
    if left:
        output.show([printable.line(f"{plural(left, 'more finding')}: -v shows {'them' if left > 1 else 'it'}")])
    told = findings.count([one.finding for one in lint.remarks])
    output.show([printable.line(f"{lint.counted}, {findings.against(lint.installed)}: {told}")])


def _document(lint: LintedFiles) -> dict[str, Any]:
    torch, nccl = lint.installed.torch, lint.installed.nccl
    return {
        "schema_version": SCHEMA_VERSION,
        "failed": _is_wrong(lint),
        "torch": torch.version if torch else None,
        "nccl": nccl.version if nccl else None,
        "findings": [_entry(one) for one in lint.remarks],
    }


def _entry(one: Remark) -> dict[str, Any]:
    placed = _placed(one)
    place = {"file": placed.path, "line": placed.line, "column": placed.column, "end_column": placed.end_column}
    return {**to_json(one.finding), **place, "more_lines": list(one.more), "fixable": bool(one.edits)}


def _placed(one: Remark) -> Placed:
    if one.span is not None:
        return Placed(one.finding, one.path, one.span.line, one.span.start + 1, one.span.end + 1, one.more)
    _, _, number = one.finding.where.rpartition(":")
    return Placed(one.finding, one.path, int(number) if number.isdecimal() else 0, 1, 1)


def _rules(found: Sequence[Placed]) -> list[lint_formats.Rule]:
    from safelaunch.cli.explain import text

    used = {one.finding.code for one in found}
    entries = [entry for code, entry in codes.CATALOGUE.items() if code in used]
    return [lint_formats.Rule(entry.code, entry.slug, entry.title, text(entry)) for entry in entries]


def _is_wrong(lint: LintedFiles) -> bool:
    return any(one.finding.severity in ("error", "warning") for one in lint.remarks)


def _exit_code(lint: LintedFiles, options: argparse.Namespace) -> int:
    if lint.failed:
        return EXIT_ERROR
    return EXIT_FOUND if _is_wrong(lint) and not options.exit_zero else codes.EXIT_OK


# ------------------------------------------------------------------------------------------------------ changes


def _fixed(lint: LintedFiles, options: argparse.Namespace) -> int:
    """Change files, or show how they would be changed; what is left is told as without it."""
    if options.diff:
        changed = 0
        for path, job in lint.jobs.items():
            text = lint.settled(path)
            if text != job.text:
                changed += 1
                output.show(printable.lines(fix.diff(path, job.text, text)))
        return EXIT_FOUND if changed and not options.exit_zero else codes.EXIT_OK
    done, changed = lint.fix()
    _show(lint, options)
    if options.format == "text":
        output.show([printable.line(f"{plural(done, 'finding')} mended in {plural(changed, 'file')}")])
    return _exit_code(lint, options)

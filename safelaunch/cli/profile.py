"""`safelaunch profile list` and `show NAME...`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from safelaunch import codes, limits
from safelaunch.cli import output
from safelaunch.codec import to_json
from safelaunch.model import SafelaunchError, Value
from safelaunch.printable import line, whole
from safelaunch.settings import profile
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.resolve import Layers, resolve_profiles

USAGE = """\
usage: safelaunch profile list [--json]
       safelaunch profile show NAME|PATH... [--json]

list   the profiles that can be named, and where each lies
show   every value that a launch with these profiles has, with the file and line it comes from;
       the shipped default profile comes first, and a later profile wins

`safelaunch lint NAME|PATH...` checks profiles against what torch and NCCL really read.

options:
  --json      print JSON
  -h, --help  show this text
"""


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and for bad profiles."""
    arguments = parser().parse_intermixed_args(argv)
    match arguments.words:
        case _ if arguments.help:
            output.show_text(USAGE)
        case ["lint", *names]:
            raise misuse(
                "profiles are checked by `safelaunch lint`", f"safelaunch lint {' '.join(names) or '--profiles'}"
            )
        case ["list"]:
            _list(arguments.json)
        case ["show", first, *more]:
            _show([first, *more], arguments.json)
        case ["show"]:
            raise misuse("no profile was named", "`safelaunch profile list` shows the names")
        case words:
            raise misuse(
                f"expected `list` or `show NAME`, not {' '.join(words) or 'nothing'}",
                "see `safelaunch profile --help`",
            )
    return codes.EXIT_OK


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch profile")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--json", action="store_true")
    made.add_argument("words", nargs="*", metavar="list|show NAME")
    return made


def _list(as_json: bool) -> None:
    rows = [(name, *_described(path), path) for name, path in profile.available(os.environ).items()]
    if as_json:
        keys = ("name", "description", "extends", "path")
        output.show_json([dict(zip(keys, row, strict=True)) for row in rows], 2)
        return
    width = max(len(name) for name, *_ in rows)
    for name, description, bases, path in rows:
        extends = f" (extends {', '.join(bases)})" if bases else ""
        output.show([line(f"{name:{width}}  {description}", extends), line(f"{'':{width}}  {path}")])


def _described(path: str) -> tuple[str, list[str]]:
    """The description of a profile, and what it extends."""
    # One broken file must not hide the others.
    try:
        with limits.limited(0):
            found = profile.parse_file(path)
    except (SafelaunchError, limits.LimitError) as error:
        return f"(broken: {error})", []
    return found.description, [base.value for base in found.extends]


def resolved(names: Sequence[str]) -> Layers:
    """What profiles say that somebody else may have written.

    Raises SafelaunchError, SL201 also where it takes too much time or memory.
    """
    try:
        with limits.limited(len(names) << 20):
            return resolve_profiles(names, os.environ)
    except limits.LimitError as error:
        said = f"{', '.join(names)}: the profile cannot be read: {error}"
        raise SafelaunchError("SL201", said, "check the path", exit_code=codes.EXIT_PROFILE) from None


def _show(names: list[str], as_json: bool) -> None:
    layers = resolved(names)
    if as_json:
        output.show_json(_as_json(layers), 2)
        return
    lines = [whole("profiles, a later one wins: ", ", ".join(layer.name for layer in layers.profiles))]
    rows = [_row(path, value) for path, value in _sorted(layers)]
    width = max(len(setting) for _, setting, _ in rows)
    shown = ""
    for table, setting, value in rows:
        if table != shown:
            lines += [line(), line(f"[{table}]")] if table else [line()]
            shown = table
        lines.append(whole(f"{setting:{width}}  # {value.origin.where}"))
    output.show(lines)


def _row(path: tuple[str, ...], value: Value) -> tuple[str, str, Value]:
    """The table of a setting, the setting as text, and its value."""
    if path[0] == "unset":
        return "", f"unset {path[1]}", value
    return ".".join(path[:-1]), f"{path[-1]} = {_as_toml(value.value)}", value


def _sorted(layers: Layers) -> list[tuple[tuple[str, ...], Value]]:
    """The values table by table, tables and keys in the order of the files."""
    tables = list(dict.fromkeys([("unset",), *(path[:-1] for path in layers.values)]))
    return sorted(layers.values.items(), key=lambda item: tables.index(item[0][:-1]))


def _as_toml(value: Any) -> str:
    if value is None:
        return '"never"'
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _as_json(layers: Layers) -> dict[str, Any]:
    return {
        "profiles": [{"name": layer.name, "path": layer.path} for layer in layers.profiles],
        "values": {".".join(path): to_json(value) for path, value in _sorted(layers)},
    }

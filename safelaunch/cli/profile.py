"""`safelaunch profile list` and `safelaunch profile show NAME...`."""

from __future__ import annotations

import json
import os
from typing import Any

from safelaunch import codes
from safelaunch.codec import to_json
from safelaunch.model import SafelaunchError, Value
from safelaunch.settings import profile
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.resolve import Layers, resolve_profiles

USAGE = """\
usage: safelaunch profile list [--json]
       safelaunch profile show NAME|PATH... [--json]

list   the profiles that can be named, and where each lies
show   every value that a launch with these profiles has, with the file and line it comes from;
       the shipped default profile comes first, and a later profile wins

options:
  --json      print JSON
  -h, --help  show this text
"""


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and for bad profiles."""
    parser = Parser("safelaunch profile")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("words", nargs="*", metavar="list|show NAME")
    arguments = parser.parse_intermixed_args(argv)
    match arguments.words:
        case _ if arguments.help:
            print(USAGE, end="")
        case ["list"]:
            _list(arguments.json)
        case ["show", first, *more]:
            _show([first, *more], arguments.json)
        case ["show"]:
            raise misuse("no profile was named", "`safelaunch profile list` shows the names")
        case words:
            raise misuse(
                f"expected `list` or `show NAME`, not {' '.join(words) or 'nothing'}", "see `safelaunch profile --help`"
            )
    return codes.EXIT_OK


def _list(as_json: bool) -> None:
    rows = [(name, _description(path), path) for name, path in profile.available(os.environ).items()]
    if as_json:
        keys = ("name", "description", "path")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    width = max(len(name) for name, _, _ in rows)
    for name, description, path in rows:
        print(f"{name:{width}}  {description}")
        print(f"{'':{width}}  {path}")


def _description(path: str) -> str:
    # One broken file must not hide the others.
    try:
        return profile.parse_file(path).description
    except SafelaunchError as error:
        return f"(broken: {error})"


def _show(names: list[str], as_json: bool) -> None:
    layers = resolve_profiles(names, os.environ)
    if as_json:
        print(json.dumps(_as_json(layers), indent=2))
        return
    print("profiles, a later one wins: " + ", ".join(layer.name for layer in layers.profiles))
    rows = [(".".join(path[:-1]), f"{path[-1]} = {_as_toml(value.value)}", value) for path, value in _sorted(layers)]
    width = max(len(setting) for _, setting, _ in rows)
    shown = ""
    for table, setting, value in rows:
        if table != shown:
            print(f"\n[{table}]")
            shown = table
        print(f"{setting:{width}}  # {value.origin.where}")


def _sorted(layers: Layers) -> list[tuple[tuple[str, ...], Value]]:
    """The values table by table, tables and keys in the order of the files."""
    tables = list(dict.fromkeys(path[:-1] for path in layers.values))
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

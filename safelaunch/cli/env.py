"""`safelaunch env`: the environment variables that the profiles of a launch add."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping

from safelaunch import codes
from safelaunch.codec import to_json
from safelaunch.model import Value
from safelaunch.settings import kinds
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.resolve import apply_shell, resolve_profiles, shell_rival

USAGE = """\
usage: safelaunch env [--profile NAME|PATH]... [--json]

Show the environment variables that a launch with these profiles adds, with the file and line each
comes from, and those that stay as the shell has them. The output can be sourced by a shell.

options:
  --profile NAME|PATH  as for a launch: repeatable, a later one wins; else SAFELAUNCH_PROFILE
  --json               print JSON
  -h, --help           show this text
"""


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and for bad profiles."""
    parser = Parser("safelaunch env")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        raise misuse(f"unknown argument {unknown[0]}", "see `safelaunch env --help`")
    if arguments.help:
        print(USAGE, end="")
        return codes.EXIT_OK
    names = arguments.profile or kinds.NAMES.read(os.environ.get("SAFELAUNCH_PROFILE", ""))
    env = resolve_profiles(names, os.environ).table("env")
    added, _ = apply_shell(env, os.environ)
    overridden = {name: value for name, value in env.items() if name not in added}
    if arguments.json:
        print(json.dumps(_as_json(added, overridden), indent=2))
    else:
        _print(added, overridden)
    return codes.EXIT_OK


def _print(added: Mapping[str, Value], overridden: Mapping[str, Value]) -> None:
    settings = {name: f"{name}={shlex.quote(value.value)}" for name, value in sorted(added.items())}
    width = max(map(len, settings.values()), default=0)
    for name, setting in settings.items():
        print(f"{setting:{width}}  # {added[name].origin}")
    for name, value in sorted(overridden.items()):
        rival = shell_rival(name, os.environ)
        line = f"# {rival}={os.environ[rival]} stays as in the shell; {name}={value.value} is set by {value.origin}"
        print(line.replace("\n", "\\n"))  # a line break would end the comment


def _as_json(added: Mapping[str, Value], overridden: Mapping[str, Value]) -> dict[str, object]:
    def shell_value(name: str) -> dict[str, str]:
        rival = shell_rival(name, os.environ)
        return {"variable": rival, "value": os.environ[rival]}

    return {
        "added": {name: to_json(value) for name, value in added.items()},
        "overridden": {
            name: {"shell": shell_value(name), "profile": to_json(value)} for name, value in overridden.items()
        },
    }

"""`safelaunch env`: the environment variables that the profiles of a launch add."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from safelaunch import codes
from safelaunch.cli import output, profile
from safelaunch.codec import to_json
from safelaunch.model import Value
from safelaunch.printable import Line, quoted, whole
from safelaunch.redaction import redact
from safelaunch.settings import computed, kinds
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.resolve import Layers, apply_shell, drop_unset, shell_rival

USAGE = """\
usage: safelaunch env [--profile NAME|PATH]... [--check [--strict]] [--json]

Show the environment variables that a launch with these profiles adds, with the file and line each
comes from, those that it takes away, and those that stay as the shell has them. The output can be
sourced by a shell; what only the launch can compute, such as {run_dir}, is shown as a comment.

options:
  --profile NAME|PATH  as for a launch: repeatable, a later one wins; else SAFELAUNCH_PROFILE
  --check              check the whole environment of such a launch against what the installed torch
                       and NCCL really read; exit code 78 where something is wrong
  --strict             with --check: warnings give exit code 78 as well
  --json               print JSON
  -h, --help           show this text
"""


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and for bad profiles."""
    arguments, unknown = parser().parse_known_args(argv)
    if unknown:
        raise misuse(f"unknown argument {unknown[0]}", "see `safelaunch env --help`")
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    names = arguments.profile or kinds.NAMES.read(os.environ.get("SAFELAUNCH_PROFILE", ""))
    if arguments.strict and not arguments.check:
        raise misuse("--strict goes with --check", "safelaunch env --check --strict")
    layers = profile.resolved(names)
    if arguments.check:
        return _check(layers, as_json=arguments.json, strict=arguments.strict)
    shown = _Shown.of(layers)
    if arguments.json:
        output.show_json(_as_json(shown), 2)
    else:
        output.show(_lines(shown))
    return codes.EXIT_OK


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch env")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--profile", action="append", default=[])
    made.add_argument("--json", action="store_true")
    made.add_argument("--check", action="store_true")
    made.add_argument("--strict", action="store_true")
    return made


@dataclass(frozen=True)
class _Shown:
    """What is shown: variables that are added, that only the launch can compute, that the shell has instead, and that
    are taken away; and the shell's environment without the last."""

    added: dict[str, Value]
    computed: dict[str, Value]
    overridden: dict[str, Value]
    unset: dict[str, Value]
    shell: dict[str, str]

    @classmethod
    def of(cls, layers: Layers) -> _Shown:
        env, unset = layers.table("env"), layers.table("unset")
        shell, _ = drop_unset(unset, os.environ)
        kept, _ = apply_shell(env, shell)
        texts = {name: computed.value(str(value.value), {"host": socket.gethostname()}) for name, value in kept.items()}
        return cls(
            added={name: Value(text, kept[name].origin) for name, text in texts.items() if text is not None},
            computed={name: kept[name] for name, text in texts.items() if text is None},
            overridden={name: value for name, value in env.items() if name not in kept},
            unset={name: value for name, value in unset.items() if name not in kept},
            shell=shell,
        )


def _check(layers: Layers, *, as_json: bool, strict: bool) -> int:
    from safelaunch.cli import findings
    from safelaunch.run.lint import installed_of

    installed = installed_of(os.environ, findings.SCAN_S)
    found = findings.of_layers(layers, installed, os.environ)
    checked = f"{len(os.environ)} variables of the environment and {len(layers.table('env'))} of the profiles"
    return findings.show(found, checked, installed, as_json=as_json, strict=strict)


def _lines(shown: _Shown) -> list[Line]:
    settings = [(f"unset {name}", value.origin) for name, value in sorted(shown.unset.items())]
    settings += [(f"{name}={quoted(value.value)}", value.origin) for name, value in sorted(shown.added.items())]
    width = max((len(setting) for setting, _ in settings), default=0)
    lines = [whole(f"{setting:{width}}  # {origin}") for setting, origin in settings]
    remarks = [
        f"{name}={value.value} is computed by the launch, as {value.origin} says"
        for name, value in sorted(shown.computed.items())
    ]
    for name, value in sorted(shown.overridden.items()):
        rival = shell_rival(name, shown.shell)
        remarks.append(
            f"{rival}={redact(rival, shown.shell[rival])} stays as in the shell; "
            f"{name}={redact(name, str(value.value))} is set by {value.origin}"
        )
    return lines + [whole("# ", remark) for remark in remarks]


def _as_json(shown: _Shown) -> dict[str, object]:
    def shell_value(name: str) -> dict[str, str]:
        rival = shell_rival(name, shown.shell)
        return {"variable": rival, "value": shown.shell[rival]}

    return {
        "added": to_json(shown.added),
        "computed": to_json(shown.computed),
        "unset": {name: to_json(value.origin) for name, value in shown.unset.items()},
        "overridden": {
            name: {"shell": shell_value(name), "profile": to_json(value)} for name, value in shown.overridden.items()
        },
    }

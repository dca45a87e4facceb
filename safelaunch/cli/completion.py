"""`safelaunch completion bash|zsh|fish`: a script by which a shell completes the command line.

It is made from the parsers of all subcommands, so that no option is listed twice.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from safelaunch.cli import output, shells
from safelaunch.cli.shells import Command, Offer, Word
from safelaunch.codes import CATALOGUE
from safelaunch.settings import options, profile, usage
from safelaunch.settings.commandline import misuse

WRITERS = {"bash": shells.bash, "zsh": shells.zsh, "fish": shells.fish}
# A profile may be called anything, and its name becomes a part of a script.
SAFE = re.compile(r"[A-Za-z0-9_.@+-]+")


def run(argv: list[str]) -> int:
    """Print the script of one shell; returns the exit code."""
    shell = parser().parse_args(argv).shell
    if shell not in WRITERS:
        raise misuse(
            f"there is no completion for {shell}" if shell else "no shell was named",
            f"one of {', '.join(WRITERS)}",
        )
    output.show_script(WRITERS[shell](commands()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(
        prog="safelaunch completion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("shell", nargs="?", metavar="|".join(WRITERS), help="the shell to write for")
    return made


def commands() -> list[Command]:
    """What can be completed: the launch first, which is called "", then all subcommands in the order of `--help`."""
    from safelaunch.cli.main import SUBCOMMANDS

    about = {text.split()[0]: words for text, words in reversed(usage.COMMANDS)}
    found = [_command("", "", options.parser(), {})]
    for name in SUBCOMMANDS:
        module = import_module(f"safelaunch.cli.{name}")
        found.append(_command(name, about.get(name, ""), module.parser(), _usage(module)))
    return found


def _command(name: str, about: str, made: argparse.ArgumentParser, texts: dict[str, str]) -> Command:
    words, offers = [], []
    for action in made._actions:
        if not action.option_strings:
            if action.nargs != argparse.REMAINDER:
                offers.append(_offer(action))
            continue
        shown = tuple(one for one in action.option_strings if "_" not in one)
        hidden = tuple(one for one in action.option_strings if "_" in one)
        help_text = action.help or next((texts[one] for one in shown if one in texts), "")
        offer = None if action.nargs == 0 else _offer(action)
        many = type(action).__name__ in ("_AppendAction", "_ExtendAction", "_CountAction") or name == ""
        words.append(Word(shown, hidden, " ".join(help_text.replace("%%", "%").split()), offer, many))
    return Command(name, about, tuple(words), shells.together(offers))


# ------------------------------------------------------------------------------------- what a value may be


def _offer(action: argparse.Action) -> Offer:
    """What may stand there, by the choices of an option, by its name, and by the words that `--help` shows for it."""
    if action.choices:
        return Offer(tuple((str(one), "") for one in action.choices))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    marks = re.findall(r"[\w-]+", metavar)
    literal = Offer(tuple((mark, "") for mark in marks if re.fullmatch(r"[a-z][a-z0-9-]+", mark)))
    kinds = [_KINDS[key] for key in (action.dest, *marks) if key in _KINDS]
    return shells.together([literal, *(kind() for kind in dict.fromkeys(kinds))])


def _files() -> Offer:
    return Offer(files=True)


def _folders() -> Offer:
    return Offer(folders=True)


def _runs() -> Offer:
    return Offer(runs=True)


def _codes() -> Offer:
    return Offer(tuple((entry.code, entry.title) for entry in CATALOGUE.values()))


def _profiles() -> Offer:
    return Offer(tuple((name, "") for name in sorted(profile.available(os.environ)) if SAFE.fullmatch(name)))


def _checks() -> Offer:
    from safelaunch.cli.check import ALL

    names = {check.name: CATALOGUE[check.code].title for check in ALL}
    groups = {check.group: "" for check in ALL}
    return Offer(tuple((groups | names).items()))


# By the name of a value in `--help`, or by the name of an option or argument that has none there.
_KINDS = {
    "FILE": _files, "PATH": _files, "paths": _files, "script": _files, "training_script": _files,
    "FOLDER": _folders, "DIR": _folders,
    "RUN": _runs, "run": _runs, "runs": _runs,
    "PROFILE": _profiles, "profile": _profiles, "words": _profiles,
    "CODE": _codes, "code": _codes, "ignore": _codes,
    "CHECK": _checks,
}  # fmt: skip


def _usage(module: ModuleType) -> dict[str, str]:
    """What the text of `--help` says of each option, where a subcommand has written that text itself."""
    return dict(_entries(getattr(module, "USAGE", "")))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^  (-\S.*?)  +(\S.*(?:\n {8,}\S.*)*)", text, re.MULTILINE):
        for spelling in re.findall(r"(?<!\S)--?[\w-]+", match[1]):
            yield spelling, match[2]

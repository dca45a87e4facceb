"""The whole command line: torchrun's options and ours, from flags and from the environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from safelaunch.model import Origin, Value
from safelaunch.settings import safelaunch_options, torchrun
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.settings.option import Option, with_underscores
from safelaunch.settings.spelling import did_you_mean

OPTIONS: tuple[Option, ...] = torchrun.OPTIONS + safelaunch_options.OPTIONS

Request = Literal["run", "help", "version", "completion"]
_REQUESTS: dict[tuple[str, ...], Request] = {("-h", "--help"): "help", ("--version",): "version"}


@dataclass(frozen=True)
class CommandLine:
    """What the user asked for on the command line and in the environment.

    `values` holds every option by destination, and `training_script` and `training_script_args`; it is empty for
    `--help`, `--version` and `--print-completion`, which end the reading at once as they do in argparse. `shell` is
    that of the latter.
    """

    request: Request
    values: dict[str, Value]
    shell: str = ""

    def __getitem__(self, dest: str) -> Any:
        """The bare value of an option."""
        return self.values[dest].value


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> CommandLine:
    """The command line, or a variable that stands for an option, cannot be understood.

    Options come before the script; what follows the script belongs to the script. All options of torchrun are
    accepted with their spellings, their abbreviations and their PET_<OPTION> variables; safelaunch's own can be
    set by SAFELAUNCH_<OPTION>. A flag beats a variable. An empty SAFELAUNCH_<OPTION> counts as unset; an empty
    PET_<OPTION> is a value, as it is under torchrun.

    How it is concluded: an option is not known, lacks its value or abbreviates several; a value is not what the
    option accepts; or there is no script. Nothing has been started.

    What to do: the message names the flag or the variable and what it accepts; `safelaunch --help` lists all.
    A script whose name is that of a subcommand is run by `safelaunch -- NAME`.
    """
    try:
        namespace, unknown = _parser().parse_known_args(list(argv))
    except _Asked as asked:
        return CommandLine(asked.request, {}, asked.shell)
    if unknown and unknown != ["--"]:
        raise _unknown_option(unknown[0])
    if namespace.training_script is None:
        raise misuse("no training script was given", "safelaunch --nproc-per-node 2 train.py --its-own-options")
    values = {option.dest: _value(option, namespace.given.get(option.dest, []), environ) for option in OPTIONS}
    for dest in ("training_script", "training_script_args"):
        values[dest] = Value(getattr(namespace, dest), Origin("flag"))
    return CommandLine("run", values)


# ---------------------------------------------------------------------------------------- flags to values


def _value(option: Option, given: Sequence[tuple[str, Any]], environ: Mapping[str, str]) -> Value:
    if given:
        return Value(_from_flags(option, given), Origin("flag", given[-1][0]))
    for variable in option.variables:
        text = environ.get(variable)
        if text is None or (text == "" and variable.startswith("SAFELAUNCH_")):
            continue
        value = _read(option, text, f"{variable}={text}")
        return Value(tuple(value) if option.takes == "list" else value, Origin("shell", variable))
    return Value(option.default, Origin("default"))


def _from_flags(option: Option, given: Sequence[tuple[str, Any]]) -> Any:
    spelling, last = given[-1]
    if option.takes == "flag":
        return last
    if option.takes == "count":
        return len(given)
    if option.takes == "list":
        return tuple(text for _, text in given)
    return _read(option, last, f"{spelling} {last}")


def _read(option: Option, text: str, shown: str) -> Any:
    try:
        return option.kind.read(text)
    except ValueError:
        raise misuse(
            f"{shown}: expected {option.kind.expects}",
            did_you_mean(text, option.kind.choices),
        ) from None


def _unknown_option(word: str) -> Exception:
    name = word.split("=")[0]
    known = [spelling for option in OPTIONS for spelling in option.names + option.off]
    guess = did_you_mean(name, [*known, "--help", "--version"])
    return misuse(f"unknown option {name}", guess or "see `safelaunch --help`; the script's own options follow it")


# --------------------------------------------------------------------------------------- argparse's share


class _Asked(Exception):
    """Ends the reading at `--help` or `--version`."""

    def __init__(self, request: Request, shell: str = ""):
        self.request, self.shell = request, shell


class _Ask(argparse.Action):
    def __call__(self, _parser: Any, _namespace: Any, values: Any, _option: str | None = None) -> None:
        raise _Asked(self.const, "".join(values))


class _Note(argparse.Action):
    """Keep each occurrence of an option with the spelling that brought it."""

    def __call__(self, _parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = self.const if self.nargs == 0 else values
        namespace.given.setdefault(self.dest, []).append((option_string, value))


class _LaunchParser(Parser):
    """torchrun's abbreviations first.

    A prefix that torchrun accepts must keep its meaning, although an option of ours starts alike (`--run-`,
    `--no-`, `--h`), and so must one that an older torchrun accepts (`--log-`). Two spellings of one option do not
    compete with each other.
    """

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # A private method of argparse, with this name and with the action first in each match since Python 2.7.
        matches: list[Any] = super()._get_option_tuples(option_string)
        if len({match[0].dest for match in matches}) == 1:
            return matches[:1]
        for dests in (_TORCHRUN_DESTS, _TORCHRUN_DESTS - _LATER):
            of_torchrun = [match for match in matches if match[0].dest in dests]
            if len(of_torchrun) == 1:
                return of_torchrun
        return matches


_LATER = {"completion", *torchrun.LATER}
_TORCHRUN_DESTS = {"help", "completion", *(option.dest for option in torchrun.OPTIONS)}


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, whose actions carry the words of `--help`."""
    made = _parser()
    for action in made._actions:
        option = next((option for option in OPTIONS if option.dest == action.dest), None)
        if option is not None:
            action.help, action.choices = option.help.replace("%", "%%"), option.kind.choices or None
            action.metavar = option.metavar or None
    return made


def _parser() -> _LaunchParser:
    parser = _LaunchParser()
    parser.set_defaults(given={})
    for names, request in _REQUESTS.items():
        parser.add_argument(*names, dest=request, action=_Ask, nargs=0, const=request, default=argparse.SUPPRESS)
    asks = with_underscores(("--print-completion",))
    parser.add_argument(*asks, dest="completion", action=_Ask, choices=torchrun.SHELLS, const="completion")
    for option in OPTIONS:
        _add(parser, option)
    # Not required, so that `parse` can name an unknown option before it misses the script.
    parser.add_argument("training_script").required = False
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER).required = False
    return parser


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    nargs = 0 if option.takes in ("flag", "count") else None
    for names, const in ((option.spellings, True), (with_underscores(option.off), False)):
        if names:
            parser.add_argument(
                *names, dest=option.dest, action=_Note, nargs=nargs, const=const, default=argparse.SUPPRESS
            )

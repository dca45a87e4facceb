"""The text of `safelaunch --help`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from safelaunch.settings import safelaunch_options, torchrun
from safelaunch.settings.option import Option

COMMANDS: tuple[tuple[str, str], ...] = (
    ("check", "check this node and start nothing"),
    ("profile list", "list the profiles that can be named"),
    ("profile show NAME...", "show every value of profiles and where it comes from"),
    ("lint [FILE|FOLDER]...", "look for what is wrong in the files of jobs, and mend it"),
    ("env", "show the environment variables that a launch would add"),
    ("diagnose PATH...", "the verdict on what a job left behind: bundles, Flight Recorder dumps, logs"),
    ("attach PID|SLURM_JOBID", "the verdict on a job that hangs now on this node, whoever started it"),
    ("dump [RUN|PID]", "show what all ranks do now, whether or not anything is wrong"),
    ("trace [RUN]", "record the same steps of all ranks by torch.profiler, while the run goes on"),
    ("top [RUN]", "follow the ranks of a run, full screen"),
    ("exec -- COMMAND", "run a command of another launcher as it is, and watch the ranks below it"),
    ("stop RUN", "have a run stop at a step, where its script calls safelaunch.should_stop()"),
    ("clean [RUN]...", "show what earlier runs have left on this node, and end it after a yes"),
    ("runs [SCRIPT]", "list what you have run, and what became of it"),
    ("diff RUN RUN", "show what differs between two runs"),
    ("events [RUN]", "show what has happened in a run, and follow it"),
    ("explain CODE", "explain a code such as SL401; --all for every one"),
    ("policy NAME", "what makes a scheduler act on the exit codes"),
    ("completion SHELL", "what makes bash, zsh or fish complete options, profiles and codes"),
)

_WIDTH = 100
_COLUMN = 34

_HEAD = """\
usage: safelaunch [torchrun options] [safelaunch options] script.py [script's own options]
       safelaunch COMMAND [--help]

The launcher to run instead of torchrun: it checks the node, watches every rank, and names who
failed and why.
"""
_TORCHRUN = (
    "torchrun options: the spellings, abbreviations, defaults and PET_<OPTION> variables are those of torchrun "
    "(logs-specs and numa-binding have no variable)"
)
_OWN = (
    "safelaunch options: each can be set by SAFELAUNCH_<OPTION>, such as SAFELAUNCH_RUN_DIR; SAFELAUNCH_PROFILE takes "
    "a list with commas. Flags beat variables, variables beat profiles"
)
_TAIL = """\
A script whose name is that of a command is run by `safelaunch -- NAME`.
"""


def help_text() -> str:
    """The whole help, without colour, for a width of 100 columns."""
    lines = [_HEAD, *_wrapped(_TORCHRUN)]
    for group in dict.fromkeys(option.group for option in torchrun.OPTIONS):
        lines += ["", f" {group}:"]
        lines += _entries(option for option in torchrun.OPTIONS if option.group == group)
    lines += ["", *_wrapped(_OWN), *_entries(safelaunch_options.OPTIONS)]
    lines += _entry("-h, --help", "show this text")
    lines += _entry("--version", "show the version")
    lines += _entry("--print-completion SHELL", "print what bash, zsh or tcsh completes by (needs shtab)")
    lines += ["", "commands:"]
    for command, text in COMMANDS:
        lines += _entry(command, text)
    return "\n".join([*lines, "", _TAIL])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text + ":", _WIDTH)


def _entries(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        yield from _entry(_left(option), option.help + _default(option))


def _left(option: Option) -> str:
    names = ", ".join(option.names + option.off)
    return f"{names} {option.metavar}" if option.metavar else names


def _default(option: Option) -> str:
    # A flag, an empty list and None explain themselves in the text.
    plain = option.takes == "value" and option.default not in (None, "", [])
    return f" (default: {option.default})" if plain else ""


def _entry(left: str, right: str) -> list[str]:
    left = f"  {left}"
    body = textwrap.wrap(right, _WIDTH - _COLUMN)
    indent = " " * _COLUMN
    if len(left) + 2 > _COLUMN:
        return [left, *(indent + line for line in body)]
    return [left.ljust(_COLUMN) + body[0], *(indent + line for line in body[1:])]

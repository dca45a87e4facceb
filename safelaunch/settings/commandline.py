"""argparse without its own way of leaving: every misuse is a SafelaunchError."""

from __future__ import annotations

import argparse
from typing import NoReturn

from safelaunch import codes
from safelaunch.model import SafelaunchError


def misuse(summary: str, remedy: str = "") -> SafelaunchError:
    """The error for a command line that cannot be understood."""
    return SafelaunchError("SL001", summary, remedy or "see `safelaunch --help`", exit_code=codes.EXIT_USAGE)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # argparse makes one for each option it is given; without a width each asks the terminal, by importing shutil.
    return argparse.HelpFormatter(prog, width=100)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises `misuse` and never prints or exits by itself.

    It has no `--help` of its own: whoever uses it adds one as a plain flag.
    """

    def __init__(self, prog: str = "safelaunch"):
        super().__init__(prog=prog, add_help=False, formatter_class=_formatter)

    def error(self, message: str) -> NoReturn:
        raise misuse(message, f"see `{self.prog} --help`")

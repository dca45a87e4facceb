"""`safelaunch [options] script.py args...`: what the command line asks for."""

from __future__ import annotations

import os

from safelaunch import __version__
from safelaunch.cli import output
from safelaunch.launch.signals import Signals
from safelaunch.model import SafelaunchError
from safelaunch.settings import options


def run(argv: list[str]) -> int:
    """Run one job, or answer what is asked of it; returns the exit code.

    Raises:
        SafelaunchError: for a command line or a profile that cannot be used, and where there can be no run.
    """
    # First of all, so that a signal works from the first moment on, also as PID 1 of a container.
    signals = Signals()
    command_line = options.parse(argv, os.environ)
    if command_line.request != "run":
        return _answer(command_line)
    # What `--help` has no use for is loaded from here on.
    from safelaunch.settings import resolve

    settings = resolve.settle(command_line, os.environ)
    if settings["dry_run"]:
        from safelaunch.cli.dry_run import show

        return show(settings)
    from safelaunch.run import exit_codes, pipeline

    try:
        return pipeline.run(settings, signals, argv)
    except SafelaunchError as error:
        error.exit_code = exit_codes.wanted(error.exit_code, settings)
        raise


def _answer(asked: options.CommandLine) -> int:
    if asked.request == "version":
        output.show_text(f"safelaunch {__version__}")
    elif asked.request == "completion":
        from safelaunch.settings import completion

        output.show_script(completion.script(asked.shell))
    else:
        from safelaunch.settings.usage import help_text

        output.show_text(help_text())
    return 0

"""Completion of the command line by a shell: `safelaunch --print-completion bash`, as torchrun of torch 2.15 has it."""

from __future__ import annotations

from safelaunch.settings import options
from safelaunch.settings.commandline import misuse


def script(shell: str) -> str:
    """What a shell is to load. The package `shtab`, which torchrun uses as well, makes it of the parser.

    Raises:
        SafelaunchError: where that package is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise misuse("--print-completion needs the package shtab", "pip install shtab") from None
    return str(shtab.complete(options.parser(), shell=shell))

"""One option of the command line, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from safelaunch.settings.kinds import Kind


@dataclass(frozen=True)
class Option:
    """One option: its spellings, what it accepts, and where else it may be set.

    `names` are the spellings to show; each long one is also accepted with underscores. `off` spells the opposite
    of a flag. `takes` says what the command line brings: one value, no value (`flag`), a number of repetitions
    (`count`) or one value per repetition (`list`). `variables` are looked up in order when the command line is
    silent.
    """

    names: tuple[str, ...]
    kind: Kind
    default: Any
    group: str
    help: str
    metavar: str = ""
    takes: Literal["value", "flag", "count", "list"] = "value"
    off: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def dest(self) -> str:
        """The name of the setting: argparse's rule, the first long spelling."""
        return next(name for name in self.names if name.startswith("--"))[2:].replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        return with_underscores(self.names)


def with_underscores(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, and each long one again with underscores between its words."""
    aliases = ("--" + name[2:].replace("-", "_") for name in names if name.startswith("--"))
    return tuple(dict.fromkeys([*names, *aliases]))

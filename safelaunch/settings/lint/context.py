"""What a rule of the lint may look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from safelaunch.model import Origin, Value
from safelaunch.settings.lint.installed import NOTHING_INSTALLED, Installed


@dataclass(frozen=True)
class Setting:
    """One variable as somebody set it. `value` is None where it cannot be told: `export X=$(command)`.

    An assignment of the training script has in `after` what has happened before it: `torch` (it was imported) and
    `cuda` (a call that may have started CUDA). Everywhere else `after` is None: the variable is there when a rank
    starts. `weak` is an assignment that leaves another one alone, os.environ.setdefault. `of_nccl_conf` marks a line of
    NCCL's own configuration file, over which the environment wins.
    `branches` are the ways that lead to it: the number of a fork, and that of the branch which is taken there.
    """

    name: str
    value: str | None
    origin: Origin
    after: frozenset[str] | None = None
    weak: bool = False
    of_nccl_conf: bool = False
    branches: tuple[tuple[int, int], ...] = ()

    def excludes(self, other: Setting) -> bool:
        """Whether two settings of a file are never made together: they stand in two branches of one fork."""
        mine = dict(self.branches)
        return any(mine.get(fork, way) != way for fork, way in other.branches)


@dataclass(frozen=True, eq=False)  # its own identity: what was concluded of one is kept for it
class LintContext:
    """The settings of a lint, in the order in which they were made, and what is known of the launch.

    A name may be set more than once; the last one counts where variables are put side by side. `read_by_script` are
    names that the training script has somewhere in its text: it may read them itself. `debugging` is true where the
    profile says that speed does not matter. `timeouts` and `hang` are the tables of the profile, in seconds.
    `dead_timeouts` are the places where the script sets a timeout that torch does not read. `backend` is what the
    launch will use as far as that is known: `nccl`, `gloo` or "". `nodes` is None where there is no launch, or where
    their number is open. `interfaces` are the network interfaces of this machine, and None where the settings may be
    meant for another one. `elastic` is false where torchrun, or what does as it does, is not known to start the ranks.
    """

    settings: tuple[Setting, ...]
    installed: Installed = NOTHING_INSTALLED
    debugging: bool = False
    read_by_script: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    timeouts: dict[str, Value] = field(default_factory=dict)
    hang: dict[str, Value] = field(default_factory=dict)
    backend: str = ""
    nodes: int | None = None
    dead_timeouts: tuple[str, ...] = ()
    interfaces: frozenset[str] | None = None
    elastic: bool = True

    def last(self) -> dict[str, Setting]:
        """The setting of each name that is in force."""
        found: dict[str, Setting] = {}
        for setting in self.settings:
            if not (setting.weak and setting.name in found):
                found[setting.name] = setting
        return found

    def __iter__(self) -> Iterator[Setting]:
        """The settings that do something: not the weak ones whose name was set before."""
        seen: set[str] = set()
        for setting in self.settings:
            if not (setting.weak and setting.name in seen):
                yield setting
            seen.add(setting.name)

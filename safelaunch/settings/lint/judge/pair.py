"""What a pair of settings is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.wording import Severity


@dataclass(frozen=True)
class Pair:
    """Settings that do not go together.

    `names` are the variables to show, those of them that are set; a pattern that ends with `*` stands for all that
    begin like it. `holds` is asked about the settings in force. `says` is what is the case, `why` the reason and its
    source.
    """

    names: tuple[str, ...]
    holds: Callable[[InForce], bool]
    severity: Severity
    says: str
    why: tuple[str, ...]
    remedy: str

    def involved(self, env: InForce) -> tuple[str, ...]:
        """The names that are set."""
        found: list[str] = []
        for name in self.names:
            found += env.starting(name[:-1]) if name.endswith("*") else [name] if env.has(name) else []
        return tuple(dict.fromkeys(found))

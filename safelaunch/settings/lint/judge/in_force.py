"""The settings of a context that are in force, as their programs read them."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache

from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.judge.flags import TORCH_ON
from safelaunch.settings.lint.judge.integers import strtoll
from safelaunch.settings.lint.judge.lateness import why_late
from safelaunch.settings.lint.judge.reading import is_read
from safelaunch.settings.lint.judge.wording import literal


class InForce:
    """What is set and read, by name. A variable with something wrong about its name, or that is set too late, says
    nothing more.

    Every answer is cautious: a value that cannot be told is neither on nor off.
    """

    def __init__(self, context: LintContext) -> None:
        self.context = context
        timely = dataclasses.replace(context, settings=tuple(s for s in context if why_late(s) is None))
        self.settings: dict[str, Setting] = {
            name: setting for name, setting in timely.last().items() if is_read(name, context)
        }

    def acts(self, setting: Setting) -> bool:
        """Whether a rule may judge the value of this setting: its name is read, and in time."""
        return setting.name in self.settings and why_late(setting) is None

    def has(self, *names: str) -> bool:
        """Whether one of the variables is set, to whatever value."""
        return any(name in self.settings for name in names)

    def text(self, *names: str) -> str | None:
        """The value of the first of the variables that is set, or None where it cannot be told."""
        for name in names:
            if name in self.settings:
                return literal(self.settings[name])
        return None

    def number(self, *names: str) -> int | None:
        """The same as NCCL reads it; None where it is not set, is empty or cannot be told."""
        text = self.text(*names)
        return strtoll(text)[0] if text else None

    def on(self, *names: str) -> bool:
        """Whether NCCL reads a number other than 0."""
        return bool(self.number(*names))

    def off(self, *names: str) -> bool:
        """Whether NCCL reads a 0."""
        return self.number(*names) == 0

    def torch_on(self, *names: str) -> bool:
        """Whether torch reads a word or a number that is on."""
        return (self.text(*names) or "").lower() in TORCH_ON

    def starting(self, pattern: str) -> tuple[str, ...]:
        """The names that are set and match a pattern at their beginning, in order."""
        return tuple(sorted(name for name in self.settings if re.match(pattern, name)))

    def differ(self, one: str, other: str) -> bool:
        """Whether both are set, and to different values that can be told."""
        a, b = self.text(one), self.text(other)
        return a is not None and b is not None and a != b

    @property
    def debug_level(self) -> str | None:
        """NCCL_DEBUG in upper case; "" where it is not set, None where it cannot be told."""
        if not self.has("NCCL_DEBUG"):
            return ""
        text = self.text("NCCL_DEBUG")
        return None if text is None else text.upper()

    @property
    def on_aws(self) -> bool:
        """Whether the settings are those of a job on AWS with its plugin."""
        net = (self.text("NCCL_NET") or "").lower()
        plugins = (self.text("NCCL_NET_PLUGIN") or "", self.text("NCCL_TUNER_PLUGIN") or "")
        return (
            net == "aws libfabric"
            or any("ofi" in plugin for plugin in plugins)
            or "efa" in (self.text("FI_PROVIDER") or "").lower()
            or bool(self.starting(r"OFI_NCCL_|FI_EFA_"))
        )


@lru_cache(maxsize=1)
def in_force(context: LintContext) -> InForce:
    """What is in force in a context: looked at once for all rules."""
    return InForce(context)

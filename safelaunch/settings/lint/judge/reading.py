"""Who reads a variable: the libraries, nobody, nobody here, or nobody knows it."""

from __future__ import annotations

from functools import cache
from typing import Literal

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge import nccl_backends, versions

Standing = Literal["fine", "unknown", "unread", "unread-here"]

# How names end that scripts and images give to places and versions of their own, such as NCCL_TESTS_HOME.
OF_SCRIPTS = (
    "_HOME",
    "_ROOT",
    "_DIR",
    "_PATH",
    "_PREFIX",
    "_LOCATION",
    "_VERSION",
    "_REPO",
    "_BRANCH",
    "_COMMIT",
    "_URL",
)


def standing(name: str, context: LintContext) -> Standing:
    """Whether somebody reads a variable, as far as that is known. A name that the script has in its text is fine."""
    kind = _kind(name)
    if kind == "fine" or name in context.known or name in context.read_by_script:
        return "fine"
    if kind == "known":
        variable = catalogue.variable(name)
        elsewhere = variable and versions.not_here(variable, context.installed)
        return "unread-here" if elsewhere or nccl_backends.is_of_the_other(name, context) else "fine"
    return "fine" if context.installed.holds(name) else kind


def is_read(name: str, context: LintContext) -> bool:
    """Whether a rule may judge the value: nothing is wrong with the name."""
    return standing(name, context) == "fine"


@cache
def _kind(name: str) -> Literal["known", "unread", "unknown", "fine"]:
    """What the catalogue alone says of a name; `fine` are names of others."""
    if catalogue.variable(name) is not None:
        return "known"
    if catalogue.unread(name) is not None:
        return "unread"
    if catalogue.is_third_party(name) or name.endswith(OF_SCRIPTS):
        return "fine"
    return "unknown" if catalogue.namespace(name) == "strict" or meant(name) else "fine"


def meant(name: str) -> str:
    """The known variable that an unknown name was probably meant to be, or "": a slip, or TORCH_ that is missing or
    too much, for NCCL's variables and torch's own about NCCL look alike."""
    space = catalogue.namespace(name)
    if space == "strict":
        for other in (f"TORCH_{name}", name.removeprefix("TORCH_")):
            if other != name and catalogue.variable(other) is not None:
                return other
    other = f"PY{name}" if name.startswith("TORCH_") else name.removeprefix("PY")
    if other != name and other.startswith(("TORCH_", "PYTORCH_")) and catalogue.variable(other) is not None:
        return other  # PyTorch is called by both names
    near = catalogue.nearest(name)
    # PYTORCH_HOME is no slip of TORCH_HOME: both are heads of many names of others.
    elsewhere = space == "loose" and near.partition("_")[0] != name.partition("_")[0]
    return "" if elsewhere else near

"""Versions of the installed libraries, and whether they read a variable of the catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed, Library

Version = tuple[int, ...]

TORCH_OWNERS = frozenset({"torch", "torch-cuda", "gloo", "elastic"})

# Compilers turn shorter strings into code, where a scan of the library does not see them (two machine words; measured
# on the wheels of torch 2.13). In libnccl all names stay strings: 215 of 215 were found in 2.29.7.
SHORTEST_OF_TORCH = 17

OLDEST_IN_USE: Version = (2, 18)  # of NCCL: torch 2.1 brought it with it
OLDEST_OF_AMD: Version = (2, 6)  # whose code RCCL took over in ROCm 3.5. Source: ROCm/rccl CHANGELOG.md

# Names that a header of torch has in it one version before they are read: c10/core/AllocatorConfig.h of torch 2.9.
HELD_BEFORE_READ = frozenset({"PYTORCH_ALLOC_CONF"})


@cache
def parse(text: str) -> Version | None:
    """The first version in a text: `2.13.0+cu130` is (2, 13, 0); None where there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else None


def below(version: Version, other: Version) -> bool:
    """Whether a version is older; 2.9 and 2.9.0 are the same."""
    width = max(len(version), len(other))
    return version + (0,) * (width - len(version)) < other + (0,) * (width - len(other))


def library(owner: str, installed: Installed) -> Library | None:
    """The library that reads the variables of this owner, if it is installed."""
    if owner == "nccl":
        return installed.nccl
    return installed.torch if owner in TORCH_OWNERS else None


def label(owner: str) -> str:
    """What a library is called."""
    return "NCCL" if owner == "nccl" else "torch"


def here(owner: str, installed: Installed) -> str:
    """The library that is judged by, in words: `NCCL 2.30` where somebody has named it, else `the installed NCCL`."""
    found = library(owner, installed)
    return f"{label(owner)} {found.version}" if found and not found.path else f"the installed {label(owner)}"


def of(owner: str, installed: Installed) -> Version | None:
    """The version of the installed library that reads the variables of this owner; None where it is not known."""
    found = library(owner, installed)
    return parse(found.version) if found else None


def older(owner: str, installed: Installed, version: str) -> bool:
    """Whether the installed library is known to be older than `version`."""
    here, other = of(owner, installed), parse(version)
    return here is not None and other is not None and below(here, other)


def at_least(owner: str, installed: Installed, version: str) -> bool:
    """Whether the installed library is known to be of this version or a later one."""
    here, other = of(owner, installed), parse(version)
    return here is not None and other is not None and not below(here, other)


@dataclass(frozen=True)
class NotHere:
    """Why the installed library does not read a variable. `since` is where it will, in a later version."""

    why: str
    since: str = ""


def not_here(variable: Variable, installed: Installed) -> NotHere | None:
    """Why the installed library does not read this variable; None where it does, or where that cannot be told.

    What the library holds has the last word over what the catalogue says of its version.
    """
    found = library(variable.owner, installed)
    if found is None:
        return None
    name = label(variable.owner)
    is_here = f", and {name} {found.version} is installed".replace("  ", " ") if found.path else ""
    removed, since = _bound(variable.removed_in), _bound(variable.since)
    if removed and at_least(variable.owner, installed, removed):
        reason = NotHere(f"it is gone since {name} {removed}{is_here}")
    elif since and older(variable.owner, installed, since):
        reason = NotHere(f"{name} reads it from {since} on{is_here}", since)
    elif _conclusive(variable, installed):
        return (
            NotHere(f"{found.path} does not have the name in it") if installed.holds(variable.name) is False else None
        )
    else:
        return None
    if variable.name in HELD_BEFORE_READ:
        return reason
    return None if installed.holds(variable.name) else reason


def long_gone(variable: Variable, installed: Installed) -> bool:
    """Whether NCCL gave a variable up so long ago that no NCCL of today reads it, and there is none here to ask. AMD's
    has followed it since."""
    removed = parse(variable.removed_in)
    if variable.owner != "nccl" or removed is None or installed.nccl is not None:
        return False
    return below(removed, OLDEST_OF_AMD if for_amd(installed) else OLDEST_IN_USE)


def for_amd(installed: Installed) -> bool:
    """Whether the variables are for AMD's GPUs, and so for its NCCL."""
    return installed.torch is not None and installed.torch.other_gpu


def newest(variable: Variable, installed: Installed) -> str:
    """The last of the names that followed the name of a variable and that are read here; "" where none did.

    Args:
        variable: with an old name.
        installed: the libraries. Where their version is not known, all of these names are taken for known.
    """
    from safelaunch.settings.lint import catalogue

    found = [variable.renamed_to]
    while (new := catalogue.variable(found[-1])) is not None and new.deprecated and new.renamed_to not in ("", *found):
        following = catalogue.variable(new.renamed_to)
        since = _bound(new.deprecated)
        if following is None or not_here(following, installed) or (since and older(new.owner, installed, since)):
            break
        found.append(new.renamed_to)
    return found[-1]


def _bound(text: str) -> str:
    """The version from which something holds, or "" where it always does or is not known: `<=2.3.5`, `CUDA 12.9`."""
    if text.startswith(("<", "CUDA")):
        return ""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return match[0] if match else ""


def _conclusive(variable: Variable, installed: Installed) -> bool:
    """Whether a name that the scan did not find is certainly not read."""
    if variable.status or variable.component:  # an alias, the launcher's own, a plugin's
        return False
    if variable.owner != "nccl" and len(variable.name) < SHORTEST_OF_TORCH:
        return False
    return installed.judges(variable.name, variable.owner)

"""All pairs of settings that do not go together, in one list."""

from __future__ import annotations

from functools import lru_cache

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.judge import nccl_pairs, torch_pairs
from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.pair import Pair
from safelaunch.settings.lint.judge.wording import source

PAIRS: tuple[Pair, ...] = torch_pairs.PAIRS + nccl_pairs.PAIRS

# Spellings that have a pair of their own, which says more.
_TOLD = frozenset({"TORCH_NCCL_TRACE_BUFFER_SIZE"})


@lru_cache(maxsize=1)
def holding(env: InForce) -> tuple[tuple[Pair, tuple[str, ...]], ...]:
    """The pairs that hold among the settings in force, each with the variables that make it hold."""
    candidates = (*PAIRS, *_two_spellings(env))
    holding = ((pair, pair.involved(env)) for pair in candidates if pair.holds(env))
    return tuple((pair, names) for pair, names in holding if not _apart(names, env))


def _apart(names: tuple[str, ...], env: InForce) -> bool:
    """Whether two of the settings stand in branches that exclude one another."""
    settings = [env.settings[name] for name in names]
    return any(one.excludes(other) for at, one in enumerate(settings) for other in settings[:at])


def involved(env: InForce) -> frozenset[str]:
    """Every variable that is part of a pair that holds."""
    return frozenset(name for _, names in holding(env) for name in names)


def _two_spellings(env: InForce) -> tuple[Pair, ...]:
    """Variables of torch that are set under both of their names, differently."""
    found: list[Pair] = []
    for name in sorted(env.settings):
        variable = catalogue.variable(name)
        new = variable.renamed_to if variable and variable.owner == "torch" and name not in _TOLD else ""
        if new and env.differ(name, new):
            found.append(
                Pair(
                    (new, name),
                    lambda _: True,
                    "warning",
                    f"they are one variable, and torch takes {new}",
                    (source("torch/csrc/distributed/c10d/Utils.hpp: of several spellings, the new one wins"),),
                    f"unset {name}",
                )
            )
    return tuple(found)

"""Values of [env] that are computed from the launch, such as `{run_dir}` and `{cpus_per_rank}`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from safelaunch.model import Settings, Value
from safelaunch.settings.spelling import nearest

# What can be computed before the ranks are started, for one node. What a rendezvous hands out is known later.
KNOWN: dict[str, str] = {
    "local_world_size": "number of ranks on this node",
    "cpus_per_rank": "CPUs that this node's ranks may use (affinity, control groups), by their number; at least 1",
    "nnodes": "number of nodes, where it is fixed",
    "run_dir": "run directory of this node, which exists",
    "run_id": "id of the run",
    "host": "name of this node",
}

# What people look for here, and the variable that each rank has instead.
_OF_RANKS = {
    **{name: name.upper() for name in ("rank", "local_rank", "world_size", "group_rank", "role_rank")},
    "global_rank": "RANK",
    "node_rank": "GROUP_RANK",
}

# JSON, `{}` and text in capitals are none of ours. A name in two pairs of braces is meant as it stands in one.
_WORD = re.compile(r"\{\{(?P<literal>[a-z][a-z0-9_]*)\}\}|(?P<dollar>\$?)\{(?P<name>[a-z][a-z0-9_]*)\}")


def needs(text: str) -> frozenset[str]:
    """The names of what has to be known to compute a value."""
    return frozenset(match["name"] for match in _WORD.finditer(text) if match["name"])


def fault(text: str) -> tuple[str, str] | None:
    """What is wrong with a value, and a remedy; None where it can be computed."""
    for match in _WORD.finditer(text):
        name = match["name"]
        if name is None or (name in KNOWN and not match["dollar"]):
            continue
        if name in KNOWN:
            return f"${{{name}}} is for a shell, which does not read profiles", f"write {{{name}}}"
        literal = f"write {{{{{name}}}}} for the text itself"
        if name in _OF_RANKS:
            return (
                f"{{{name}}} is not known before the ranks are started",
                f"a script reads it from {_OF_RANKS[name]}; {literal}",
            )
        guess = nearest(name, KNOWN)
        known = f"did you mean `{{{guess}}}`?" if guess else f"known are {', '.join(f'{{{word}}}' for word in KNOWN)};"
        return f"{{{name}}} is nothing that is computed", f"{known} {literal}"
    return None


def value(text: str, known: Mapping[str, str]) -> str | None:
    """A value with what is known put in; None where something of it is not known."""
    if not needs(text) <= set(known):
        return None
    return _WORD.sub(lambda match: known[match["name"]] if match["name"] else f"{{{match['literal']}}}", text)


def needed(env: Iterable[Value]) -> frozenset[str]:
    """The names of what has to be known to compute all values of an environment."""
    return frozenset().union(*(needs(str(setting.value)) for setting in env))


def fill(settings: Settings, known: Mapping[str, str]) -> Settings:
    """The settings with the values of `env` that can be computed; others stay as the profile has them."""
    env = dict(settings.env)
    texts = dict(settings.computed)
    for name, setting in settings.env.items():
        text = str(setting.value)
        computed = None if name in texts else value(text, known)
        if computed is not None and computed != text:
            env[name] = Value(computed, setting.origin)
            texts[name] = text
    return dataclasses.replace(settings, env=env, computed=texts)


def open_values(settings: Settings) -> list[str]:
    """The variables whose values only the launch itself can compute."""
    return [
        name
        for name, value in sorted(settings.env.items())
        if name not in settings.computed and needs(str(value.value))
    ]

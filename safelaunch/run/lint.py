"""The lint of a launch: which settings it looks at, and which of its findings are told."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence

from safelaunch.model import Finding, Origin, Settings, Value
from safelaunch.settings import computed, severity
from safelaunch.settings.lint import lint, nccl_conf
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.installed import ELSEWHERE, Installed
from safelaunch.settings.lint.look import look

THE_SHELL = Origin("shell", "the environment")
LAUNCH_SCAN_S = 10.0  # for reading the installed libraries at a launch, beside the agent's import of torch
SHOWN_AT_LAUNCH = 8  # findings that a launch tells in a line each


def of_settings(settings: Settings, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings about a launch; errors are errors only where a profile's `[lint.severity]` says so.

    Args:
        settings: of the launch.
        environ: of safelaunch itself: it and what profiles unset are looked at each for itself.
    """
    installed = installed_of(settings.environment(environ), LAUNCH_SCAN_S, no_python=bool(settings["no_python"]))
    tables = {"env": settings.env, "lint": settings.lint, "timeouts": settings.timeouts, "hang": settings.hang}
    context = scene_of(tables, environ, settings.unset, installed)
    context = dataclasses.replace(context, backend=_backend(context), nodes=_nodes(str(settings["nnodes"])))
    weights = severity.of_table(settings.lint)
    return tuple(
        dataclasses.replace(found, severity="warning")
        if found.severity == "error" and weights.get(found.code) != "error"
        else found
        for found in lint(_with_script(context, settings), weights)
    )


def installed_of(environ: Mapping[str, str], scan_s: float, *, no_python: bool = False) -> Installed:
    """What the ranks will load, as far as this Python can tell it.

    Args:
        environ: of the ranks; torchrun takes PYTHON_EXEC for the Python of the ranks.
        scan_s: seconds that reading the libraries may take.
        no_python: whether the ranks are no Python, or start their own (`--no-python`).
    """
    if no_python or environ.get("PYTHON_EXEC", sys.executable) != sys.executable:
        return ELSEWHERE
    return look(environ, scan_s=scan_s)


def scene_of(
    tables: Mapping[str, Mapping[str, Value]],
    environ: Mapping[str, str] | None,
    unset: Iterable[str],
    installed: Installed,
) -> LintContext:
    """What the lint looks at.

    Args:
        tables: `env`, `lint`, `timeouts` and `hang` of the settings.
        environ: of safelaunch itself; None for the profiles alone.
        unset: the variables that profiles take away from it.
        installed: what the ranks will load.
    """
    settings: list[Setting] = []
    if environ is not None:
        settings += nccl_conf.settings(environ)
        settings += [Setting(name, value, THE_SHELL) for name, value in environ.items() if name not in unset]
    # What the launch has still to compute, such as {cpus_per_rank}, cannot be told.
    settings += [
        Setting(name, computed.value(str(value.value), {}), value.origin) for name, value in tables["env"].items()
    ]
    table = {name: value.value for name, value in tables["lint"].items()}
    return LintContext(
        tuple(settings),
        installed,
        debugging=bool(table.get("debugging", False)),
        known=frozenset(table.get("known", ())),
        timeouts=dict(tables["timeouts"]),
        hang=dict(tables["hang"]),
        interfaces=_interfaces() if environ is not None else None,
    )


def _interfaces() -> frozenset[str] | None:
    """The network interfaces of this machine, as the ranks will see them; None where they cannot be told."""
    try:
        return frozenset(name for _, name in socket.if_nameindex()) or None
    except OSError:
        return None


def _backend(context: LintContext) -> str:
    """`gloo` where the ranks have no GPU to use, else "": the script chooses."""
    torch, visible = context.installed.torch, context.last().get("CUDA_VISIBLE_DEVICES")
    if torch is not None and torch.cpu_only:
        return "gloo"
    # CUDA stops at the first entry that is no device; NoDevFiles is what Slurm sets for a job without GPUs.
    first = "0" if visible is None or visible.value is None else visible.value.partition(",")[0].strip()
    return "gloo" if first in ("", "-1", "NoDevFiles") else ""


def _nodes(nnodes: str) -> int | None:
    fewest, _, most = nnodes.rpartition(":")
    return int(most) if fewest in ("", most) else None


def _with_script(context: LintContext, settings: Settings) -> LintContext:
    from safelaunch.settings.lint import script

    found = script.read(settings["training_script"], module=bool(settings["module"]))
    return dataclasses.replace(
        context,
        settings=(*context.settings, *found.assignments),
        read_by_script=context.read_by_script | found.names,
        dead_timeouts=found.dead_timeouts,
    )


def at_launch(findings: Sequence[Finding], *, verbose: bool) -> tuple[tuple[Finding, ...], str]:
    """What a launch tells of its lint, and a line about the rest: notes only where the user wants to hear more.

    What refuses the launch is told in any case.
    """
    heard = [found for found in findings if verbose or found.severity != "note"]
    heard.sort(key=lambda found: (found.severity != "error", found.code != "SL902"))
    shown = heard if verbose else heard[:SHOWN_AT_LAUNCH]
    left = len(heard) - len(shown)
    return tuple(shown), f"{left} more about the environment: -v or --dry-run shows them" if left else ""

"""Variables that cost speed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.judge import contradictions, dangers, parsers
from safelaunch.settings.lint.judge.flags import TORCH_ON
from safelaunch.settings.lint.judge.in_force import InForce, in_force
from safelaunch.settings.lint.judge.integers import strtoll
from safelaunch.settings.lint.judge.shipped import is_shipped
from safelaunch.settings.lint.judge.subsystems import chosen, without_init
from safelaunch.settings.lint.judge.wording import Fault, Severity, literal

# Choices of a transport. They cost where there was a faster one, and are the cure where it does not work.
TRANSPORTS = frozenset(
    {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", *("NCCL_IB_DISABLE", "NCCL_NET"), "NCCL_NET_GDR_LEVEL"}
)
NOT_MEASURED = "; not measured"
BETWEEN_NODES = frozenset({"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_GDR_LEVEL"})


def slow_variable(context: LintContext) -> Iterator[Finding]:
    """A variable costs speed in a run that is not for debugging.

    Switches of a search stay in shell profiles and job scripts long after it: CUDA_LAUNCH_BLOCKING=1 waits for each
    kernel, NCCL_DEBUG_SUBSYS=ALL prints many lines for every collective. Choices of a transport, such as
    NCCL_P2P_DISABLE=1, are told as a note: they are the right cure where the faster one does not work.

    How it is concluded: the catalogue has what each variable costs, for which values, and from where that is known: a
    measurement, or the source code where it was not measured. Profiles that are for debugging (`debugging = true` in
    [lint]), and the shipped ones, which say the cost beside each variable, get no such finding.

    What to do: unset it when the search is over.
    """
    if context.debugging:
        return
    env = in_force(context)
    told = contradictions.involved(env)
    for setting in context:
        fault = _cost(setting, env) if setting.name not in told else None
        if fault is not None:
            yield fault.finding("SL216", setting)


def _cost(setting: Setting, env: InForce) -> Fault | None:
    variable, text = catalogue.variable(setting.name), literal(setting)
    if variable is None or text is None or not _paid(variable, text) or not env.acts(setting) or is_shipped(setting):
        return None
    if setting.name in BETWEEN_NODES and env.context.nodes == 1:
        return None
    if setting.name == "NCCL_DEBUG_SUBSYS" and env.debug_level not in ("INFO", "TRACE", "ABORT"):
        return None  # nothing is printed
    if (
        dangers.judge(setting, env)
        or parsers.judge(variable, text, env.context.installed)
        or without_init(setting, text, env)
    ):
        return None  # said, and more
    severity: Severity = "note" if setting.name in TRANSPORTS or _only_collectives(setting, text) else "warning"
    paid, why = _cost_and_source(variable)
    return Fault(severity, f"costs speed: {paid}", (why,), f"unset {setting.name}, unless {_unless(setting)}")


def _cost_and_source(variable: Variable) -> tuple[str, str]:
    """The two parts of a `cost`, which ends with its source in brackets."""
    paid, _, where = variable.cost.rpartition(" (")
    guessed = paid.endswith(NOT_MEASURED)
    return paid.removesuffix(NOT_MEASURED), f"{'not measured; ' if guessed else ''}source: {where.removesuffix(')')}"


def _paid(variable: Variable, text: str) -> bool:
    """Whether a value is one of those that cost; the head of catalogue.toml explains `costs_when`."""
    return any(_meets(condition, variable, text) for condition in variable.costs_when)


def _meets(condition: str, variable: Variable, text: str) -> bool:
    if condition == "set":
        return True
    if condition == "on":
        number = strtoll(text)[0] if variable.parse in ("strtoll", "strtol", "nccl-bool", "ofi") else 0
        return bool(number) or (variable.parse not in ("strtoll", "strtol") and text.strip().lower() in TORCH_ON)
    if condition.startswith(">"):
        match = re.match(r"\s*\d+", text)
        return match is not None and int(match[0]) > int(condition[1:])
    return condition.upper() in (chosen(text) if variable.kind == "list" else {text.strip().upper()})


def _only_collectives(setting: Setting, text: str) -> bool:
    """COLL without ALL: one line a collective, with what INIT says."""
    return setting.name == "NCCL_DEBUG_SUBSYS" and "ALL" not in chosen(text)


def _unless(setting: Setting) -> str:
    return "the faster transport does not work here" if setting.name in TRANSPORTS else "you are looking for an error"

"""The lint of the environment: what each variable does here, before a run finds out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from safelaunch.model import Finding
from safelaunch.settings.lint import cost, dangerous, late, names, pairs, timeouts, values
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.severity import weighed

MOST_SETTINGS = 2000  # a guess at what a wrong name was meant to be takes a millisecond


@dataclass(frozen=True)
class Rule:
    """One rule: the code of its findings, and what finds them. Its docstring is what `safelaunch explain` prints."""

    code: str
    function: Callable[[LintContext], Iterator[Finding]]


RULES: tuple[Rule, ...] = (
    Rule("SL210", names.unknown_variable),
    Rule("SL211", names.unread_variable),
    Rule("SL212", names.unread_here),
    Rule("SL213", values.variable_value),
    Rule("SL214", names.deprecated_variable),
    Rule("SL215", pairs.conflicting_variables),
    Rule("SL216", cost.slow_variable),
    Rule("SL217", late.late_variable),
    Rule("SL218", dangerous.dangerous_variable),
    Rule("SL220", timeouts.loader_timeout),
    Rule("SL221", timeouts.late_hang_limit),
    Rule("SL222", timeouts.short_kill_wait),
)


def lint(context: LintContext, severity: Mapping[str, str], rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """Everything that the rules find, in the order of the rules.

    Args:
        context: the settings, and what is known of the launch.
        severity: code -> off, note, warning or error, as a profile's `[lint.severity]` has it.
        rules: the rules to apply.

    A rule that fails itself costs its own findings only, and gives one SL902 for all such rules, in the last place.
    """
    found: list[Finding] = []
    failed: dict[str, str] = {}
    if len(context.settings) > MOST_SETTINGS:
        said = f"only the last {MOST_SETTINGS} of {len(context.settings)} variables were looked at: no job sets so many"
        found.append(Finding(code="SL210", severity="warning", summary=said, remedy="name the file that the job uses"))
        context = replace(context, settings=context.settings[-MOST_SETTINGS:])
    for rule in rules:
        if severity.get(rule.code) == "off":
            continue
        try:
            found += rule.function(context)
        except Exception as error:
            failed[rule.code] = repr(error)
    if failed:
        found.append(
            Finding(
                code="SL902",
                severity="warning",
                summary=f"safelaunch's own fault: the environment is not checked for {', '.join(failed)}",
                because=tuple(f"{code}: {error}" for code, error in failed.items()),
                remedy="report this; the other checks were made",
            )
        )
    return weighed(found, severity)

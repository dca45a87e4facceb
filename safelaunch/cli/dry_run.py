"""`--dry-run`: what would run, under which environment and checks, and the same as a torchrun line."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Sequence

from safelaunch import codes
from safelaunch.cli import output
from safelaunch.launch import plan as planning
from safelaunch.launch import run_dir
from safelaunch.model import Finding, SafelaunchError, Settings, Value
from safelaunch.preflight import CHECKS
from safelaunch.printable import whole
from safelaunch.redaction import redact
from safelaunch.report import text
from safelaunch.run import launch_facts, lint
from safelaunch.settings import computed, torchrun, warm
from safelaunch.sizes import plural


def show(settings: Settings) -> int:
    """Print the plan on stdout; starts and writes nothing.

    Returns the exit code, which is that of the launch where the lint would refuse it.
    """
    planning.check_script(settings)
    settings = _filled(settings)
    left_out = computed.open_values(settings)
    found = lint.of_settings(settings, os.environ)
    lines = [
        f"script        {shlex.join([settings['training_script'], *settings['training_script_args']])}",
        f"mode          {planning.mode(settings)}",
        f"start         {_start(settings)}",
        f"nodes         {settings['nnodes']}, {settings['nproc_per_node']} ranks here",
        f"profiles      {', '.join(settings.profiles)}",
        f"run directory {run_dir.base_dir(settings['run_dir'], os.environ)}/<run id>",
        f"preflight     {settings['preflight']}: {_checks(settings)}",
        f"torchrun      {equivalent(settings)}",
        *([f"              without {', '.join(left_out)}, computed at the start"] if left_out else []),
        "",
        "options that are not torchrun's default:",
        *[f"  {name} = {value.value}  # {value.origin}" for name, value in _changed(settings)],
        "environment that is added:",
        *[
            f"  {name}={redact(name, str(value.value))}  # {value.origin}"
            for name, value in sorted(settings.env.items())
        ],
        *_taken_away(settings),
        *_lint(settings, found),
    ]
    output.show([whole(line) for line in lines])
    return codes.EXIT_PROFILE if any(finding.severity == "error" for finding in found) else codes.EXIT_OK


def _start(settings: Settings) -> str:
    found = warm.start(settings, settings.environment(os.environ))
    if isinstance(found, str):
        return f"cold{found and ': '}{found}"
    return f"warm: ranks are forked from a process that has imported {' and '.join(['torch', *found.preload])}"


def _filled(settings: Settings) -> Settings:
    """The settings with what is known of their computed values; the run directory is made by a launch only."""
    try:
        return computed.fill(settings, launch_facts.known(settings, os.environ, socket.gethostname()))
    except SafelaunchError:  # the launch would be refused for it, and says why
        return computed.fill(settings, {"host": socket.gethostname()})


def _taken_away(settings: Settings) -> list[str]:
    gone = [f"  {name}  # {settings.unset[name].origin}" for name in sorted(settings.taken_away)]
    return ["environment that is taken away:", *gone] if gone else []


def _lint(settings: Settings, found: Sequence[Finding]) -> list[str]:
    if int(settings["verbose"]) > int(settings["quiet"]):
        lines = [f"  {line}" for finding in found for line in text.diagnostic(finding)]
    else:
        lines = [f"  {text.short(finding)}" for finding in found]
    return ["what the launch would say of its environment:", *lines] if lines else []


def _checks(settings: Settings) -> str:
    """How the node would be checked; `safelaunch check --list` names the checks."""
    mode = str(settings["preflight"])
    if mode == "off":
        return "nothing is checked"
    severity = settings.preflight["severity"].value if "severity" in settings.preflight else {}
    made = [check for check in CHECKS if severity.get(check.code) != "off"]
    slow = sum(check.full_only for check in made)
    when = "" if mode == "full" else " where this node has no fresh pass on record"
    words = f"{plural(len(made) - slow, 'quick check')}, and {plural(slow, 'slow one')}{when}"
    fewest, _, most = str(settings["nnodes"]).rpartition(":")
    several = int(most) > 1 and (not fewest or fewest == most)
    return words + ("; then the nodes are compared" if several else "")


def equivalent(settings: Settings) -> str:
    """The torchrun command line that starts the same ranks, but for what only the launch itself can compute."""
    left_out = computed.open_values(settings)
    gone = sorted(settings.taken_away)
    words = ["env"] if gone else []
    words += [word for name in gone for word in ("-u", name)]
    words += [
        f"{name}={redact(name, str(value.value))}"
        for name, value in sorted(settings.env.items())
        if name not in left_out
    ]
    return shlex.join([*words, "torchrun", *torchrun.arguments(settings)])


def _changed(settings: Settings) -> list[tuple[str, Value]]:
    return [(name, value) for name, value in settings.options.items() if value.origin.source != "default"]

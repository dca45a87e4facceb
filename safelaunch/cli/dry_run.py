"""`--dry-run`: what would run, under which environment and checks, and the same as a torchrun line."""

from __future__ import annotations

import os
import shlex
import sys

from safelaunch.launch import plan as planning
from safelaunch.launch import run_dir
from safelaunch.model import Settings, Value
from safelaunch.preflight import CHECKS
from safelaunch.preflight.machine.sizes import plural
from safelaunch.redaction import redact
from safelaunch.settings import torchrun


def show(settings: Settings) -> int:
    """Print the plan on stdout; starts and writes nothing."""
    planning.check_script(settings)
    lines = [
        f"script        {shlex.join([settings['training_script'], *settings['training_script_args']])}",
        f"mode          {planning.mode(settings)}",
        f"nodes         {settings['nnodes']}, {settings['nproc_per_node']} ranks here",
        f"profiles      {', '.join(settings.profiles)}",
        f"run directory {run_dir.base_dir(settings['run_dir'], os.environ)}/<run id>",
        f"preflight     {settings['preflight']}: {_checks(settings)}",
        f"torchrun      {equivalent(settings)}",
        "",
        "options that are not torchrun's default:",
        *[f"  {name} = {value.value}  # {value.origin}" for name, value in _changed(settings)],
        "environment that is added:",
        *[
            f"  {name}={redact(name, str(value.value))}  # {value.origin}"
            for name, value in sorted(settings.env.items())
        ],
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


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
    """The torchrun command line that starts the same ranks."""
    words = [f"{name}={value.value}" for name, value in sorted(settings.env.items())]
    words.append("torchrun")
    for option in torchrun.OPTIONS:
        value = settings.options[option.dest]
        if value.origin.source == "default" or value.value == option.default:
            continue
        words.append(option.spellings[0])
        if value.value is not True:
            words.append(",".join(value.value) if isinstance(value.value, (list, tuple)) else str(value.value))
    return shlex.join([*words, settings["training_script"], *settings["training_script_args"]])


def _changed(settings: Settings) -> list[tuple[str, Value]]:
    return [(name, value) for name, value in settings.options.items() if value.origin.source != "default"]

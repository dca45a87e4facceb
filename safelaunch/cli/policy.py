"""`safelaunch policy NAME`: what to write into a job so that its scheduler acts on the exit codes."""

from __future__ import annotations

import argparse

from safelaunch.cli import output
from safelaunch.codes import EXIT_USAGE
from safelaunch.model import SafelaunchError
from safelaunch.schedulers.policies import POLICIES, text
from safelaunch.settings.spelling import did_you_mean


def run(argv: list[str]) -> int:
    """Print the snippet for one scheduler; without a name, what there is."""
    name = parser().parse_args(argv).scheduler
    if name is None:
        output.show_text("\n".join(f"{one:10}  {policy.about}" for one, policy in POLICIES.items()))
        return 0
    if name not in POLICIES:
        raise SafelaunchError(
            "SL001",
            f"there is no policy for {name}",
            did_you_mean(name, POLICIES) or f"there are policies for {', '.join(POLICIES)}",
            exit_code=EXIT_USAGE,
        )
    output.show_text(text(name))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch policy", description=__doc__)
    made.add_argument("scheduler", nargs="?", metavar="|".join(POLICIES), help="without one, all are listed")
    return made

"""safelaunch's own options."""

from __future__ import annotations

import dataclasses

from safelaunch.settings import kinds
from safelaunch.settings.option import Option

OWN = "safelaunch options"
PREFLIGHT_MODE = kinds.choice("auto", "full", "off")
LOG_MODE = kinds.choice("raw", "prefix", "merge")
ON_HANG = kinds.choice("auto", "report", "abort", "restart")


def _with_variable(option: Option) -> Option:
    return dataclasses.replace(option, variables=(f"SAFELAUNCH_{option.dest.upper()}",))


OPTIONS: tuple[Option, ...] = tuple(
    _with_variable(option)
    for option in (
        Option(
            ("--profile",),
            kinds.NAMES,
            (),
            OWN,
            "settings to start from; repeatable, a later one wins",
            "NAME|PATH",
            takes="list",
        ),
        Option(
            ("--preflight",),
            PREFLIGHT_MODE,
            "auto",
            OWN,
            "how much of the node to check before the start",
            "auto|full|off",
        ),
        Option(
            ("--on-hang",),
            ON_HANG,
            "auto",
            OWN,
            "what to do about ranks that hang",
            "auto|report|abort|restart",
        ),
        Option(
            ("--hang-abort-after",),
            kinds.LIMIT,
            None,
            OWN,
            "abort after so long without progress (90, 10m), or never",
            "DURATION|never",
        ),
        Option(
            ("--log",),
            LOG_MODE,
            "raw",
            OWN,
            "how the ranks' lines are shown: as they come, behind their ranks, or one for all that print it",
            "raw|prefix|merge",
        ),
        Option(("--run-dir",), kinds.PATH, None, OWN, "where run directories are made", "DIR"),
        Option(
            ("--warm-start",),
            kinds.SWITCH,
            None,
            OWN,
            "fork the ranks from a process that has imported torch (default, but on AMD's GPUs)",
            takes="flag",
            off=("--no-warm-start",),
        ),
        Option(
            ("--spare-nodes",),
            kinds.integer(0),
            0,
            OWN,
            "nodes beyond --nnodes that wait until one is lost, and take its place",
            "N",
        ),
        Option(
            ("--useful-restarts",),
            kinds.SWITCH,
            False,
            OWN,
            "no restart where the attempt failed before its first step, or twice the same way at the same step",
            takes="flag",
        ),
        Option(
            ("--requeue",),
            kinds.SWITCH,
            False,
            OWN,
            "on Slurm: requeue the job after exit codes 69 and 75, without the bad node",
            takes="flag",
            off=("--no-requeue",),
        ),
        Option(
            ("--history",),
            kinds.SWITCH,
            True,
            OWN,
            "remember how this run ended, for later verdicts and `safelaunch runs` (default)",
            takes="flag",
            off=("--no-history",),
        ),
        Option(
            ("--time-limit",),
            kinds.DURATION,
            None,
            OWN,
            "how long the run may take: safelaunch.should_stop() says so in time for a save (default: the scheduler's)",
            "DURATION",
        ),
        Option(("--dry-run",), kinds.SWITCH, False, OWN, "show what would run, and run nothing", takes="flag"),
        Option(
            ("--color",),
            kinds.choice("auto", "always", "never"),
            "auto",
            OWN,
            "when to colour what safelaunch says",
            "auto|always|never",
        ),
        Option(("--json",), kinds.PATH, None, OWN, "write the result to a file, or to stdout (-)", "FILE|-"),
        Option(("-v", "--verbose"), kinds.integer(0), 0, OWN, "say more; repeatable", takes="count"),
        Option(("-q", "--quiet"), kinds.integer(0), 0, OWN, "say less; repeatable", takes="count"),
    )
)

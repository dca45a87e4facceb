"""A run on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from safelaunch.launch.signals import Signals
from safelaunch.model import Settings
from safelaunch.run import steps
from safelaunch.run.own_faults import contained

Step = Callable[[steps.Run], None]

RUN: tuple[Step, ...] = (
    steps.look_at_platform,  # elsewhere than on Linux the run is refused; without /proc this process becomes torchrun
    steps.make_plan,  # refused where there is no script, no run directory, or a value that cannot be computed
    steps.make_black_box,
    steps.start_tree,  # torch is imported from here on
    steps.wire,
    steps.sweep,
    steps.write_start,
    steps.supervise,  # checks, `go`, attempts, incidents and signals: all of the time, and every deadline
)
AFTERWARDS: tuple[Step, ...] = (  # a fault of ours in one of these costs that one, and never the exit code of the job
    steps.hear_the_last,
    steps.tell_end,
    steps.tell_outside,
    steps.say_goodbye,
    steps.write_result,
    steps.write_result_of_job,
    steps.remember,
    steps.requeue,
    steps.finish_speaking,
)


def run(settings: Settings, signals: Signals, argv: Sequence[str]) -> int:
    """Run one job; returns its exit code.

    Args:
        settings: of the launch.
        signals: which have been caught since safelaunch was started.
        argv: the command line behind `safelaunch`.

    Raises:
        SafelaunchError: where there can be no run: not on Linux, no script, no run directory, values of the profile
            that cannot be computed.
    """
    job = steps.Run(settings, signals, argv)
    for step in RUN:
        step(job)
    for step in AFTERWARDS:
        with contained(
            job.parts.console.degraded, f"the run is over, and a step behind it is left out ({step.__name__})"
        ):
            step(job)
    return job.exit_code

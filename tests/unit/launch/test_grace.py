"""How long ranks that stop by themselves have after SIGTERM."""

from __future__ import annotations

import pytest

from safelaunch.launch.plan import grace
from safelaunch.model import Origin, Settings, Value

GUESS, KNOWN = Origin("default", "of Kubernetes"), Origin("file", "slurm.conf:3")
FLAG, DEFAULT = Origin("flag", "--shutdown-timeout"), Origin("default")


@pytest.mark.parametrize(
    ("shutdown", "wait", "seconds"),
    [
        (Value(30.0, DEFAULT), None, 30.0),
        (Value(30.0, DEFAULT), Value(300.0, KNOWN), 295.0),
        (Value(30.0, DEFAULT), Value(10.0, KNOWN), 8.0),
        (Value(30.0, DEFAULT), Value(30.0, GUESS), 25.0),
        (Value(120.0, FLAG), Value(30.0, GUESS), 120.0),
        (Value(120.0, FLAG), Value(30.0, KNOWN), 25.0),
        (Value(5.0, FLAG), Value(300.0, KNOWN), 5.0),
    ],
)
def test_the_scheduler_gives_it_less_a_margin(shutdown: Value, wait: Value | None, seconds: float) -> None:
    timeouts = {} if wait is None else {"kill_wait": wait}

    assert grace(Settings({"shutdown_timeout": shutdown}, {}, timeouts)) == seconds

"""What monitors and analysers have concluded, where a log holds their report: the kernel's Xid messages, NCCL's RAS,
the analyser of torch's Flight Recorder, HCCL, py-spy, native stacks.

Their reports are read, and told in words. They lead where no process says itself why it failed.
"""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.diagnosis.logs.reports import hccl, native, ras, recorder, stacks, xids
from safelaunch.diagnosis.logs.timeline import Timeline
from safelaunch.model import Verdict

_READERS: tuple[Callable[[Timeline], Verdict | None], ...] = (
    recorder.concluded,
    ras.concluded,
    xids.concluded,
    hccl.concluded,
)


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict that a monitor's report leads to; None where there is none, or a process says more."""
    if timeline.candidates or timeline.unexplained:
        return None
    return next((verdict for reader in _READERS if (verdict := reader(timeline)) is not None), None)


def without_words(timeline: Timeline) -> Verdict | None:
    """The verdict where stacks are all that speaks of a failure; None where there are none."""
    return stacks.concluded(timeline) or native.concluded(timeline)

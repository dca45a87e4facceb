"""One round over the living ranks."""

from __future__ import annotations

from safelaunch.model import Incident, WorkerGroup
from safelaunch.run.endings import Endings
from safelaunch.run.hang import Hangs
from safelaunch.run.incidents import Incidents
from safelaunch.run.ranks import Hearing
from safelaunch.run.slow import Slow
from safelaunch.run.stops import Stops
from safelaunch.run.traces import Traces


class Watching:
    """All watches of a run, in the order in which one keeps the next from a wrong conclusion: peers of a rank that has
    failed wait, which is no hang, and ranks that hang are not slow."""

    def __init__(
        self,
        incidents: Incidents,
        hearing: Hearing,
        endings: Endings,
        hangs: Hangs,
        slow: Slow,
        stops: Stops,
        traces: Traces,
    ) -> None:
        self._incidents = incidents
        self._hearing = hearing
        self._endings = endings
        self._hangs = hangs
        self._slow = slow
        self._stops = stops
        self._traces = traces

    def poll(self, group: WorkerGroup) -> Incident | None:
        """An incident when it is time to end the ranks."""
        self._incidents.write_pages()  # of an attempt before
        self._hearing.poll(group)
        self._stops.poll(group)
        self._traces.poll(group)
        incident = self._endings.poll(group)
        if not self._endings.pending:
            incident = self._hangs.poll(group)
        stalled = incident is not None or self._endings.pending or self._hangs.told is not None
        self._slow.poll(group, stalled=stalled)
        return incident

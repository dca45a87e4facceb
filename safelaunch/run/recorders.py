"""Asks the ranks of a slow run for their Flight Recorders, and takes in what these hold of their calls."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from safelaunch import black_box_reader
from safelaunch.evidence import arrivals
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.pulse import Pulse
from safelaunch.watch.meetings import Arrival

ANSWER_S = 5.0  # how long ranks may take to dump their Flight Recorders
NO_ANSWER = "the ranks did not answer when they were asked for their Flight Recorders"
NO_RECORDER = "this torch has no Flight Recorder that answers"


class Recorders:
    """One question to all ranks: all answers count, or none, since a rank that is missing may be the one.

    `done` says that it is over; `missing` says then why there is no answer.

    Args:
        group: the ranks.
        reader: of their black box.
        pulses: of the ranks that write one.
        now: CLOCK_MONOTONIC.
    """

    def __init__(
        self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: Mapping[int, Pulse], now: float
    ) -> None:
        self.calls: dict[int, list[Arrival]] = {}
        self.missing = ""
        self.done = False
        self._reader = reader
        self._until = now + ANSWER_S
        self._workers = list(group.alive)
        self._waiting: dict[int, tuple[WorkerProcess, int]] = {}
        if any(worker.rank not in pulses or not pulses[worker.rank].enqueued for worker in self._workers):
            self._give_up(NO_RECORDER)
            return
        for worker in self._workers:
            reader.ask(worker.local_rank)
            self._waiting[worker.rank] = worker, pulses[worker.rank].asked + 1

    def poll(self, now: float) -> bool:
        """One round; whether it is over."""
        if self._waiting:
            self._waiting = {rank: one for rank, one in self._waiting.items() if not self._has_answered(*one)}
            if not self._waiting:  # reading takes a hundredth of a second a rank, and is done beside
                threading.Thread(target=self._read, daemon=True).start()
            elif now > self._until:
                self._give_up(NO_ANSWER)
        return self.done

    def told(
        self, living: Iterable[WorkerProcess], returned: Mapping[int, Mapping[tuple[str, int], float]]
    ) -> dict[int, list[Arrival]]:
        """What they hold; nothing where one of the living ranks is missing.

        Args:
            living: the ranks now.
            returned: by rank, group and number: when calls were over, which of gloo no recorder knows.
        """
        if len(self.calls) < len(list(living)):
            return {}
        return {
            rank: [call._replace(returned=returned.get(rank, {}).get((call.group, call.seq), 0.0)) for call in own]
            for rank, own in self.calls.items()
        }

    def _has_answered(self, worker: WorkerProcess, asked: int) -> bool:
        pulse = self._reader.pulse(worker.local_rank, worker.pid)
        return pulse is not None and pulse.answered >= asked

    def _give_up(self, why: str) -> None:
        self._waiting, self.missing, self.done = {}, why, True

    def _read(self) -> None:
        try:
            for worker in self._workers:
                self.calls[worker.rank] = [Arrival(*call) for call in arrivals.recorded(worker)]
        except Exception as error:
            self.calls, self.missing = {}, f"a Flight Recorder could not be read: {error}"
        self.done = True

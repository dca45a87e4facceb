"""Runs collectors over all ranks of a group at once, within one deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from safelaunch.evidence import Collector
from safelaunch.model import Evidence, Incident, WorkerProcess


def gather(
    incident: Incident, workers: Iterable[WorkerProcess], collectors: Iterable[Collector], seconds: float
) -> tuple[Evidence, ...]:
    """Evidence of every worker from every collector, taken in parallel by worker.

    Returns after `seconds` at the latest with what there is; a collector that is still at work then is left
    behind, and its evidence is recorded as unavailable.
    """
    deadline = time.monotonic() + seconds
    collectors = tuple(collectors)
    found: list[Evidence] = []
    threads = {}
    for worker in workers:
        thread = threading.Thread(target=_one, args=(incident, worker, collectors, deadline, found), daemon=True)
        threads[worker.rank] = thread
        thread.start()
    for rank, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            found.append(Evidence("all", rank, unavailable=f"not finished after {seconds:g} s"))
    return tuple(found)


def _one(
    incident: Incident,
    worker: WorkerProcess,
    collectors: tuple[Collector, ...],
    deadline: float,
    found: list[Evidence],
) -> None:
    for collect in collectors:
        begun = time.monotonic()
        try:
            evidence = collect(incident, worker, deadline)
        except Exception as error:  # a collector's fault is a gap in the evidence, never the end of a verdict
            source = collect.__module__.rpartition(".")[2]
            evidence = Evidence(source, worker.rank, unavailable=repr(error), elapsed_s=time.monotonic() - begun)
        found.append(evidence)

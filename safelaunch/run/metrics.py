"""What a run tells Prometheus: a file for the textfile collector of node_exporter, written anew every 15 s.

The text format is simple enough that prometheus_client, which takes 40 ms to import, would spare few lines: it is
`name{label="value"} number`, with HELP and TYPE before each name (prometheus.io/docs/instrumenting/exposition_formats).
Names and units follow prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib.metadata
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from safelaunch import black_box_reader, files, open_folder
from safelaunch.model import LaunchPlan, Verdict, WorkerGroup
from safelaunch.model.hosts import host_name
from safelaunch.pulse import Pulse
from safelaunch.run.pulses import pulses_of

EVERY_S = 15.0
LOOK_S = 1.0
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)  # seconds of a step


class Metric(NamedTuple):
    """A row of docs/metrics.md: a name, its type, what it tells, and its labels beside `run`."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


METRICS = (
    Metric("safelaunch_run_info", "gauge", "The run, always 1.", ("host", "script", "job", "profile", "torch", "nccl")),
    Metric("safelaunch_run_start_time_seconds", "gauge", "When the run began, in seconds since the epoch."),
    Metric("safelaunch_up", "gauge", "Whether a rank of this node lives.", ("rank",)),
    Metric("safelaunch_steps_total", "counter", "Optimizer steps of a rank in this attempt.", ("rank",)),
    Metric(
        "safelaunch_step_seconds",
        "histogram",
        "Seconds of a step: the mean of those within a second counts for each of them.",
        ("rank",),
    ),
    Metric("safelaunch_collective_wait_seconds_total", "counter", "Seconds in calls of collectives.", ("rank",)),
    Metric("safelaunch_loader_wait_seconds_total", "counter", "Seconds of waiting for a DataLoader.", ("rank",)),
    Metric("safelaunch_heartbeat_age_seconds", "gauge", "Seconds since a rank could last run Python.", ("rank",)),
    Metric("safelaunch_progress_age_seconds", "gauge", "Seconds since a rank last made progress.", ("rank",)),
    Metric("safelaunch_notices_total", "counter", "Notices and verdicts, by what they say.", ("code",)),
    Metric("safelaunch_restarts_total", "counter", "Restarts of the worker group."),
    Metric("safelaunch_start_seconds", "gauge", "Seconds of the start, by its phase.", ("phase",)),
)


class Metrics:
    """Follows the ranks of one run on this node, and writes the file. Where it cannot be written, that is told once.

    Args:
        folder: of the textfile collector.
        plan: of the run.
        info: labels of `safelaunch_run_info`.
        reader: of the ranks' slots, None where there is none.
        tell: takes the sentence about a fault.
    """

    def __init__(
        self,
        folder: str,
        plan: LaunchPlan,
        info: Mapping[str, str],
        reader: black_box_reader.Reader | None,
        tell: Callable[[str], None],
    ) -> None:
        host = host_name(socket.gethostname())
        safe = re.sub(r"[^\w.-]+", "_", f"{plan.run_id}-{host}")
        self._path, self._name = folder, f"safelaunch-{safe}.prom"
        self._run = plan.run_id
        self._info = {"host": host, "script": os.path.basename(plan.script), **info}
        self._reader, self._tell = reader, tell
        self._started, self._begun = time.time(), time.monotonic()
        self._phases: dict[str, float] = {}
        self._notices: dict[str, int] = {}
        self._attempt = 0
        self._ranks: dict[int, _Rank] = {}
        self._next_look = self._next_file = 0.0
        self._broken = False

    def poll(self, group: WorkerGroup) -> None:
        """These ranks run."""
        now = time.monotonic()
        if not self._ranks or group.attempt != self._attempt:
            self._phases.setdefault("launch", now - self._begun)
            self._attempt, self._ranks = group.attempt, {worker.rank: _Rank() for worker in group.workers}
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        alive, looks = {worker.rank for worker in group.alive}, pulses_of(self._reader, group.workers)
        for rank, known in self._ranks.items():
            known.look(looks.get(rank), rank in alive)
        if all(rank.steps for rank in self._ranks.values()):
            self._phases.setdefault("first_step", now - self._begun)
        if now >= self._next_file:
            self.write(now)

    def notice(self, verdict: Verdict) -> None:
        """Something is told: who looks at alerts is not to wait."""
        self._notices[verdict.code] = self._notices.get(verdict.code, 0) + 1
        self.write(time.monotonic())

    def write(self, now: float) -> None:
        """Write the file."""
        self._next_file = now + EVERY_S
        if self._broken:
            return
        try:
            with self._folder() as folder:
                files.put(folder, self._name, self.text(now).encode(), 0o644, exact=True)
        except OSError as error:
            self._broken = True
            self._tell(f"metrics cannot be written: {os.path.join(self._path, self._name)}: {error.strerror}")

    def end(self) -> None:
        """The run is over: what is left of it would be scraped for ever."""
        with contextlib.suppress(OSError), self._folder() as folder:
            os.unlink(self._name, dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        """A descriptor of the folder. Its path is followed anew each time: the link of another user may lead to what is
        his alone."""
        descriptor = open_folder.reached(self._path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def text(self, now: float) -> str:
        """The file.

        Args:
            now: CLOCK_MONOTONIC.
        """
        return "".join(f"{row}\n" for metric in METRICS for row in self._rows(metric, now))

    def _rows(self, metric: Metric, now: float) -> Iterator[str]:
        series = list(self._series(metric, now))
        if series:
            yield f"# HELP {metric.name} {metric.help}"
            yield f"# TYPE {metric.name} {metric.type}"
        for suffix, labels, value in series:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"run": self._run, **labels}.items())
            yield f"{metric.name}{suffix}{{{inside}}} {_number(value)}"

    def _series(self, metric: Metric, now: float) -> Iterator[tuple[str, dict[str, str], float]]:
        name = metric.name.removeprefix("safelaunch_")
        if name == "run_info":
            yield "", dict(self._info), 1
        elif name == "run_start_time_seconds":
            yield "", {}, self._started
        elif name == "notices_total":
            yield from (("", {"code": code}, count) for code, count in sorted(self._notices.items()))
        elif name == "restarts_total":
            yield "", {}, self._attempt
        elif name == "start_seconds":
            yield from (("", {"phase": phase}, seconds) for phase, seconds in self._phases.items())
        else:
            for rank, known in sorted(self._ranks.items()):
                for suffix, labels, value in known.series(name, now):
                    yield suffix, {"rank": str(rank), **labels}, value


class _Rank:
    """What is known of one rank in this attempt."""

    def __init__(self) -> None:
        self.alive = True
        self.steps = 0
        self._last: Pulse | None = None
        self._stepped = 0.0
        self._counts = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def look(self, pulse: Pulse | None, alive: bool) -> None:
        """A look at it, which is None where it has no slot yet, or has it no more."""
        self.alive = alive
        if pulse is None:
            return
        self._last = pulse
        count = pulse.steps - self.steps
        if count > 0 and self.steps and pulse.stepped > self._stepped:
            self._counts[bisect.bisect_left(BUCKETS, (pulse.stepped - self._stepped) / count)] += count
            self._seconds += pulse.stepped - self._stepped
        if count > 0:
            self.steps, self._stepped = pulse.steps, pulse.stepped

    def series(self, name: str, now: float) -> Iterator[tuple[str, dict[str, str], float]]:
        """The series of a metric: suffix, labels and value."""
        last = self._last
        if name == "up":
            yield "", {}, int(self.alive)
        elif name == "step_seconds":
            yield from self._histogram()
        elif last is not None:
            values = {
                "steps_total": self.steps,
                "collective_wait_seconds_total": last.waited,
                "loader_wait_seconds_total": last.loading,
                "heartbeat_age_seconds": now - last.beat if last.beat and self.alive else None,
                "progress_age_seconds": now - last.progress if last.progress and self.alive else None,
            }
            value = values[name]
            if value is not None:
                yield "", {}, value

    def _histogram(self) -> Iterator[tuple[str, dict[str, str], float]]:
        if not self.steps:
            return
        total = 0
        for bound, count in zip((*BUCKETS, None), self._counts, strict=True):
            total += count
            yield "_bucket", {"le": "+Inf" if bound is None else _number(bound)}, total
        yield "_sum", {}, self._seconds
        yield "_count", {}, total


def versions() -> dict[str, str]:
    """The installed torch, which this process does not import, and the NCCL that comes with it."""
    found: dict[str, str] = {}
    for label, packages in (("torch", ("torch",)), ("nccl", ("nvidia-nccl-cu13", "nvidia-nccl-cu12"))):
        for package in packages:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found.setdefault(label, importlib.metadata.version(package))
    return found


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # a file may have any name
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def page() -> str:
    """docs/metrics.md, as it is made from the table above."""
    rows = [f"| `{one.name}` | {one.type} | {', '.join(('run', *one.labels))} | {one.help} |" for one in METRICS]
    return "\n".join([PAGE, *rows]) + "\n"


PAGE = """\
# Metrics

With `textfile = "DIR"` in `[metrics]` of a profile the supervisor writes a file into DIR every 15 s, and at each
notice, for the textfile collector of node_exporter (`--collector.textfile.directory=DIR`). Ranks have no part in it.
The file goes when the run ends. A rank has 25 series at most.

```toml
[metrics]
textfile = "/var/lib/node_exporter/textfile"
```

This page is made from the table in `safelaunch/run/metrics.py`.

| metric | type | labels | what it tells |
|---|---|---|---|"""

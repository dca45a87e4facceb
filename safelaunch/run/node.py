"""The preflight of a launch: from settings to a report on this node."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.model import Finding, Job, PreflightReport, SafelaunchError, Settings, Value
from safelaunch.preflight import CHECKS, node_history, runner
from safelaunch.preflight.local_world_size import ranks_here, uses_gpu
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.machine.processes import duration
from safelaunch.preflight.node_history import Record
from safelaunch.run.console import Console
from safelaunch.run.endpoint import endpoint
from safelaunch.schedulers.slurm import step_of_nodes
from safelaunch.sizes import plural

if TYPE_CHECKING:
    from safelaunch.preflight.between import Meeting

# Seconds for all checks; enough for those that are slow because something is wrong.
DEADLINE_S = 60.0
FULL_DEADLINE_S = 240.0
FULL_EVERY_S = 24 * 3600.0
SILENT_S = 5.0  # to wait for other nodes without a word
REFUSED_ARRIVE_S = 15.0  # a node that is refused stays so long to tell the others
MEETING_PORTS = range(15000, 25000)

# Where torch listens when only the address was given: MASTER_PORT of torchrun, DEFAULT_PORT of its c10d backend.
STATIC_PORT = 29500
DEFAULT_PORTS = {"static": STATIC_PORT, "c10d": 29400}
MEET = tuple(DEFAULT_PORTS)  # rendezvous whose endpoint is a port of a node; other kinds have servers of their own


@dataclass(frozen=True)
class Terms:
    """What profiles say of a preflight. Times are seconds; without a deadline it is ours."""

    wanted: Wanted = field(default_factory=Wanted)
    severity: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float | None = None
    full_every_s: float = FULL_EVERY_S

    def deadline(self, *, full: bool) -> float:
        return self.deadline_s or (FULL_DEADLINE_S if full else DEADLINE_S)


def terms(limits: Mapping[str, Value], preflight: Mapping[str, Value], nodes: Mapping[str, Value]) -> Terms:
    """Read the tables `[limits]`, `[preflight]` and `[nodes]`."""
    said = {key: value.value for key, value in preflight.items()}
    nofile = limits["nofile"].value if "nofile" in limits else None
    return Terms(
        Wanted(
            nofile=nofile if isinstance(nofile, int) else None,  # `auto` is no number
            free_disk=said.get("min_free_disk"),
            shm=said.get("min_shm"),
            bad_nodes=nodes["bad"].value if "bad" in nodes else "",
            thresholds=said.get("thresholds", {}),
        ),
        said.get("severity", {}),
        said.get("deadline"),
        said.get("full_every", FULL_EVERY_S),
    )


class NodeCheck:
    """The preflight of one launch on this node.

    Args:
        settings: of the launch.
        run_dir: where the run directory is.
        environ: of the ranks.
        console: of the run.
        linted: the variables that the lint has spoken of: the node has no second word about them.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: str,
        environ: Mapping[str, str],
        console: Console,
        linted: Set[str] = frozenset(),
    ) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._terms = terms(settings.limits, settings.preflight, settings.nodes)
        self._console = console
        self._told = {f"environment variable {name}" for name in linted}
        self._host = Host(Job(nproc=1), environ=environ, wanted=self._terms.wanted)
        self._record: Record | None = None

    def run(self, mode: str) -> PreflightReport:
        """Check this node for the launch, and tell what is found; one that cannot even count its ranks is refused as
        well.

        Args:
            mode: `full`, or `auto`: then the slow checks run where this node has no fresh pass on record.
        """
        begin = self._host.monotonic()
        self._host.until = begin + self._terms.deadline(full=True)
        try:
            host = self._host.for_job(job_of(self._settings, self._host, self._run_dir))
        except SafelaunchError as error:
            self._record = node_history.read(self._host)
            self._tell(error.diagnostic)
            return PreflightReport((error.diagnostic,), self._host.name(), self._host.monotonic() - begin, False)
        self._host = host
        self._record = node_history.read(host)
        full = mode == "full" or self._is_due(self._record)
        report = runner.run(
            host,
            checks=runner.select(CHECKS, full=full),
            deadline_s=self._terms.deadline(full=full),
            severity=self._terms.severity,
            full=full,
            begin=begin,
        )
        self._record = self._record.passed(report)
        # The others may let this node wait; what it has found itself is told before.
        for finding in report.findings:
            self._tell(finding)
        compared = self._with_others(host, report)
        for finding in compared.findings[len(report.findings) :]:
            self._tell(finding)
        return compared

    @property
    def host(self) -> Host:
        """This node as the check has seen it; for questions whose answers are there already."""
        return self._host

    def _with_others(self, host: Host, report: PreflightReport) -> PreflightReport:
        """The report with what the nodes of a job of a known size find between them."""
        job = host.job
        backend = self._settings["rdzv_backend"]
        known = job.min_nodes == job.max_nodes > 1 and not self._settings["spare_nodes"]
        if not (known and job.master_addr and job.endpoint_port) or backend not in MEET:
            return report
        from safelaunch.preflight import between  # which a job of one node has no use for

        meeting = self._meeting(host, report)
        # What this node was refused for it has said itself.
        judges = [judge for judge in between.JUDGES if not (meeting.refused and judge.code == "SL169")]
        nodes = plural(job.max_nodes - 1, "other node")
        patience = threading.Timer(
            SILENT_S, self._console.say, [f"preflight: waiting for {nodes} at {meeting.host}:{meeting.port}"]
        )
        patience.daemon = True
        patience.start()
        try:
            return between.extend(report, host, meeting, self._terms.deadline(full=True), self._terms.severity, judges)
        finally:
            patience.cancel()

    def _meeting(self, host: Host, report: PreflightReport) -> Meeting:
        """Where the nodes meet, and what this one has to say of itself."""
        from safelaunch.preflight import between

        job, backend = host.job, self._settings["rdzv_backend"]
        assert job.endpoint_port is not None
        run_id = str(self._settings["rdzv_id"])
        step = step_of_nodes(host.environ, job.max_nodes)  # the same on all nodes, whatever ids they were given
        return between.Meeting(
            job.master_addr,
            meeting_port(job.endpoint_port, step or run_id),
            job.max_nodes,
            job.node_rank if backend == "static" else None,
            name=step or run_id,
            rdzv_id=run_id if step and backend == "c10d" else "",
            arrive_s=REFUSED_ARRIVE_S if report.refused else self._arrive_s(),
            missing="warning",  # torch's rendezvous waits longer
            # What is computed may differ from node to node: CPUs, folders.
            profile=tuple(name for name in self._settings.env if name not in self._settings.computed),
            refused=next((f"{f.code}: {f.summary}" for f in report.findings if f.severity == "error"), ""),
        )

    def _arrive_s(self) -> float | None:
        """Seconds for the others to come; None for the meeting's own. Who is to be waited for more briefly in the
        rendezvous is so here too."""
        from safelaunch.preflight.between.stage import ARRIVE_S

        wait = self._settings.timeouts.get("rendezvous")
        return float(wait.value) if wait is not None and wait.value < ARRIVE_S else None

    def _is_due(self, known: Record) -> bool:
        slow = sum(check.full_only for check in CHECKS)
        reason = known.due(self._terms.full_every_s)
        if reason:
            self._console.say(f"preflight: all checks ({reason})")
        else:
            self._console.say(f"preflight: {plural(slow, 'slow check')} left out, passed {duration(known.age_s())} ago")
        return bool(reason)

    def _tell(self, finding: Finding) -> None:
        if finding.where not in self._told:
            self._console.finding(finding)

    def remember(self, code: str) -> None:
        """Write down how the run ended: a code, or nothing for success."""
        if self._record is not None:
            self._record = self._record.ended(code)


def meeting_port(endpoint_port: int, run_id: str) -> int:
    """The port of the endpoint's host at which the nodes meet before a launch: the same on all of them.

    Not the endpoint's own: the agent of a node that has checked itself already would take our store for its
    rendezvous, and fail when it closes. It lies below the kernel's ephemeral ports, and far from 29400 and 29500.
    """
    return MEETING_PORTS[zlib.crc32(f"{endpoint_port}/{run_id}".encode()) % len(MEETING_PORTS)]


def job_of(settings: Settings, host: Host, run_dir: str) -> Job:
    """The shape of a launch on this node. Raises SafelaunchError where its ranks cannot be counted."""
    asked = str(settings["nproc_per_node"])
    fewest, _, most = str(settings["nnodes"]).rpartition(":")
    address, port = endpoint(settings)
    static = settings["rdzv_backend"] == "static"
    endpoint_port = port or (DEFAULT_PORTS.get(settings["rdzv_backend"]) if address else None)
    if static and int(settings["node_rank"]) > 0:
        port = None  # node 0 listens, wherever it is
    try:
        nproc = ranks_here(asked, host)
    except SafelaunchError:
        if asked in ("auto", "gpu", "cpu"):
            raise
        nproc = 1  # a device that only torch can count (xpu): the agent knows
    return Job(
        nproc=nproc,
        min_nodes=int(fewest or most),
        max_nodes=int(most),
        node_rank=int(settings["node_rank"]),
        master_addr=address,
        master_port=port,
        port_shared=not static and int(most) > 1,
        endpoint_port=endpoint_port,
        uses_gpu=uses_gpu(asked, host),
        nproc_asked=asked,
        run_dir=run_dir,
        numa_binding=str(settings["numa_binding"] or ""),
        local_addr=str(settings["local_addr"] or ""),
    )

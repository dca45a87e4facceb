"""The frozen dataclasses that flow from the command line to the verdict.

Nothing here does I/O and nothing here imports more than the standard library, so that every stage, a worker
process and an offline `diagnose` can share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Severity = Literal["ok", "note", "warning", "error", "unchecked"]
VerdictKind = Literal["hang", "crash", "slow", "preflight", "infra"]
Confidence = Literal["high", "medium", "low"]
LaunchMode = Literal["script", "module", "no_python", "run_path"]


# --------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    `source` is one of `flag`, `shell`, `profile`, `default`, `launcher`; `where` is what to look at: the flag,
    the variable, or `file:line`.
    """

    source: Literal["flag", "shell", "profile", "default", "launcher"]
    where: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.where}".strip()


@dataclass(frozen=True)
class Value:
    """One setting and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Settings:
    """Everything that flags, environment, profiles and defaults say, each value with its origin.

    `options` holds torchrun's options and ours by argparse destination (`nproc_per_node`, `run_dir`). `env`
    holds what the profiles set for agent and workers, after the shell has had its word. The four tables hold
    profile keys of the same name; durations are seconds (float).
    """

    options: dict[str, Value]
    env: dict[str, Value]
    timeouts: dict[str, Value] = field(default_factory=dict)
    hang: dict[str, Value] = field(default_factory=dict)
    preflight: dict[str, Value] = field(default_factory=dict)
    limits: dict[str, Value] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    notes: tuple[Finding, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The bare value of an option."""
        return self.options[name].value


# ----------------------------------------------------------------------------------------------- launch


@dataclass(frozen=True)
class Job:
    """The shape of a launch, as far as a check or a rule needs it.

    `nproc` is this node's number of ranks. `uses_gpu` is true when the ranks would use NCCL. `master_addr` and
    `master_port` are set only where the user chose them; port 0 and None mean that a free port is taken.
    `port_shared` is true where another agent of this job may listen there already (c10d with several nodes).
    """

    nproc: int
    min_nodes: int = 1
    max_nodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int | None = None
    port_shared: bool = False
    uses_gpu: bool = False
    nproc_asked: str = ""
    run_dir: str = ""


@dataclass(frozen=True)
class LaunchPlan:
    """All that the supervisor's side needs to run one job on this node.

    `torchrun` maps torchrun's argparse destinations to values; the agent rebuilds torch's own configuration
    from it. `env` is added to the inherited environment. `token` marks every process of the run (variable
    `SAFELAUNCH_RUN_TOKEN`). `scratch_dir` is private, on memory where possible, and gone after the run.
    Durations are seconds.
    """

    run_id: str
    token: str
    run_dir: str
    scratch_dir: str
    mode: LaunchMode
    script: str
    script_args: tuple[str, ...]
    torchrun: dict[str, Any]
    env: dict[str, str]
    shutdown_timeout: float
    process_group_timeout: float | None = None


# ------------------------------------------------------------------------------------------ diagnostics


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """What findings, verdicts and errors share, so that one renderer serves them all."""

    code: str
    summary: str
    because: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding(Diagnostic):
    """One result of a check. `unchecked` (could not look, `because` says why) is never a pass."""

    severity: Severity
    check: str = ""


@dataclass(frozen=True)
class PreflightReport:
    """All findings of one preflight of one node."""

    findings: tuple[Finding, ...]
    host: str
    elapsed_s: float
    full: bool = False

    @property
    def refused(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict(Diagnostic):
    """Who is to blame for an incident, how sure we are, and what to do.

    `culprit_ranks` may be empty: "no rank to blame" and "cannot tell" are told apart by `code`. Times are
    seconds from the death, or from the last progress.
    """

    slug: str
    kind: VerdictKind
    culprit_ranks: tuple[int, ...] = ()
    host: str = ""
    pid: int | None = None
    location: Location | None = None
    operation: str | None = None
    seq: int | None = None
    process_group: str | None = None
    secondary: tuple[int, ...] = ()
    confidence: Confidence = "high"
    traceback: str = ""
    detected_after_s: float | None = None
    concluded_after_s: float | None = None
    exit_code: int = 1
    schema_version: int = SCHEMA_VERSION


class SafelaunchError(Exception):
    """An error that the user can act on: printed as one message, never as a traceback."""

    def __init__(self, code: str, summary: str, remedy: str = "", *, because: tuple[str, ...] = (), exit_code: int):
        super().__init__(summary)
        self.diagnostic = Finding(code=code, severity="error", summary=summary, because=because, remedy=remedy)
        self.exit_code = exit_code


# --------------------------------------------------------------------------------------------- evidence


@dataclass(frozen=True)
class Exit:
    """How a process ended. `code` is as `subprocess` reports it: negative for a signal. `t` is CLOCK_MONOTONIC."""

    code: int
    t: float


@dataclass(frozen=True)
class WorkerProcess:
    """One rank's process as the agent started it. `start` is /proc's start time in ticks; `rank_dir` is where the
    worker writes what it knows of its own end, `black_box` the file that holds its slot (empty: none)."""

    rank: int
    local_rank: int
    pid: int
    start: int
    rank_dir: str
    black_box: str = ""
    exit: Exit | None = None


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of one attempt on this node."""

    attempt: int
    world_size: int
    local_world_size: int
    workers: tuple[WorkerProcess, ...] = ()

    @property
    def alive(self) -> tuple[WorkerProcess, ...]:
        return tuple(worker for worker in self.workers if worker.exit is None)

    @property
    def started(self) -> bool:
        """Whether all workers of this node have been started."""
        return len(self.workers) == self.local_world_size


@dataclass(frozen=True)
class PyError:
    """An uncaught Python exception, as the worker recorded it before its interpreter shut down.

    `chain` holds the types and messages of `__cause__`/`__context__`, outermost first, without the exception
    itself. `t` is CLOCK_MONOTONIC at the raise's arrival in the excepthook.
    """

    type: str
    message: str
    traceback: str
    t: float
    location: Location | None = None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collective:
    """One collective call of a rank, from its black box. `done` is false while the rank is still inside.

    `seq` is the sequence number of the process group `group`; `numel` counts elements of the input tensor
    (-1: unknown). `t` is CLOCK_MONOTONIC at entry.
    """

    op: str
    group: str
    seq: int
    numel: int
    dtype: str
    done: bool
    t: float
    group_size: int = 0
    location: Location | None = None


@dataclass(frozen=True)
class ExitCall:
    """The line that called `os._exit` or `sys.exit`. `code` is its argument as text (`sys.exit` takes anything)."""

    location: Location
    code: str


@dataclass(frozen=True)
class Stack:
    """A Python stack of a rank's main thread, innermost frame first. `source` names the tool that took it."""

    frames: tuple[Location, ...]
    source: str
    text: str = ""


@dataclass(frozen=True)
class RankFacts:
    """All that is known of one rank at an incident.

    `shut_down` is CLOCK_MONOTONIC at which its interpreter began to shut down, None if it has not; `raised` says
    that an exception was the reason, also where its record is missing. `state` is
    /proc's letter of a living rank. `watched` is false where the bootstrap did not run in the rank's process (not
    Python, or a Python that ignores its environment). `missing` lists evidence that could not be had, each with its
    reason.
    """

    rank: int
    local_rank: int
    pid: int
    exit: Exit | None = None
    error: PyError | None = None
    fault: Stack | None = None
    stack: Stack | None = None
    exit_call: ExitCall | None = None
    shut_down: float | None = None
    raised: bool = False
    collectives: tuple[Collective, ...] = ()
    state: str = ""
    watched: bool = True
    missing: tuple[str, ...] = ()

    @property
    def last_collective(self) -> Collective | None:
        """The latest collective that the rank entered, finished or not."""
        return self.collectives[-1] if self.collectives else None


@dataclass(frozen=True)
class Incident:
    """Something that went wrong at `t` (CLOCK_MONOTONIC) and needs evidence.

    `kind`: `exit` (a rank failed), `early_exit` (a rank left with 0 while its peers wait).
    """

    kind: Literal["exit", "early_exit"]
    attempt: int
    ranks: tuple[int, ...]
    t: float


@dataclass(frozen=True)
class Evidence:
    """What one collector found about one rank: `data`, or the reason why there is none."""

    source: str
    rank: int
    data: dict[str, Any] | None = None
    unavailable: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class AgentEnd:
    """How the agent ended without success: what it said (`phase`, `type`, `message`), or the status of a process
    that said nothing."""

    phase: str = ""
    type: str = ""
    message: str = ""
    exit: Exit | None = None
    workers_started: bool = False


@dataclass(frozen=True)
class Case:
    """An incident with its evidence: the whole input of a diagnosis, live or from a bundle.

    `oom_kills` is the growth of the memory cgroup's `oom_kill` counter during the run, None where it cannot
    be read. `world_size` may exceed `len(ranks)`: other nodes keep their own evidence.
    """

    incident: Incident
    host: str
    world_size: int
    ranks: tuple[RankFacts, ...]
    oom_kills: int | None = None
    kernel_log: tuple[str, ...] = ()

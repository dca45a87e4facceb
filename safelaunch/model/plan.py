"""From settings to the plan of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from safelaunch.model.diagnostic import Finding

# What the Python of a rank runs for --run-path.
RUN_PATH = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"

LaunchMode = Literal["script", "module", "no_python", "run_path"]


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    `source` is one of `flag`, `shell`, `profile`, `default`, `launcher`, `file`, `scheduler`; `where` is what to look
    at: the flag, the variable, or `file:line`.
    """

    source: Literal["flag", "shell", "profile", "default", "launcher", "file", "scheduler"]
    where: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.where}".strip()


@dataclass(frozen=True)
class Value:
    """One setting and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Allocation:
    """The nodes of a job, and the place of this one among them.

    Args:
        scheduler: its name, as people write it.
        job: the name of this attempt of the job, the same on all nodes and never used again; "" where nothing says it.
        nodes: how many there are; None where the scheduler does not tell its jobs.
        node_rank: of this node, from 0; None where it is not known.
        leader: a name or address of node 0 that all nodes can resolve; None where it is not known.
        gpus: of this node; None where the scheduler does not say.
        hosts: names of the nodes in the scheduler's order, where it lists them.
    """

    scheduler: str
    job: str = ""
    nodes: Value | None = None
    node_rank: Value | None = None
    leader: Value | None = None
    gpus: Value | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Everything that flags, environment, profiles and defaults say, each value with its origin.

    `options` holds torchrun's options and ours by argparse destination (`nproc_per_node`, `run_dir`). `env`
    holds what the profiles set for agent and workers, after the shell has had its word; `unset` the variables that
    they take out of the shell's environment first, and `computed` the profile's own text of each value of `env` that
    was computed from the launch.
    `allocation` is what the scheduler gives, where the launch takes its nodes from it, and `end` when the job's time
    ends, in seconds since the epoch, where it says so. The tables hold profile keys of
    the same name; durations are seconds (float).
    """

    options: dict[str, Value]
    env: dict[str, Value]
    timeouts: dict[str, Value] = field(default_factory=dict)
    hang: dict[str, Value] = field(default_factory=dict)
    preflight: dict[str, Value] = field(default_factory=dict)
    limits: dict[str, Value] = field(default_factory=dict)
    nodes: dict[str, Value] = field(default_factory=dict)
    notify: dict[str, Value] = field(default_factory=dict)
    lint: dict[str, Value] = field(default_factory=dict)
    launch: dict[str, Value] = field(default_factory=dict)
    diagnosis: dict[str, Value] = field(default_factory=dict)
    slow: dict[str, Value] = field(default_factory=dict)
    log: dict[str, Value] = field(default_factory=dict)
    metrics: dict[str, Value] = field(default_factory=dict)
    unset: dict[str, Value] = field(default_factory=dict)
    computed: dict[str, str] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    allocation: Allocation | None = None
    end: Value | None = None
    notes: tuple[Finding, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The bare value of an option."""
        return self.options[name].value

    @property
    def several_nodes(self) -> bool:
        """Whether the job may have more than one node."""
        return str(self["nnodes"]).rpartition(":")[2] != "1"

    @property
    def added(self) -> dict[str, str]:
        """The variables that the launch adds for agent and ranks."""
        return {name: str(value.value) for name, value in self.env.items()}

    @property
    def taken_away(self) -> tuple[str, ...]:
        """The variables that agent and ranks do not have, whatever the shell has."""
        return tuple(name for name in self.unset if name not in self.env)

    def environment(self, shell: Mapping[str, str]) -> dict[str, str]:
        """What agent and ranks are started with: all that speak of it take it from here.

        Args:
            shell: the environment of safelaunch itself.
        """
        return {name: value for name, value in shell.items() if name not in self.unset} | self.added


@dataclass(frozen=True)
class Job:
    """The shape of a launch, as far as a check or a rule needs it.

    `nproc` is this node's number of ranks. `uses_gpu` is true when the ranks would use NCCL. `master_addr` and
    `master_port` are set only where the user chose them; port 0 and None mean that a free port is taken.
    `port_shared` is true where another agent of this job may listen there already (c10d with several nodes).
    `endpoint_port` is the port that the node with the master address listens on, this one or another; None where it
    is not known. `local_addr` is what torch elastic is to call this node, where the user has said it.
    """

    nproc: int
    min_nodes: int = 1
    max_nodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int | None = None
    port_shared: bool = False
    endpoint_port: int | None = None
    uses_gpu: bool = False
    nproc_asked: str = ""
    run_dir: str = ""
    numa_binding: str = ""
    local_addr: str = ""


@dataclass(frozen=True)
class WarmStart:
    """How the fork server is started: with the ranks' `command`, and with `environ` beside the agent's.

    `preload` are modules to import beside torch; `beside` is the folder that comes first on the script's `sys.path`.
    """

    command: tuple[str, ...]
    environ: dict[str, str]
    preload: tuple[str, ...]
    beside: str


@dataclass(frozen=True)
class Log:
    """How the lines of ranks are shown where that is not as torch has it: with a `prefix` whose `{rank}`, `{host}`,
    `{time}` and `{date}` are filled in, and those that several ranks print alike as one (`merge`)."""

    mode: Literal["prefix", "merge"]
    prefix: str


@dataclass(frozen=True)
class LaunchPlan:
    """All that the supervisor's side needs to run one job on this node.

    `torchrun` maps torchrun's argparse destinations to values; the agent rebuilds torch's own configuration
    from it. `env` is added to the inherited environment, of which `unset` is taken away. `token` marks every process of
    the run (variable `SAFELAUNCH_RUN_TOKEN`). `scratch_dir` is private, in memory where possible, and gone after the
    run. `restart_hangs` is false where a hang ends the run whatever restarts are left. In a job of one node
    `rendezvous_timeout` is None. `spare_nodes` may come beyond those of the job, and wait until one is lost.
    `useful_restarts` ends the run where a restart would fail as the attempt before it. `hosts` are the nodes in the
    scheduler's order, in which they get their ranks. `grace` is what ranks that call `should_stop()` have after
    SIGTERM. `log` is None where the ranks' lines are shown as torch shows them. `warm` is None for a cold start.
    `warnings` are lines to be said at the start. Durations are seconds.
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
    loader_timeout: float | None = None
    grace: float = 30.0
    bind_device: bool = False
    restart_hangs: bool = True
    spare_nodes: int = 0
    useful_restarts: bool = False
    rendezvous_timeout: float | None = None
    unset: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    log: Log | None = None
    warm: WarmStart | None = None
    warnings: tuple[str, ...] = ()

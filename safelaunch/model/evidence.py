"""What is known of processes, and the case that a diagnosis starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from safelaunch.model.devices import RankDevice, StreamProgress
from safelaunch.model.diagnostic import Location
from safelaunch.model.gpus import GpuState, NetworkPort
from safelaunch.model.kernel import Kernel, ThreadCall
from safelaunch.model.logs import Known
from safelaunch.model.processes import Exit
from safelaunch.model.rendezvous import Rendezvous
from safelaunch.model.slow import Slowness
from safelaunch.model.source import SourceLine
from safelaunch.model.surroundings import Reducer, Space, Surroundings


@dataclass(frozen=True)
class PyError:
    """An uncaught Python exception, as the worker recorded it before its interpreter shut down.

    `chain` holds the types and messages of `__cause__`/`__context__`, outermost first, without the exception
    itself. `t` is CLOCK_MONOTONIC at the raise's arrival in the excepthook. `known` is what the file of signatures says
    of the message, where it is a known one; `around` what the message speaks of looked like at that moment.
    """

    type: str
    message: str
    traceback: str
    t: float
    location: Location | None = None
    chain: tuple[str, ...] = ()
    known: Known | None = None
    around: Surroundings | None = None


CallState = Literal["", "enqueued", "started", "completed"]


@dataclass(frozen=True)
class Collective:
    """One collective call of a rank, or one message between two ranks.

    `seq` counts the collectives of the process group `group` alone, as the Flight Recorder does: the same number on
    two ranks means the same meeting. Waits that are not collectives of a group have a group of their own, such as
    `init` or `new_group`. `peer` is the other rank of a message, or the root of a collective that has one. `done` is
    false while the rank is still inside, or waits for it; `issued` says that the call was asynchronous and has
    returned, and that nobody has waited for its result yet; `raised` that it ended with an exception (and then `done`
    is false: the collective never was). `numel` counts elements of the input tensor (-1: unknown). `t` is
    CLOCK_MONOTONIC at entry. `thread` is the native id of the thread that made the call, `tag` that of a message.
    `state` is what torch's Flight Recorder says of the call on its device, "" where it says nothing: on a GPU a call
    returns as soon as it is enqueued, so that `done` says nothing of it. One that is `enqueued` may have started all
    the same, unless the rank's `GroupProgress.started` is known. `timeout_s` is how long torch's watchdog lets it last,
    0 where that is not known. `how` is what a reduction does (`sum`, `max`), and `batch` of a message that was enqueued
    together with others (`batch_isend_irecv`); "" where that is not known. `outputs` counts the elements of each output
    tensor, as the Flight Recorder has them.
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
    issued: bool = False
    raised: bool = False
    peer: int | None = None
    thread: int = 0
    tag: int = 0
    state: CallState = ""
    timeout_s: float = 0.0
    how: str = ""
    outputs: tuple[int, ...] = ()

    @property
    def is_batched(self) -> bool:
        return self.how == "batch"  # none of these messages waits for another one

    @property
    def is_message(self) -> bool:
        """Whether it is a message between two ranks, which has numbers of its own."""
        return self.op in ("send", "recv", "isend", "irecv")


@dataclass(frozen=True)
class ProcessGroup:
    """A process group: its name in torch and its members' global ranks."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GroupProgress:
    """How far a rank has come in a process group, as a backend of torch counts for its Flight Recorder.

    `enqueued` is the number of the latest call that the host has handed to the device, `started` of the latest whose
    kernel has begun (None: not recorded), `completed` of the latest that has ended; all count from 1, 0 is none.
    `group` is the group's name in torch, "" where the recorder does not say which one it is.

    What has a number depends on `backend`, so numbers of two backends never compare. `nccl2` numbers all calls of the
    group, messages included. Others number collectives and messages each for themselves and tell the latest of either.
    So where there were `messages`, the numbers of two ranks do not compare; False says that none are known of.
    """

    group: str
    backend: str
    enqueued: int
    completed: int
    started: int | None = None
    messages: bool = False

    @property
    def pending(self) -> bool:
        """Whether something that was enqueued has not completed."""
        return self.enqueued != self.completed


@dataclass(frozen=True)
class Phase:
    """What a rank says that it is doing: `loader`, `checkpoint`, `compile`, or a name that the script chose.

    `since` is CLOCK_MONOTONIC, `expect_s` how long the script says that it may take (0: it does not say).
    """

    name: str
    since: float
    expect_s: float = 0.0
    thread: int = 0


@dataclass(frozen=True)
class LoaderPass:
    """A rank's latest pass over a DataLoader at one place of its program.

    `place` is a number for the lines that led to it: ranks that came there in the same way have the same. `number`
    counts the passes begun there. `given` are the batches of this pass so far, `length` how many there are (None: not
    known without running the user's code), `ended` is CLOCK_MONOTONIC at which it had no more to give.
    """

    place: int
    number: int
    given: int
    length: int | None = None
    ended: float | None = None


@dataclass(frozen=True)
class ExitCall:
    """The line that called `os._exit` or `sys.exit`. `code` is its argument as text (`sys.exit` takes anything), and
    `said` what a library printed that made the call for the program (argparse).

    `raised` says that nothing was called: the line is the only one of the program that raises SystemExit with a code
    like the rank's. `code` is then the text that stands there, if one does, else the rank's code. `signal` is that in
    whose handler of the program the call was made (`SIGTERM`); empty where it was in none.
    """

    location: Location
    code: str
    said: str = ""
    raised: bool = False
    signal: str = ""


@dataclass(frozen=True)
class Stack:
    """A Python stack of one thread, innermost frame first. `source` names the tool that took it, `thread` is the
    thread's native id (0: unknown) and `name` its name in Python. `native` says that the frames of native code are
    among them."""

    frames: tuple[Location, ...]
    source: str
    text: str = ""
    thread: int = 0
    name: str = ""
    native: bool = False


@dataclass(frozen=True)
class Child:
    """A process below a rank, such as a DataLoader worker. `status` is that of one that has ended and that nobody has
    asked after (a zombie), as wait(2) would give it; None where it lives, or is not known."""

    pid: int
    name: str
    kernel: Kernel
    stack: Stack | None = None
    status: int | None = None


GapKind = Literal["", "no dump", "another moment"]


@dataclass(frozen=True)
class Gap:
    """Evidence that could not be had, and why. `kind` says it where rules ask for it: a rank has left no dump, or one
    that was taken at another moment than its peers'."""

    source: str
    reason: str
    kind: GapKind = ""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}" if self.source else self.reason

    @staticmethod
    def from_older(document: Any) -> Any:
        """A document of an older version in today's shape, see `codec`: before 2026-11 it was a text."""
        if not isinstance(document, str):
            return document
        source, colon, reason = document.partition(": ")
        return {"source": source, "reason": reason} if colon else {"source": "", "reason": document}


@dataclass(frozen=True)
class RankFacts:
    """All that is known of one rank at an incident.

    `shut_down` is CLOCK_MONOTONIC at which its interpreter began to shut down, None if it has not; `raised` says
    that an exception was the reason, also where its record is missing. `state` is /proc's letter of a living rank.
    `watched` is false where the bootstrap did not run in the rank's process (not Python, or a Python that ignores its
    environment), `recording` false where its record of collectives ended early (`collectives` is empty then: a record
    with gaps would mislead). `missing` lists evidence that could not be had, each with its reason.

    Of a living rank: `stack` is that of the thread that makes the collectives, `stacks` holds those of all threads,
    `earlier` that thread's stack at the look before. `recorded` are the Flight Recorder's latest entries (without
    lines), None where it could not be read. `beat_age_s` is the age of the last sign that its interpreter runs at
    all; `quiet_s` the time since its last progress; `step` and `batch` count optimizer steps and loader batches,
    `stepped` is CLOCK_MONOTONIC of the latest step, `exhausted` of a loader's latest end, `loaders` are its passes.
    `threads` are those of its threads that the kernel holds, or that are in a call which says what they wait for.
    `device` is what the rank said of its GPUs, `reducers` are the models that DistributedDataParallel reduces on it.

    A rank that was not `watched` may still be known by its Flight Recorder's dump: then `recorded` holds its calls with
    their lines, messages among them (numbered for each pair of ranks and direction); `issued` are those that wait
    behind another one. `overwritten` says that the recorder had no room for older ones. `last_lines` are the end of its
    stderr, or of its stdout where there is nothing on stderr; its output must go to files. `handling` is the exception
    that its main thread is handling: inside an `except`, a `finally` or what these call. `lost_thread` is the latest
    exception that has ended a thread of it, `store_keys` are the latest keys that it has set in a store, `store_wants`
    those that it waits for there, `store_polls` those that its main thread looks at again and again, None where it has
    not said. `looks_at` are names in the innermost function of the program that its main thread is in, with the paths
    that they hold; one without a name is the lock file of a library. `tasks` are those of asyncio that wait. `program`
    is the file of one that has ended without a call of exit. `new_groups` are the members of each group that it has
    called `new_group` for, its own or not, in order, `meets` is what it called `init_process_group` with. `ended` says
    that its main thread has left the program, the interpreter is to end the rest. `progress` is how far it has come in
    each group, by the counters of every backend that records; of a group that was destroyed and made anew it has both.
    `stream` is how far its GPU has come in what the host has enqueued, None where that is not known. `node` numbers the
    nodes of a case that was put together of several: pids and numbers of GPUs are each node's own.
    """

    rank: int
    local_rank: int
    pid: int
    exit: Exit | None = None
    error: PyError | None = None
    fault: Stack | None = None
    stack: Stack | None = None
    exit_call: ExitCall | None = None
    program: str = ""
    shut_down: float | None = None
    raised: bool = False
    collectives: tuple[Collective, ...] = ()
    recording: bool = True
    state: str = ""
    watched: bool = True
    missing: tuple[Gap, ...] = ()
    stacks: tuple[Stack, ...] = ()
    earlier: Stack | None = None
    recorded: tuple[Collective, ...] | None = None
    kernel: Kernel | None = None
    children: tuple[Child, ...] = ()
    phases: tuple[Phase, ...] = ()
    beat_age_s: float | None = None
    quiet_s: float | None = None
    step: int = 0
    stepped: float | None = None
    batch: int = 0
    exhausted: float | None = None
    device: RankDevice | None = None
    reducers: tuple[Reducer, ...] = ()
    overwritten: bool = False
    loaders: tuple[LoaderPass, ...] = ()
    threads: tuple[ThreadCall, ...] = ()
    last_lines: tuple[str, ...] = ()
    handling: PyError | None = None
    lost_thread: PyError | None = None
    store_keys: tuple[str, ...] = ()
    store_wants: tuple[str, ...] = ()
    store_polls: tuple[str, ...] | None = ()
    looks_at: tuple[tuple[str, str], ...] = ()
    tasks: tuple[Stack, ...] = ()
    new_groups: tuple[tuple[int, ...], ...] = ()
    meets: Rendezvous | None = None
    ended: bool = False
    progress: tuple[GroupProgress, ...] = ()
    stream: StreamProgress | None = None
    node: int = 0

    @property
    def gaps(self) -> str:
        """What could not be had, in one line; empty where nothing is missing."""
        return "; ".join(map(str, self.missing))

    @property
    def last_collective(self) -> Collective | None:
        """The latest collective that the rank entered, finished or not."""
        return self.collectives[-1] if self.collectives else None

    @property
    def calls(self) -> tuple[Collective, ...]:
        """The rank's own record of its calls; of one that was not watched, its Flight Recorder's."""
        return self.collectives if self.watched else self.recorded or ()


@dataclass(frozen=True)
class Incident:
    """Something that went wrong at `t` (CLOCK_MONOTONIC) and needs evidence.

    `kind`: `exit` (a rank failed), `hang` (ranks wait, and what they wait for makes no progress; `t` is the last
    progress), `slow` (they make progress, too slowly; `t` is when that was noticed).
    """

    kind: Literal["exit", "hang", "slow"]
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


SPARE = "spare"  # as the `phase` of an `AgentEnd`: this node was none of the job, and has waited for one to be lost
FORK_SERVER = "fork server"  # as the `phase` of an `AgentEnd`: that process ended, and all ranks with it


@dataclass(frozen=True)
class AgentEnd:
    """How the agent ended without success: what it said (`phase`, `type`, `message`, and the `signal` that made it end,
    0 for none), or the status of a process that said nothing. `code` is the job's exit code where this node was a spare
    (0: nobody has said it)."""

    phase: str = ""
    type: str = ""
    message: str = ""
    exit: Exit | None = None
    workers_started: bool = False
    signal: int = 0
    code: int = 0


@dataclass(frozen=True)
class Case:
    """An incident with its evidence: the whole input of a diagnosis, live or from a bundle.

    `oom_kills` is the growth of the memory cgroup's `oom_kill` counter during the run, None where it cannot
    be read. `world_size` may exceed `len(ranks)`: other nodes keep their own evidence. `now` is CLOCK_MONOTONIC when
    the evidence was taken. `source` describes the lines at which ranks stand. `origin` is `dumps` where nothing but
    Flight Recorder dumps is left of a job: its times are of the wall clock, `now` is when the latest file was written,
    and `gave_up` says that a watchdog had given up a call in them; `attach` where a job that runs was looked at twice
    from outside; `joined` where somebody else starts the ranks, which are known once they have joined. `gpus` are those
    of this node, `ports_down` its network ports that should be up (of several nodes: of those whose hardware was read).
    `ras` is what NCCL's own RAS threads said when asked, `shm` is /dev/shm, `slow` what was seen of a run that is slow.
    """

    incident: Incident
    host: str
    world_size: int
    ranks: tuple[RankFacts, ...]
    oom_kills: int | None = None
    groups: tuple[ProcessGroup, ...] = ()
    source: tuple[SourceLine, ...] = ()
    now: float | None = None
    origin: Literal["run", "dumps", "attach", "joined"] = "run"
    gpus: tuple[GpuState, ...] = ()
    ports_down: tuple[NetworkPort, ...] = ()
    ras: str = ""
    shm: Space | None = None
    gave_up: bool = False
    slow: Slowness | None = None

    @property
    def hardware(self) -> bool:
        """Whether anything was read of GPUs, ports or NCCL's own threads."""
        return bool(self.gpus or self.ports_down or self.ras)

    def of_pid(self, pid: int, node: int) -> RankFacts | None:
        """The rank with that process on that node: other nodes, and containers, have the same pids."""
        return next((facts for facts in self.ranks if (facts.node, facts.pid) == (node, pid)), None)

"""The SL catalogue: every code that safelaunch can print, with its title and where its text lives.

A code once shipped keeps its meaning. `safelaunch explain CODE` prints the docstring found at `text`
(`module:function` below safelaunch), so that the explanation cannot drift from the code that concludes it.
"""

from __future__ import annotations

from enum import Enum

EXIT_OK = 0
EXIT_SCRIPT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 69
EXIT_OUR_FAULT = 70
EXIT_INFRASTRUCTURE = 75
EXIT_PROFILE = 78
EXIT_HANG = 124
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class Trait(Enum):
    """What holds of a code, for those who act on verdicts.

    - DIVERGED: the programs of ranks have come apart, so that progress of a culprit ends nobody's wait.
    - ELSEWHERE: ranks are in different calls; which of them is wrong may not be known.
    - QUIET: it can be told where no rank waits for another.
    - UNKNOWN: the evidence says nothing.
    - NOBODY: it may name no rank.
    - EFFECT: it says how ranks ended, and not why.
    - MAYBE_GPU: a broken GPU can be behind it. A rank that left the loop, or waits in another collective, did so by its
      program; one that reads a file, or is stopped, is held up there.
    - EXCEPTION: an exception's own words say why it was raised.
    - MAYBE_PEER: ... but the cause may lie with another rank.
    - MISFIT: what ranks brought to one collective does not fit together.
    - OWN_RULE: a rule knows more of it than a message does, whatever signature a user has given the message.
    - INFRASTRUCTURE: it is not the program's: a scheduler may try again, on other nodes.
    - NOTHING_WRONG: nothing is wrong, and nothing makes it surer.
    - OF_ONE_RUN: a check of it concerns one run, or what jobs may take by right: no reason to refuse a node.
    """

    DIVERGED = "diverged"
    ELSEWHERE = "elsewhere"
    QUIET = "quiet"
    UNKNOWN = "unknown"
    NOBODY = "nobody"
    EFFECT = "effect"
    MAYBE_GPU = "maybe a GPU"
    EXCEPTION = "exception"
    MAYBE_PEER = "maybe a peer"
    MISFIT = "misfit"
    OWN_RULE = "own rule"
    INFRASTRUCTURE = "infrastructure"
    NOTHING_WRONG = "nothing wrong"
    OF_ONE_RUN = "of one run"


class Code:
    """One entry of the catalogue.

    Args:
        code: `SL` and three digits.
        slug: its name for machines.
        title: one line.
        text: where its text lives: the check or rule that concludes it, or several, apart by spaces.
        traits: what holds of it.
    """

    def __init__(self, code: str, slug: str, title: str, text: str, *traits: Trait) -> None:
        self.code, self.slug, self.title, self.text = code, slug, title, text
        self.traits = frozenset(traits)


CATALOGUE: dict[str, Code] = {
    entry.code: entry
    for entry in (
        # SL0xx: usage
        Code("SL001", "usage", "the command line cannot be understood", "settings.options:parse"),
        Code("SL002", "script", "the training script cannot be run", "launch.plan:check_script"),
        Code("SL003", "run-dir", "the run directory cannot be used", "launch.run_dir:create"),
        Code("SL004", "run-id", "the run id cannot name a folder", "launch.run_dir:check_run_id"),
        Code("SL005", "nothing-to-diagnose", "nothing there can be diagnosed", "cli.diagnose:unreadable"),
        Code("SL006", "nothing-to-attach", "no ranks were found to attach to", "cli.attach:no_ranks"),
        Code("SL007", "no-place", "there is no place to write to, or to run in", "cli.output:unwritable"),
        # SL1xx: preflight
        Code("SL101", "nofile", "the limit of open files is too low", "preflight.node.limits:open_files"),
        Code("SL102", "port-in-use", "the rendezvous port is taken", "preflight.network.port:port", Trait.OF_ONE_RUN),
        Code("SL103", "name-resolution", "a host name does not resolve", "preflight.network.names:names"),
        Code("SL104", "shm", "/dev/shm is too small", "preflight.node.limits:shared_memory", Trait.OF_ONE_RUN),
        Code("SL105", "disk", "a disk that the job writes to is full", "preflight.node.disk:disk", Trait.OF_ONE_RUN),
        Code("SL106", "memory-limit", "the memory limit is too low", "preflight.node.limits:memory", Trait.OF_ONE_RUN),
        Code("SL107", "gpu-count", "fewer GPUs are visible than ranks need", "preflight.gpu.count:count"),
        Code("SL108", "gpu-driver", "the GPU driver does not answer", "preflight.gpu.driver:driver"),
        Code("SL109", "gpu-busy", "another process holds a GPU", "preflight.gpu.occupied:occupied"),
        Code(
            "SL110",
            "leftover-run",
            "processes of an earlier run are alive",
            "preflight.node.leftovers:earlier_runs",
            Trait.OF_ONE_RUN,
        ),
        Code("SL111", "collective", "a real collective failed on this node", "preflight.active.collective:collective"),
        Code(
            "SL112", "gpu-recovery", "the driver asks for a reset of a GPU, or a reboot", "preflight.gpu.modes:recovery"
        ),
        Code("SL113", "compute-mode", "the compute mode of a GPU keeps ranks out", "preflight.gpu.modes:compute_mode"),
        Code("SL114", "mig", "a GPU is divided into MIG instances", "preflight.gpu.modes:mig"),
        Code("SL115", "persistence", "persistence mode is off", "preflight.gpu.modes:persistence"),
        Code(
            "SL116",
            "debug-variables",
            "a variable for debugging is set",
            "preflight.gpu.debug_variables:debug_variables",
        ),
        Code("SL117", "ecc-mode", "a GPU does not correct memory errors", "preflight.gpu.memory_errors:ecc_mode"),
        Code(
            "SL118", "ecc-errors", "a GPU has had uncorrectable memory errors", "preflight.gpu.memory_errors:ecc_errors"
        ),
        Code("SL119", "row-remap", "bad rows of GPU memory are not replaced", "preflight.gpu.memory_errors:row_remap"),
        Code("SL120", "xid", "the driver has logged errors of a GPU", "preflight.gpu.kernel_messages:xid"),
        Code("SL121", "clocks", "the hardware holds back the clocks of a GPU", "preflight.gpu.heat:clocks"),
        Code("SL122", "temperature", "a GPU is too hot", "preflight.gpu.heat:temperature"),
        Code("SL123", "pcie-width", "a GPU has fewer PCIe lanes than its peers", "preflight.gpu.links:pcie_width"),
        Code("SL124", "nvlink", "NVLinks of a GPU are down", "preflight.gpu.links:nvlink"),
        Code("SL125", "p2p", "GPUs cannot access one another's memory over NVLink", "preflight.gpu.links:p2p"),
        Code("SL126", "fabric", "a GPU is not ready in the NVLink fabric", "preflight.gpu.links:fabric"),
        Code("SL127", "gpu-alike", "a GPU of the job is not like the others", "preflight.gpu.peers:alike"),
        Code("SL128", "numa-affinity", "a rank may not run next to its GPU", "preflight.gpu.affinity:numa_affinity"),
        Code("SL130", "ib-port", "an InfiniBand or RoCE port is down or slow", "preflight.network.infiniband:ports"),
        Code("SL131", "gpudirect", "the network cannot reach GPU memory", "preflight.network.gpudirect:gpudirect"),
        Code("SL132", "port-range", "the rendezvous port may be given away", "preflight.network.port_range:port_range"),
        Code("SL133", "dial-out", "the rendezvous endpoint cannot be reached", "preflight.network.reach:reach"),
        Code("SL134", "memlock", "the limit of locked memory is too low", "preflight.node.memlock:memlock"),
        Code(
            "SL135", "pids", "there is no room for threads and processes", "preflight.node.pids:pids", Trait.OF_ONE_RUN
        ),
        Code("SL136", "cpus", "the ranks have too few CPUs", "preflight.node.cpus:cpus"),
        Code("SL137", "governor", "CPUs run at their lowest frequency", "preflight.node.clocks:governor"),
        Code("SL138", "clocksource", "the kernel tells the time slowly", "preflight.node.clocks:clocksource"),
        Code("SL139", "shared-fs", "a network file system does not answer", "preflight.node.shared_fs:shared_fs"),
        Code("SL140", "stuck-processes", "processes are stuck in the kernel", "preflight.node.stuck:stuck"),
        Code("SL150", "gpu-context", "a GPU hangs, dies or fails at work", "preflight.active.computing:gpu_context"),
        Code("SL151", "slow-gpu", "a GPU is slower than its peers", "preflight.active.load:slow_gpu"),
        Code(
            "SL152", "silent-corruption", "a GPU computes wrong results", "preflight.active.computing:silent_corruption"
        ),
        Code(
            "SL153",
            "memory-bandwidth",
            "the memory of a GPU is slower than its peers'",
            "preflight.active.load:memory_bandwidth",
        ),
        Code(
            "SL154",
            "throttled-under-load",
            "a GPU is throttled under load",
            "preflight.active.load:throttled_under_load",
        ),
        Code("SL155", "ecc-rate", "a GPU corrects memory errors all the time", "preflight.active.load:ecc_rate"),
        Code("SL156", "bus-bandwidth", "the GPUs exchange data too slowly", "preflight.active.bandwidth:bus_bandwidth"),
        Code("SL157", "import-time", "torch cannot be imported, or slowly", "preflight.active.import_time:import_time"),
        Code("SL160", "node-missing", "a node did not come, or does not answer", "preflight.between.reach:missing"),
        Code("SL161", "versions-differ", "the nodes have different versions", "preflight.between.agreement:versions"),
        Code(
            "SL162",
            "env-differs",
            "the nodes would give their ranks different environments",
            "preflight.between.agreement:environment",
        ),
        Code(
            "SL163",
            "master-address-differs",
            "the nodes find different machines at the endpoint",
            "preflight.between.agreement:master_address",
        ),
        Code(
            "SL164", "hardware-differs", "the nodes have different HCAs or GPUs", "preflight.between.agreement:hardware"
        ),
        Code("SL165", "clock-skew", "the clock of a node is off", "preflight.between.reach:clocks"),
        Code("SL166", "dial-back", "a node cannot be reached on a high port", "preflight.between.reach:dial_back"),
        Code("SL167", "bad-node", "a node fails or is slow", "preflight.between.pairs:bad_node"),
        Code("SL168", "bad-link", "a link is broken or slow", "preflight.between.pairs:bad_link"),
        Code("SL169", "node-refused", "a node is refused by its checks", "preflight.between.reach:refused"),
        # SL2xx: profiles and environment
        Code("SL201", "profile-missing", "the profile cannot be found or read", "settings.profile:find"),
        Code("SL202", "profile-syntax", "the profile is not valid TOML", "settings.profile:parse_file"),
        Code("SL203", "profile-key", "the profile has an unknown key", "settings.schema:check_key"),
        Code("SL204", "profile-value", "the profile has a value of the wrong type", "settings.schema:check_value"),
        Code("SL205", "profile-cycle", "the profile extends itself", "settings.profile:load"),
        Code("SL206", "shell-wins", "a shell variable beats a profile", "settings.resolve:apply_shell"),
        Code("SL207", "profile-unset", "a profile takes a variable of the shell away", "settings.resolve:drop_unset"),
        Code(
            "SL210",
            "unknown-variable",
            "a variable is not known in its namespace",
            "settings.lint.names:unknown_variable",
        ),
        Code(
            "SL211", "unread-variable", "neither torch nor NCCL reads a variable", "settings.lint.names:unread_variable"
        ),
        Code(
            "SL212",
            "unread-here",
            "the installed torch or NCCL does not read a variable",
            "settings.lint.names:unread_here",
        ),
        Code(
            "SL213",
            "variable-value",
            "a variable has a value that is not read as it was meant",
            "settings.lint.values:variable_value",
        ),
        Code(
            "SL214", "deprecated-variable", "a variable has an old spelling", "settings.lint.names:deprecated_variable"
        ),
        Code(
            "SL215",
            "conflicting-variables",
            "variables contradict one another",
            "settings.lint.pairs:conflicting_variables",
        ),
        Code("SL216", "slow-variable", "a variable costs speed", "settings.lint.cost:slow_variable"),
        Code("SL217", "late-variable", "a variable is set after it was read", "settings.lint.late:late_variable"),
        Code(
            "SL218",
            "dangerous-variable",
            "a variable can hang, crash or fill the run",
            "settings.lint.dangerous:dangerous_variable",
        ),
        Code(
            "SL220",
            "loader-timeout",
            "a DataLoader may wait longer than a collective",
            "settings.lint.timeouts:loader_timeout",
        ),
        Code(
            "SL221",
            "late-hang-limit",
            "the process group's timeout comes before the limit for hangs",
            "settings.lint.timeouts:late_hang_limit",
        ),
        Code(
            "SL222",
            "short-kill-wait",
            "the scheduler kills before the shutdown timeout is over",
            "settings.lint.timeouts:short_kill_wait",
        ),
        Code("SL230", "shared-gpu", "two ranks of a node use the same GPU", "watch.devices:shared_gpu"),
        Code(
            "SL231",
            "visible-devices-changed",
            "the script sets CUDA_VISIBLE_DEVICES again",
            "watch.devices:visible_devices_changed",
        ),
        Code("SL232", "other-device", "set_device does not follow LOCAL_RANK", "watch.devices:other_device"),
        Code("SL290", "signatures", "a file of signatures cannot be used", "evidence.logs.signatures:load"),
        # SL3xx: hangs
        Code(
            "SL301",
            "never-entered",
            "a rank does not come to a collective",
            "diagnosis.hang:never_entered diagnosis.undumped:did_not_dump",
            Trait.MAYBE_GPU,
        ),
        Code(
            "SL302",
            "different-collective",
            "ranks are inside different collectives, and wait for each other",
            "diagnosis.disagree:different_operation diagnosis.memberships:groups_differ diagnosis.tags:tags_differ",
            Trait.DIVERGED,
            Trait.ELSEWHERE,
        ),
        Code(
            "SL303",
            "left-loop",
            "a rank left the loop before its peers",
            "diagnosis.disagree:departed diagnosis.disagree:left_between_groups",
            Trait.DIVERGED,
        ),
        Code("SL304", "stopped", "a rank is stopped", "diagnosis.hang:never_entered"),
        Code("SL305", "gil-held", "native code holds a rank's GIL", "diagnosis.hang:never_entered", Trait.MAYBE_GPU),
        Code(
            "SL306", "uninterruptible", "a rank is stuck in the kernel", "diagnosis.hang:never_entered", Trait.MAYBE_GPU
        ),
        Code("SL307", "loader-stuck", "a rank waits for its DataLoader", "diagnosis.hang:never_entered"),
        Code("SL308", "checkpoint-stuck", "a rank is in a checkpoint", "diagnosis.hang:never_entered", Trait.MAYBE_GPU),
        Code("SL309", "never-initialised", "a rank has not called init_process_group", "diagnosis.hang:never_entered"),
        Code(
            "SL310",
            "all-inside",
            "all ranks are inside the same collective, and it does not end",
            "diagnosis.inside:all_inside",
            Trait.NOBODY,
            Trait.MAYBE_GPU,
        ),
        Code(
            "SL311",
            "deadlock",
            "ranks wait for one another in a circle",
            "diagnosis.disagree:deadlock diagnosis.hubs:nobody_sends diagnosis.polling:polled_for"
            " diagnosis.store_waits:all_ask diagnosis.store_waits:key_missing diagnosis.other_end:held_by_peer"
            " diagnosis.order:enqueued_in_another_order",
            Trait.ELSEWHERE,
        ),
        Code("SL313", "thread-deadlock", "threads of a rank wait for one another", "diagnosis.hang:never_entered"),
        Code(
            "SL314", "unused-parameters", "DDP waits for gradients that a rank does not have", "diagnosis.unused:refine"
        ),
        Code(
            "SL315",
            "does-not-end",
            "a rank has come to the end of its program, and its process goes on",
            "diagnosis.lingering:does_not_end",
            Trait.QUIET,
        ),
        Code("SL316", "all-held", "every rank is held in a file system", "diagnosis.held:all_held", Trait.QUIET),
        Code(
            "SL317",
            "all-idle",
            "every rank stands still, and they wait for one another outside of torch.distributed",
            "diagnosis.idle:all_idle",
            Trait.QUIET,
        ),
        Code(
            "SL318",
            "device-late",
            "a rank's GPU does not complete what its peers have completed",
            "diagnosis.device_late:device_late",
        ),
        Code(
            "SL399",
            "hang-untold",
            "the ranks make no progress and the evidence does not say why",
            "diagnosis.hang:hang_untold",
            Trait.UNKNOWN,
            Trait.NOBODY,
            Trait.MAYBE_GPU,
        ),
        # SL4xx: crashes
        Code("SL401", "exception", "one rank raised an exception", "diagnosis.raised:exception", Trait.OWN_RULE),
        Code(
            "SL402",
            "exception-everywhere",
            "every rank raised the same exception",
            "diagnosis.raised:exception_everywhere",
            Trait.OWN_RULE,
        ),
        Code("SL403", "killed", "a rank was killed by a signal", "diagnosis.crash:killed"),
        Code(
            "SL404",
            "out-of-memory",
            "the kernel killed a rank for memory, or gave it none",
            "diagnosis.crash:out_of_memory",
            Trait.EXCEPTION,
        ),
        Code("SL405", "segfault", "a rank crashed in native code", "diagnosis.crash:native_crash", Trait.MAYBE_GPU),
        Code("SL406", "abort", "a rank aborted", "diagnosis.crash:native_crash", Trait.EFFECT, Trait.MAYBE_GPU),
        Code(
            "SL407", "silent-exit", "a rank exited with an error code and no exception", "diagnosis.exits:silent_exit"
        ),
        Code("SL408", "early-exit", "a rank exited with 0 while its peers waited", "diagnosis.early:early_exit"),
        Code(
            "SL409",
            "import-error",
            "a rank could not import or parse the program",
            "diagnosis.raised:exception",
            Trait.OWN_RULE,
        ),
        Code(
            "SL410",
            "size-mismatch",
            "ranks brought different tensors to one collective",
            "diagnosis.mismatch:size_mismatch",
            Trait.MISFIT,
            Trait.OWN_RULE,
        ),
        Code(
            "SL411",
            "operation-mismatch",
            "ranks called different collectives at the same point",
            "diagnosis.mismatch:operation_mismatch diagnosis.mismatch:line_mismatch",
            Trait.MISFIT,
            Trait.OWN_RULE,
        ),
        Code(
            "SL412",
            "connection-lost",
            "ranks lost their connections and no rank failed first",
            "diagnosis.crash:connection_lost",
            Trait.NOBODY,
            Trait.EFFECT,
            Trait.MAYBE_GPU,
        ),
        Code(
            "SL413",
            "torn-down",
            "a rank aborted while shutting down, after its program had ended",
            "diagnosis.crash:torn_down",
        ),
        Code(
            "SL414",
            "collective-timeout",
            "a collective timed out on ranks that waited for another",
            "diagnosis.timeouts:collective_timeout",
            Trait.NOBODY,
            Trait.MAYBE_GPU,
        ),
        Code(
            "SL415",
            "exit-everywhere",
            "every rank exited with an error code and no exception",
            "diagnosis.exits:exit_everywhere",
        ),
        Code(
            "SL420",
            "gpu-memory",
            "the memory of a GPU is full",
            "diagnosis.logs.crashes:resource_exhausted",
            Trait.EXCEPTION,
        ),
        Code(
            "SL421", "shared-memory", "/dev/shm is full", "diagnosis.logs.crashes:resource_exhausted", Trait.EXCEPTION
        ),
        Code(
            "SL422",
            "open-files",
            "a rank has too many files open",
            "diagnosis.logs.crashes:resource_exhausted",
            Trait.EXCEPTION,
        ),
        Code("SL423", "disk-full", "a disk is full", "diagnosis.logs.crashes:resource_exhausted", Trait.EXCEPTION),
        Code(
            "SL424", "address-in-use", "a port is taken", "diagnosis.logs.crashes:resource_exhausted", Trait.EXCEPTION
        ),
        Code(
            "SL425",
            "device-ordinal",
            "a rank asks for a GPU that it cannot see",
            "diagnosis.logs.crashes:resource_exhausted",
            Trait.EXCEPTION,
        ),
        Code(
            "SL426",
            "nccl-error",
            "a call of NCCL failed",
            "diagnosis.logs.crashes:device_failed",
            Trait.MAYBE_GPU,
            Trait.EXCEPTION,
            Trait.MAYBE_PEER,
        ),
        Code(
            "SL427",
            "gpu-kernel",
            "a kernel on a GPU failed",
            "diagnosis.logs.crashes:device_failed",
            Trait.MAYBE_GPU,
            Trait.EXCEPTION,
        ),
        Code(
            "SL428",
            "gpu-fault",
            "the driver logged a fault of a GPU",
            "diagnosis.logs.crashes:device_failed",
            Trait.EXCEPTION,
            Trait.INFRASTRUCTURE,
        ),
        Code(
            "SL429",
            "loader-worker",
            "a DataLoader worker died",
            "diagnosis.logs.crashes:resource_exhausted",
            Trait.EXCEPTION,
        ),
        Code("SL498", "nothing-found", "nothing wrong was found in the logs", "diagnosis.logs:nothing_found"),
        Code(
            "SL499",
            "cannot-tell",
            "ranks failed and the evidence does not say who was first",
            "diagnosis.crash:cannot_tell",
            Trait.UNKNOWN,
            Trait.NOBODY,
            Trait.EFFECT,
            Trait.MAYBE_GPU,
        ),
        # SL5xx: slow
        Code("SL501", "slow", "ranks waited, and progress returned", "watch.hang:slow"),
        Code(
            "SL502",
            "progress",
            "the ranks of a job make progress",
            "diagnosis.from_stacks:at_work",
            Trait.NOTHING_WRONG,
        ),
        Code("SL503", "straggler", "a rank is slower than those that wait for it", "diagnosis.slow:straggler"),
        Code("SL504", "slower", "all ranks are slower than they were", "diagnosis.slow:slower"),
        Code("SL505", "below-expectation", "slow from the first steps on", "diagnosis.slow:below_expectation"),
        Code("SL506", "loader-bound", "ranks mostly wait for their DataLoader", "diagnosis.slow:loader_bound"),
        # SL6xx: infrastructure
        Code("SL601", "agent-lost", "the torch elastic agent ended unexpectedly", "diagnosis.infra:agent_lost"),
        Code("SL602", "rendezvous", "the rendezvous failed", "diagnosis.infra:rendezvous_failed", Trait.INFRASTRUCTURE),
        Code(
            "SL603", "scheduler", "the scheduler ended the job", "diagnosis.logs:scheduler_ended", Trait.INFRASTRUCTURE
        ),
        # SL9xx: our own
        Code("SL901", "internal", "safelaunch itself failed", "cli.main:internal_error"),
        Code("SL902", "degraded", "a part of the watching is missing", "launch.supervisor:Supervisor.on_degraded"),
        Code("SL903", "warm-start", "a change came too late for a warm start", "watch.cold_starts:too_late"),
    )
}


def has(code: str, trait: Trait) -> bool:
    """Whether this holds of a code; of one that is not known, as a newer version's, nothing does."""
    entry = CATALOGUE.get(code)
    return entry is not None and trait in entry.traits


def all_with(trait: Trait) -> tuple[str, ...]:
    """The codes of which this holds."""
    return tuple(code for code, entry in CATALOGUE.items() if trait in entry.traits)

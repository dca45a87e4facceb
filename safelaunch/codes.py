"""The SL catalogue: every code that safelaunch can print, with its title and where its text lives.

A code once shipped keeps its meaning. `safelaunch explain CODE` prints the docstring found at `text`
(`module:function`), so that the explanation cannot drift from the code that concludes it.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Code:
    """One entry: `code`, a machine-readable `slug`, a `title` of one line, and where its text lives."""

    code: str
    slug: str
    title: str
    text: str


CATALOGUE: dict[str, Code] = {
    entry.code: entry
    for entry in (
        # SL0xx: usage
        Code("SL001", "usage", "the command line cannot be understood", "safelaunch.settings.options:parse"),
        Code("SL002", "script", "the training script cannot be run", "safelaunch.launch.plan:check_script"),
        Code("SL003", "run-dir", "the run directory cannot be used", "safelaunch.launch.run_dir:create"),
        Code("SL004", "run-id", "the run id cannot name a folder", "safelaunch.launch.run_dir:check_run_id"),
        # SL1xx: preflight
        Code("SL101", "nofile", "the limit of open files is too low", "safelaunch.preflight.node.limits:open_files"),
        Code("SL102", "port-in-use", "the rendezvous port is taken", "safelaunch.preflight.network.port:port"),
        Code("SL103", "name-resolution", "a host name does not resolve", "safelaunch.preflight.network.names:names"),
        Code("SL104", "shm", "/dev/shm is too small", "safelaunch.preflight.node.limits:shared_memory"),
        Code("SL105", "disk", "a disk that the job writes to is full", "safelaunch.preflight.node.disk:disk"),
        Code("SL106", "memory-limit", "the memory limit is too low", "safelaunch.preflight.node.limits:memory"),
        Code("SL107", "gpu-count", "fewer GPUs are visible than ranks need", "safelaunch.preflight.gpu.count:count"),
        Code("SL108", "gpu-driver", "the GPU driver does not answer", "safelaunch.preflight.gpu.driver:driver"),
        Code("SL109", "gpu-busy", "another process holds a GPU", "safelaunch.preflight.gpu.occupied:occupied"),
        Code(
            "SL110",
            "leftover-run",
            "processes of an earlier run are alive",
            "safelaunch.preflight.node.leftovers:earlier_runs",
        ),
        Code(
            "SL111",
            "collective",
            "a real collective failed on this node",
            "safelaunch.preflight.active.collective:collective",
        ),
        Code(
            "SL112",
            "gpu-recovery",
            "the driver asks for a reset of a GPU, or a reboot",
            "safelaunch.preflight.gpu.modes:recovery",
        ),
        Code(
            "SL113",
            "compute-mode",
            "the compute mode of a GPU keeps ranks out",
            "safelaunch.preflight.gpu.modes:compute_mode",
        ),
        Code("SL114", "mig", "a GPU is divided into MIG instances", "safelaunch.preflight.gpu.modes:mig"),
        Code("SL115", "persistence", "persistence mode is off", "safelaunch.preflight.gpu.modes:persistence"),
        Code(
            "SL116",
            "debug-variables",
            "a variable for debugging is set",
            "safelaunch.preflight.gpu.debug_variables:debug_variables",
        ),
        Code(
            "SL117",
            "ecc-mode",
            "a GPU does not correct memory errors",
            "safelaunch.preflight.gpu.memory_errors:ecc_mode",
        ),
        Code(
            "SL118",
            "ecc-errors",
            "a GPU has had uncorrectable memory errors",
            "safelaunch.preflight.gpu.memory_errors:ecc_errors",
        ),
        Code(
            "SL119",
            "row-remap",
            "bad rows of GPU memory are not replaced",
            "safelaunch.preflight.gpu.memory_errors:row_remap",
        ),
        Code("SL120", "xid", "the driver has logged errors of a GPU", "safelaunch.preflight.gpu.kernel_messages:xid"),
        Code("SL121", "clocks", "the hardware holds back the clocks of a GPU", "safelaunch.preflight.gpu.heat:clocks"),
        Code("SL122", "temperature", "a GPU is too hot", "safelaunch.preflight.gpu.heat:temperature"),
        Code(
            "SL123",
            "pcie-width",
            "a GPU has fewer PCIe lanes than its peers",
            "safelaunch.preflight.gpu.links:pcie_width",
        ),
        Code("SL124", "nvlink", "NVLinks of a GPU are down", "safelaunch.preflight.gpu.links:nvlink"),
        Code(
            "SL125", "p2p", "GPUs cannot access one another's memory over NVLink", "safelaunch.preflight.gpu.links:p2p"
        ),
        Code("SL126", "fabric", "a GPU is not ready in the NVLink fabric", "safelaunch.preflight.gpu.links:fabric"),
        Code("SL127", "gpu-alike", "a GPU of the job is not like the others", "safelaunch.preflight.gpu.peers:alike"),
        Code(
            "SL128",
            "numa-affinity",
            "a rank may not run next to its GPU",
            "safelaunch.preflight.gpu.affinity:numa_affinity",
        ),
        Code(
            "SL130",
            "ib-port",
            "an InfiniBand or RoCE port is down or slow",
            "safelaunch.preflight.network.infiniband:ports",
        ),
        Code(
            "SL131",
            "gpudirect",
            "the network cannot reach GPU memory",
            "safelaunch.preflight.network.gpudirect:gpudirect",
        ),
        Code(
            "SL132",
            "port-range",
            "the rendezvous port may be given away",
            "safelaunch.preflight.network.port_range:port_range",
        ),
        Code(
            "SL133",
            "dial-out",
            "the rendezvous endpoint cannot be reached",
            "safelaunch.preflight.network.reach:reach",
        ),
        Code("SL134", "memlock", "the limit of locked memory is too low", "safelaunch.preflight.node.memlock:memlock"),
        Code("SL135", "pids", "there is no room for threads and processes", "safelaunch.preflight.node.pids:pids"),
        Code("SL136", "cpus", "the ranks have too few CPUs", "safelaunch.preflight.node.cpus:cpus"),
        Code("SL137", "governor", "CPUs run at their lowest frequency", "safelaunch.preflight.node.clocks:governor"),
        Code(
            "SL138",
            "clocksource",
            "the kernel tells the time slowly",
            "safelaunch.preflight.node.clocks:clocksource",
        ),
        Code(
            "SL139",
            "shared-fs",
            "a network file system does not answer",
            "safelaunch.preflight.node.shared_fs:shared_fs",
        ),
        Code("SL140", "stuck-processes", "processes are stuck in the kernel", "safelaunch.preflight.node.stuck:stuck"),
        Code(
            "SL150",
            "gpu-context",
            "a GPU hangs, dies or fails at work",
            "safelaunch.preflight.active.computing:gpu_context",
        ),
        Code("SL151", "slow-gpu", "a GPU is slower than its peers", "safelaunch.preflight.active.load:slow_gpu"),
        Code(
            "SL152",
            "silent-corruption",
            "a GPU computes wrong results",
            "safelaunch.preflight.active.computing:silent_corruption",
        ),
        Code(
            "SL153",
            "memory-bandwidth",
            "the memory of a GPU is slower than its peers'",
            "safelaunch.preflight.active.load:memory_bandwidth",
        ),
        Code(
            "SL154",
            "throttled-under-load",
            "a GPU is throttled under load",
            "safelaunch.preflight.active.load:throttled_under_load",
        ),
        Code(
            "SL155",
            "ecc-rate",
            "a GPU corrects memory errors all the time",
            "safelaunch.preflight.active.load:ecc_rate",
        ),
        Code(
            "SL156",
            "bus-bandwidth",
            "the GPUs exchange data too slowly",
            "safelaunch.preflight.active.bandwidth:bus_bandwidth",
        ),
        Code(
            "SL157",
            "import-time",
            "torch cannot be imported, or slowly",
            "safelaunch.preflight.active.import_time:import_time",
        ),
        Code(
            "SL160",
            "node-missing",
            "a node did not come, or does not answer",
            "safelaunch.preflight.between.reach:missing",
        ),
        Code(
            "SL161",
            "versions-differ",
            "the nodes have different versions",
            "safelaunch.preflight.between.agreement:versions",
        ),
        Code(
            "SL162",
            "env-differs",
            "the nodes would give their ranks different environments",
            "safelaunch.preflight.between.agreement:environment",
        ),
        Code(
            "SL163",
            "master-address-differs",
            "the nodes find different machines at the endpoint",
            "safelaunch.preflight.between.agreement:master_address",
        ),
        Code(
            "SL164",
            "hardware-differs",
            "the nodes have different HCAs or GPUs",
            "safelaunch.preflight.between.agreement:hardware",
        ),
        Code("SL165", "clock-skew", "the clock of a node is off", "safelaunch.preflight.between.reach:clocks"),
        Code(
            "SL166",
            "dial-back",
            "a node cannot be reached on a high port",
            "safelaunch.preflight.between.reach:dial_back",
        ),
        Code("SL167", "bad-node", "a node fails or is slow", "safelaunch.preflight.between.pairs:bad_node"),
        Code("SL168", "bad-link", "a link is broken or slow", "safelaunch.preflight.between.pairs:bad_link"),
        Code("SL169", "node-refused", "a node is refused by its checks", "safelaunch.preflight.between.reach:refused"),
        # SL2xx: profiles and environment
        Code("SL201", "profile-missing", "the profile cannot be found or read", "safelaunch.settings.profile:find"),
        Code("SL202", "profile-syntax", "the profile is not valid TOML", "safelaunch.settings.profile:parse_file"),
        Code("SL203", "profile-key", "the profile has an unknown key", "safelaunch.settings.schema:check_key"),
        Code(
            "SL204",
            "profile-value",
            "the profile has a value of the wrong type",
            "safelaunch.settings.schema:check_value",
        ),
        Code("SL205", "profile-cycle", "the profile extends itself", "safelaunch.settings.profile:load"),
        Code("SL206", "shell-wins", "a shell variable beats a profile", "safelaunch.settings.resolve:apply_shell"),
        # SL3xx: hangs
        Code(
            "SL301", "never-entered", "a rank does not come to a collective", "safelaunch.diagnosis.hang:never_entered"
        ),
        Code(
            "SL302",
            "different-collective",
            "ranks are inside different collectives, and wait for each other",
            "safelaunch.diagnosis.disagree:different_operation",
        ),
        Code("SL303", "left-loop", "a rank left the loop before its peers", "safelaunch.diagnosis.disagree:departed"),
        Code("SL304", "stopped", "a rank is stopped", "safelaunch.diagnosis.hang:never_entered"),
        Code("SL305", "gil-held", "native code holds a rank's GIL", "safelaunch.diagnosis.hang:never_entered"),
        Code("SL306", "uninterruptible", "a rank is stuck in the kernel", "safelaunch.diagnosis.hang:never_entered"),
        Code("SL307", "loader-stuck", "a rank waits for its DataLoader", "safelaunch.diagnosis.hang:never_entered"),
        Code("SL308", "checkpoint-stuck", "a rank is in a checkpoint", "safelaunch.diagnosis.hang:never_entered"),
        Code(
            "SL309",
            "never-initialised",
            "a rank has not called init_process_group",
            "safelaunch.diagnosis.hang:never_entered",
        ),
        Code(
            "SL310",
            "all-inside",
            "all ranks are inside the same collective, and it does not end",
            "safelaunch.diagnosis.hang:all_inside",
        ),
        Code("SL311", "deadlock", "ranks wait for one another in a circle", "safelaunch.diagnosis.disagree:deadlock"),
        Code(
            "SL399",
            "hang-untold",
            "the ranks make no progress and the evidence does not say why",
            "safelaunch.diagnosis.hang:hang_untold",
        ),
        # SL4xx: crashes
        Code("SL401", "exception", "one rank raised an exception", "safelaunch.diagnosis.crash:exception"),
        Code(
            "SL402",
            "exception-everywhere",
            "every rank raised the same exception",
            "safelaunch.diagnosis.crash:exception_everywhere",
        ),
        Code("SL403", "killed", "a rank was killed by a signal from outside", "safelaunch.diagnosis.crash:killed"),
        Code(
            "SL404", "out-of-memory", "the kernel killed a rank for memory", "safelaunch.diagnosis.crash:out_of_memory"
        ),
        Code("SL405", "segfault", "a rank crashed in native code", "safelaunch.diagnosis.crash:native_crash"),
        Code("SL406", "abort", "a rank aborted", "safelaunch.diagnosis.crash:native_crash"),
        Code(
            "SL407",
            "silent-exit",
            "a rank exited with an error code and no exception",
            "safelaunch.diagnosis.crash:silent_exit",
        ),
        Code(
            "SL408",
            "early-exit",
            "a rank exited with 0 while its peers waited",
            "safelaunch.diagnosis.early:early_exit",
        ),
        Code(
            "SL409",
            "import-error",
            "a rank could not import or parse the program",
            "safelaunch.diagnosis.crash:exception",
        ),
        Code(
            "SL410",
            "size-mismatch",
            "ranks brought different tensors to one collective",
            "safelaunch.diagnosis.mismatch:size_mismatch",
        ),
        Code(
            "SL411",
            "operation-mismatch",
            "ranks called different collectives at the same point",
            "safelaunch.diagnosis.mismatch:operation_mismatch",
        ),
        Code(
            "SL412",
            "connection-lost",
            "ranks lost their connections and no rank failed first",
            "safelaunch.diagnosis.crash:connection_lost",
        ),
        Code(
            "SL413",
            "torn-down",
            "a rank aborted while shutting down, after its program had ended",
            "safelaunch.diagnosis.crash:torn_down",
        ),
        Code(
            "SL499",
            "cannot-tell",
            "ranks failed and the evidence does not say who was first",
            "safelaunch.diagnosis.crash:cannot_tell",
        ),
        # SL5xx: slow
        Code("SL501", "slow", "ranks waited, and progress returned", "safelaunch.watch.hang:slow"),
        # SL6xx: infrastructure
        Code(
            "SL601", "agent-lost", "the torch elastic agent ended unexpectedly", "safelaunch.diagnosis.infra:agent_lost"
        ),
        Code("SL602", "rendezvous", "the rendezvous failed", "safelaunch.diagnosis.infra:rendezvous_failed"),
        # SL9xx: our own
        Code("SL901", "internal", "safelaunch itself failed", "safelaunch.cli.main:internal_error"),
        Code(
            "SL902",
            "degraded",
            "a part of the watching is missing",
            "safelaunch.launch.supervisor:Supervisor.on_degraded",
        ),
    )
}

"""Checks of a node before a launch: what each is called, when it runs, and its deadline, which the runner enforces.

They stand in the folders gpu, network and node; in active are those that put the devices to work (`--full`), in between
those of several nodes. What they know of the machine they have from machine."""

from __future__ import annotations

from safelaunch.preflight.active.bandwidth import bus_bandwidth
from safelaunch.preflight.active.collective import collective
from safelaunch.preflight.active.computing import gpu_context, silent_corruption
from safelaunch.preflight.active.import_time import import_time
from safelaunch.preflight.active.load import (
    ecc_rate,
    memory_bandwidth,
    slow_gpu,
    throttled_under_load,
)
from safelaunch.preflight.check import Check
from safelaunch.preflight.gpu.affinity import numa_affinity
from safelaunch.preflight.gpu.count import count
from safelaunch.preflight.gpu.debug_variables import debug_variables
from safelaunch.preflight.gpu.driver import driver
from safelaunch.preflight.gpu.heat import clocks, temperature
from safelaunch.preflight.gpu.kernel_messages import xid
from safelaunch.preflight.gpu.links import fabric, nvlink, p2p, pcie_width
from safelaunch.preflight.gpu.memory_errors import ecc_errors, ecc_mode, row_remap
from safelaunch.preflight.gpu.modes import compute_mode, mig, persistence, recovery
from safelaunch.preflight.gpu.occupied import occupied
from safelaunch.preflight.gpu.peers import alike
from safelaunch.preflight.network.gpudirect import gpudirect
from safelaunch.preflight.network.infiniband import ports
from safelaunch.preflight.network.names import names
from safelaunch.preflight.network.port import port
from safelaunch.preflight.network.port_range import port_range
from safelaunch.preflight.network.reach import reach
from safelaunch.preflight.node.clocks import clocksource, governor
from safelaunch.preflight.node.cpus import cpus
from safelaunch.preflight.node.disk import disk
from safelaunch.preflight.node.leftovers import earlier_runs
from safelaunch.preflight.node.limits import memory, open_files, shared_memory
from safelaunch.preflight.node.listed import listed
from safelaunch.preflight.node.memlock import memlock
from safelaunch.preflight.node.pids import pids
from safelaunch.preflight.node.shared_fs import shared_fs
from safelaunch.preflight.node.stuck import stuck

CHECKS: tuple[Check, ...] = (
    Check("SL141", "listed-node", "list", listed),
    Check("SL108", "gpu-driver", "gpu", driver, late="error"),
    Check("SL107", "gpu-count", "gpu", count),
    Check("SL109", "gpu-busy", "gpu", occupied),
    Check("SL112", "gpu-recovery", "gpu", recovery),
    Check("SL113", "compute-mode", "gpu", compute_mode),
    Check("SL114", "mig", "gpu", mig),
    Check("SL115", "persistence", "gpu", persistence),
    Check("SL116", "debug-variables", "gpu", debug_variables),
    Check("SL117", "ecc-mode", "gpu", ecc_mode),
    Check("SL118", "ecc-errors", "gpu", ecc_errors),
    Check("SL119", "row-remap", "gpu", row_remap),
    Check("SL120", "xid", "gpu", xid),
    Check("SL121", "clocks", "gpu", clocks),
    Check("SL122", "temperature", "gpu", temperature),
    Check("SL123", "pcie-width", "gpu", pcie_width),
    Check("SL124", "nvlink", "gpu", nvlink),
    Check("SL125", "p2p", "gpu", p2p),
    Check("SL126", "fabric", "gpu", fabric),
    Check("SL127", "gpu-alike", "gpu", alike),
    Check("SL128", "numa-affinity", "gpu", numa_affinity),
    Check("SL110", "leftover-run", "processes", earlier_runs),
    Check("SL140", "stuck-processes", "processes", stuck),
    Check("SL102", "port-in-use", "network", port),
    Check("SL103", "name-resolution", "network", names, deadline_s=40.0),
    Check("SL132", "port-range", "network", port_range, deadline_s=20.0),
    Check("SL133", "dial-out", "network", reach, deadline_s=40.0),
    Check("SL130", "ib-port", "network", ports),
    Check("SL131", "gpudirect", "network", gpudirect),
    Check("SL101", "nofile", "limits", open_files),
    Check("SL104", "shm", "limits", shared_memory),
    Check("SL139", "shared-fs", "storage", shared_fs, deadline_s=25.0, late="error"),
    Check("SL105", "disk", "storage", disk, deadline_s=40.0),
    Check("SL106", "memory-limit", "limits", memory),
    Check("SL134", "memlock", "limits", memlock),
    Check("SL135", "pids", "limits", pids),
    Check("SL136", "cpus", "limits", cpus),
    Check("SL137", "governor", "limits", governor),
    Check("SL138", "clocksource", "limits", clocksource),
    Check("SL150", "gpu-context", "compute", gpu_context, full_only=True, deadline_s=110.0),
    Check("SL151", "slow-gpu", "compute", slow_gpu, full_only=True, deadline_s=110.0),
    Check("SL152", "silent-corruption", "compute", silent_corruption, full_only=True, deadline_s=110.0),
    Check("SL153", "memory-bandwidth", "compute", memory_bandwidth, full_only=True, deadline_s=110.0),
    Check("SL154", "throttled-under-load", "compute", throttled_under_load, full_only=True, deadline_s=110.0),
    Check("SL155", "ecc-rate", "compute", ecc_rate, full_only=True, deadline_s=110.0),
    Check("SL157", "import-time", "compute", import_time, full_only=True, deadline_s=110.0),
    Check("SL111", "collective", "collective", collective, full_only=True, stage=1, deadline_s=140.0),
    Check("SL156", "bus-bandwidth", "collective", bus_bandwidth, full_only=True, stage=1, deadline_s=140.0),
)

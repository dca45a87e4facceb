"""The numbers from which a finding of the preflight counts, each with its source. A profile may set every one of them
in `[preflight.thresholds]`."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Threshold:
    """A number, its unit (empty for a share), what it decides, and where it comes from."""

    value: float
    unit: str
    meaning: str
    source: str


THRESHOLDS: dict[str, Threshold] = {
    "clock_skew": Threshold(
        1.0,
        "s",
        "difference of a node's clock from the other nodes' from which SL165 warns",
        "an estimate: NTP keeps clocks within milliseconds, and logs cannot be put in order beyond it",
    ),
    "pair_slow": Threshold(
        0.8,
        "",
        "share of the median of all nodes below which SL167 and SL168 warn of a speed",
        "an estimate: microsoft/superbench calls 5 % under its baseline defective; this leaves room for other jobs",
    ),
    "pair_slow_error": Threshold(
        0.5,
        "",
        "share of the median of all nodes below which SL167 and SL168 refuse",
        "intelligent-machine-learning/dlrover, rdzv_manager.py: a straggler takes twice the median",
    ),
    "pair_bandwidth": Threshold(
        10e6,
        "B/s",
        "bus bandwidth of all_reduce between two nodes below which SL168 warns where no pair is faster",
        "an estimate: 100 Mbit/s Ethernet",
    ),
    "shm_per_rank": Threshold(
        128 * MIB,
        "bytes",
        "free space in /dev/shm for each rank below which SL104 warns",
        "NVIDIA NCCL user guide, troubleshooting, Docker: --shm-size=1g for eight GPUs",
    ),
    "shm_least": Threshold(
        0,
        "bytes",
        "free space in /dev/shm below which SL104 refuses; 0 refuses none",
        "no source: ranks on CPUs that load their data themselves use none of it, so only a profile can know",
    ),
    "disk_wanted": Threshold(
        GIB, "bytes", "free space for the run directory below which SL105 warns", "leptonai/gpud warns below 500 MB"
    ),
    "disk_least": Threshold(
        0,
        "bytes",
        "free space below which SL105 refuses a run directory; 0 refuses none",
        "no source: what a job writes only a profile can know",
    ),
    "temporary_wanted": Threshold(
        100 * MIB, "bytes", "free space for temporary files below which SL105 warns", "an estimate"
    ),
    "temporary_least": Threshold(
        0,
        "bytes",
        "free space for temporary files below which SL105 refuses; 0 refuses none",
        "no source: many jobs write none",
    ),
    "inodes_wanted": Threshold(10_000, "inodes", "free inodes below which SL105 warns", "an estimate"),
    "inodes_least": Threshold(
        0,
        "inodes",
        "free inodes below which SL105 refuses; 0 refuses none",
        "no source: what a job writes is not known",
    ),
    "memory_least": Threshold(
        0,
        "bytes",
        "memory limit for each rank below which SL106 refuses; 0 refuses none",
        "no source: ranks share libraries, and memory may be swapped",
    ),
    "memory_per_rank": Threshold(
        GIB,
        "bytes",
        "available memory for each rank below which SL106 warns",
        "an estimate: a small model with its loader workers, or one CUDA context",
    ),
    "memlock_wanted": Threshold(
        GIB,
        "bytes",
        "limit of locked memory below which SL134 warns",
        "an estimate: NCCL locks tens of MiB for each peer; a limit that is set in earnest is far higher",
    ),
    "memlock_least": Threshold(
        16 * MIB,
        "bytes",
        "limit of locked memory below which SL134 refuses",
        "NCCL's buffers of one connection (NCCL_BUFFSIZE, 4 MiB) in both directions of one ring do not fit",
    ),
    "processes_used": Threshold(
        0.80, "", "share of a limit of processes in use from which SL135 warns", "leptonai/gpud, components/os"
    ),
    "cpu_oversubscription": Threshold(
        1.0,
        "",
        "threads of OMP_NUM_THREADS for each CPU above which SL136 warns",
        "torchrun sets OMP_NUM_THREADS=1 to avoid just that",
    ),
    "ranks_per_cpu": Threshold(
        2.0, "", "ranks without GPU for each CPU above which SL136 says so", "an estimate: trying things out is normal"
    ),
    "directory_slow_s": Threshold(
        3.0,
        "s",
        "time for looking at a directory from which SL139 warns",
        "an estimate: healthy ones take milliseconds",
    ),
    "stuck_s": Threshold(
        3.0,
        "s",
        "time without a single step in uninterruptible sleep from which SL140 counts a process",
        "an estimate: no healthy disk takes as long for one request",
    ),
    "zombies": Threshold(
        1000, "processes", "zombies from which SL140 warns", "leptonai/gpud: degraded from 1000, unhealthy from 2000"
    ),
    "slow_gpu": Threshold(
        0.90,
        "",
        "share of its peers' median below which SL151 warns of a GPU's GEMM",
        "an estimate; see superbenchmark",
    ),
    "very_slow_gpu": Threshold(
        0.50,
        "",
        "share of its peers' median below which SL151 refuses",
        "intelligent-machine-learning/dlrover: a straggler takes twice the median time",
    ),
    "slow_memory": Threshold(
        0.90, "", "share of its peers' median below which SL153 warns of a GPU's memory bandwidth", "an estimate"
    ),
    "very_slow_memory": Threshold(
        0.50, "", "share of its peers' median below which SL153 refuses", "an estimate, as for very_slow_gpu"
    ),
    "throttled_share": Threshold(
        0.10,
        "",
        "share of samples under load above which a clock event reason counts for SL154",
        "an estimate: a single sample may be the start of the load",
    ),
    "corrected_ecc_rate": Threshold(
        100.0,
        "1/s",
        "corrected ECC errors a second under load above which SL155 warns",
        "an estimate: NVIDIA/DCGM issue 313 saw 17,700, and healthy GPUs have some in a month",
    ),
    "bus_bandwidth_low": Threshold(
        0.85, "", "share of the known bus bandwidth below which SL156 warns", "an estimate: NCCL versions differ by 5 %"
    ),
    "bus_bandwidth_broken": Threshold(
        0.50, "", "share of the known bus bandwidth below which SL156 refuses", "an estimate"
    ),
    "import_torch": Threshold(
        30.0,
        "s",
        "time of `import torch` above which SL157 warns",
        "an estimate: 1 to 2 s from a local disk (measured)",
    ),
    "nvml_deadline": Threshold(
        10.0,
        "s",
        "time after which an NVML that has not answered counts as hanging (SL108)",
        "NVIDIA/DCGM issue 313 saw calls of over 45 s; healthy ones take 0.1 s, without persistence mode seconds",
    ),
    "gpu_ecc_volatile": Threshold(
        0,
        "errors",
        "uncorrectable errors since the driver was loaded above which SL118 refuses",
        "NVIDIA/DCGM, dcgm_errors.c (volatile double-bit errors: isolate); imbue-ai/cluster-health, health_checks.py",
    ),
    "gpu_ecc_sram": Threshold(
        4,
        "errors",
        "uncorrectable SRAM errors in a GPU's life above which SL118 warns",
        "stas00/ml-engineering, compute/accelerator/nvidia/debug.md: more than 4 are reason for a replacement",
    ),
    "gpu_remapped_rows": Threshold(
        512,
        "rows",
        "rows remapped after uncorrectable errors from which SL119 refuses",
        "NVIDIA/DCGM and Azure/azurehpc-health-checks",
    ),
    "gpu_xid_recent": Threshold(
        7200.0,
        "s",
        "age up to which SL120 takes an Xid message in earnest: older errors are warnings, older warnings are notes",
        "Azure/azurehpc-health-checks, azure_gpu_xid.nhc looks back 2 hours",
    ),
    "gpu_temperature_margin": Threshold(
        5,
        "C",
        "degrees below a GPU's slowdown temperature from which SL122 warns",
        "an estimate; leptonai/gpud calls a GPU degraded above the slowdown temperature, which is an error here",
    ),
    "gpu_nvlinks": Threshold(
        0,
        "links",
        "active NVLinks of each GPU below which SL124 warns; 0 asks for none",
        "no source: H100 has 18, H100 NVL 12 (Azure/azurehpc-health-checks issue 162), so only a profile can know",
    ),
    "gpu_memory_difference": Threshold(
        0.02,
        "",
        "share by which the memory of a GPU may differ from its peers' before SL127 warns",
        "an estimate: what the driver keeps for itself differs by some MiB",
    ),
    "gpu_memory_in_use": Threshold(
        0.05,
        "",
        "share of a GPU's memory in use from which SL109 warns",
        "an estimate: it leaves desktops and idle contexts in peace",
    ),
    "gpu_memory_occupied": Threshold(
        0.30,
        "",
        "share of a GPU's memory in use from which SL109 refuses",
        "intelligent-machine-learning/dlrover, dlrover/trainer/torch/node_check",
    ),
}

"""Check that GPUs and network devices can reach each other's memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch import procfs
from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine import infiniband
from safelaunch.preflight.machine.host import Host

# Kernel modules that let an InfiniBand or RoCE device reach GPU memory: NVIDIA's own, and its predecessor.
MODULES = ("nvidia_peermem", "nv_peer_mem")
# The first Linux with dma-buf in its RDMA subsystem (ib_umem_dmabuf); NCCL uses it from 2.13 on (NCCL user guide,
# NCCL_DMABUF_ENABLE).
DMABUF_KERNEL = (5, 12)


def gpudirect(host: Host) -> Iterator[Finding]:
    """GPUs and InfiniBand are there, but no way for one to reach the other's memory (GPUDirect RDMA).

    NCCL then copies everything that goes to other nodes through main memory, which costs a large part of the
    bandwidth, and says so only in its debug output.

    How it is concluded: there is a way where the module nvidia_peermem (or nv_peer_mem) is loaded (/proc/modules), or
    by dma-buf: Linux 5.12 or newer and NVIDIA's open kernel module (/proc/driver/nvidia/version). Only jobs on GPUs of
    several nodes with a port that is up are looked at, and no GeForce, which does not have it. NCCL_NET_GDR_LEVEL=LOC
    says that it is not wanted. imbue-ai/cluster-health checks for the module in the same way.

    What to do: as root, `modprobe nvidia-peermem` (and /etc/modules-load.d for the next boot), or use NVIDIA's open
    kernel module.
    """
    why_not = _not_for(host)
    if why_not:
        yield skipped("SL131", why_not)
        return
    modules = host.root.text("/proc/modules")
    loaded = [line.split()[0] for line in procfs.lines(modules) if line.split()[0] in MODULES]
    kernel = host.root.text("/proc/sys/kernel/osrelease")
    driver = host.root.text("/proc/driver/nvidia/version")
    numbers = tuple(map(int, re.findall(r"\d+", kernel)[:2]))
    is_open = "Open Kernel Module" in driver
    if loaded:
        yield ok("SL131", f"{loaded[0]} is loaded")
    elif is_open and numbers >= DMABUF_KERNEL:
        yield ok("SL131", f"by dma-buf: NVIDIA's open kernel module on Linux {kernel}")
    elif not (modules and driver and numbers):
        yield unchecked("SL131", "GPUDirect RDMA could not be told", "/proc does not show kernel modules and driver")
    else:
        yield Finding(
            code="SL131",
            severity="warning",
            summary="no GPUDirect RDMA: what goes to other nodes is copied through main memory",
            because=(
                "the kernel module nvidia_peermem is not loaded",
                f"no dma-buf in its place: Linux {kernel} is older than 5.12"
                if is_open
                else "no dma-buf in its place: the driver is not NVIDIA's open kernel module",
            ),
            remedy="an administrator can load it: modprobe nvidia-peermem",
        )


def _not_for(host: Host) -> str:
    """Why it does not matter here; empty where it does."""
    if not host.job.uses_gpu:
        return "the job does not use GPUs"
    if host.job.max_nodes == 1:
        return "the job runs on one node"
    gpus = [gpu for gpu in host.nvml().gpus if not gpu.failure]
    if not any(port.up for port in infiniband.selected(infiniband.read(host.root), host.environ)):
        return "no InfiniBand or RoCE port is in use"
    if not gpus:
        return "no NVIDIA GPU answers"
    if all("GeForce" in gpu.name for gpu in gpus):
        return f"not supported by {gpus[0].name}"
    if host.environ.get("NCCL_NET_GDR_LEVEL", "").upper() in ("LOC", "0"):
        return "NCCL_NET_GDR_LEVEL switches it off"
    return ""

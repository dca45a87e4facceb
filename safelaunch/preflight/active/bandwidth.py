"""Check of the bandwidth between the ranks of a node."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.active.bandwidth_faults import OTHER_WAYS, Limits, judge
from safelaunch.preflight.active.collective_run import backend, collectives, deadline_s, known_bandwidths
from safelaunch.preflight.active.probe_report import find_fault
from safelaunch.preflight.check import unchecked
from safelaunch.preflight.machine.host import Host


def bus_bandwidth(host: Host) -> Iterator[Finding]:
    """The GPUs of this node exchange data more slowly than such GPUs do, or large messages do not get through.

    Gradients are exchanged in every step: with half the bandwidth a job with much to exchange takes up to twice as
    long, on every node, since all wait for the slowest.

    How it is concluded: behind the collectives of SL111 the ranks time an all_reduce of 256 MiB and 1 GiB, and of the
    sizes for which a value of such a node is known. Bus bandwidth is 2(n-1)/n bytes over time, as nccl-tests has it.
    The known values are in safelaunch/preflight/active/bandwidth.toml, each for one model of GPU, number of ranks and
    size, and with its source: from Azure's node health checks and stas00/ml-engineering. Below 0.85 of the value is a
    warning, below half an error; both shares are estimates of ours (thresholds bus_bandwidth_low and
    bus_bandwidth_broken). Hardware that is not in the table is measured and not judged, nor is gloo, nor NCCL when
    variables such as NCCL_ALGO or NCCL_P2P_DISABLE have it take another way. Large messages on which ranks hang or
    fail are an error everywhere.

    What to do: look for links that are down or slow (`nvidia-smi nvlink -s`), at the topology (`nvidia-smi topo -m`)
    and at the fabric manager, and at the way that NCCL takes (NCCL_DEBUG=INFO). Links are an admin's case: reset the
    GPUs, reboot, have the node serviced.
    """
    outcome = collectives(host)
    report = outcome.report
    if report is None or report.error:
        reason = outcome.unknown if report is None else report.error
        yield unchecked("SL156", "the bandwidth between the ranks was not measured", reason)
    elif find_fault(report, deadline_s(host)):
        yield unchecked(
            "SL156", "the bandwidth between the ranks was not measured", "their collectives failed (see SL111)"
        )
    else:
        limits = Limits(host.threshold("bus_bandwidth_low"), host.threshold("bus_bandwidth_broken"))
        ways = [name for name in OTHER_WAYS if host.environ.get(name)]
        where = f"{host.job.nproc} ranks over {backend(host)}"
        yield judge(report.ranks, known_bandwidths(host), limits, other_ways=ways, where=where)

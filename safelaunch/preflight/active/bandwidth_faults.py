"""The bandwidth of all_reduce against what is known of such hardware: from reports to findings. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from safelaunch.model import Finding
from safelaunch.preflight.active.probe_report import Fault, RankReport, first_failure, name_ranks
from safelaunch.preflight.check import ok, skipped
from safelaunch.sizes import MIB, plural, size

# Variables that make NCCL take another way than the one that was measured.
OTHER_WAYS = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE",
    "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_BUFFSIZE",
)  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """The bus bandwidth in bytes per second of so many ranks on GPUs of this name, with messages of `size` bytes."""

    gpu: str
    ranks: int
    size: int
    bandwidth: float
    source: str


@dataclass(frozen=True)
class Limits:
    """Shares of the expected bandwidth: below the one a warning, below the other an error."""

    low: float
    broken: float


def expected(table: dict[str, Any], models: Sequence[str]) -> tuple[Expected, ...]:
    """The entries of `bandwidth.toml` that hold for a node with these GPUs, one for each rank."""
    known = [
        Expected(entry["gpu"], entry["ranks"], entry["mib"] * MIB, entry["gb_s"] * 1e9, entry["source"])
        for entry in table["all_reduce"]
    ]
    return tuple(entry for entry in known if set(models) == {entry.gpu} and len(models) == entry.ranks)


def bus_bandwidths(ranks: Sequence[RankReport]) -> dict[int, float]:
    """Bus bandwidth in bytes per second for each size, by the clock of the slowest rank.

    An all_reduce moves 2(n-1)/n of the bytes over each link (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    """
    factor = 2 * (len(ranks) - 1) / len(ranks)
    by_rank = [{one.size: one.seconds for one in rank.bandwidth or ()} for rank in ranks]
    return {
        length: factor * length / max(times[length] for times in by_rank)
        for length in by_rank[0]
        if all(times.get(length) for times in by_rank)
    }


def judge(
    ranks: Sequence[RankReport], known: Iterable[Expected], limits: Limits, *, other_ways: Sequence[str], where: str
) -> Finding:
    """SL156, of ranks that did exchange the right values before."""
    if any(rank.bandwidth is None for rank in ranks):
        fault = first_failure(ranks) or _missing(ranks)
        return Finding(
            code="SL156",
            severity="error",
            summary=fault.summary,
            because=(*fault.because, "small messages had passed between the same ranks"),
            remedy="run it again with NCCL_DEBUG=INFO; see the links (nvidia-smi nvlink -s, nvidia-smi topo -m)",
            where=where,
        )
    found = bus_bandwidths(ranks)
    told = ", ".join(f"{_rate(rate)} with {size(length)}" for length, rate in found.items())
    if not found:
        return skipped("SL156", "one rank: there is no bus to measure" if len(ranks) == 1 else "nothing was measured")
    text = f"all_reduce between {plural(len(ranks), 'rank')}: {told}"
    entries = {entry.size: entry for entry in known}
    shares = {length: rate / entries[length].bandwidth for length, rate in found.items() if length in entries}
    if not shares:
        return ok("SL156", f"{text} (not judged)")
    if other_ways:
        return ok("SL156", f"{text} (not judged, since {' and '.join(other_ways)} changes NCCL's way)")
    worst = min(shares, key=shares.__getitem__)
    share, entry = shares[worst], entries[worst]
    if share >= limits.low:
        return ok("SL156", f"{text}, {share:.0%} of what is known of {entry.ranks} {entry.gpu}")
    return Finding(
        code="SL156",
        severity="error" if share < limits.broken else "warning",
        summary=f"the links between the GPUs are slow: {_rate(found[worst])} with {size(worst)}, "
        f"{share:.0%} of what is known of {entry.ranks} {entry.gpu}",
        because=(f"{_rate(entry.bandwidth)}: {entry.source}", text),
        remedy="see the links (nvidia-smi nvlink -s, nvidia-smi topo -m) and the fabric manager (admin); "
        "NCCL_DEBUG=INFO shows the way that NCCL takes",
        where=where,
    )


def _missing(ranks: Sequence[RankReport]) -> Fault:
    """Nobody failed, and some have not measured: the ones that did not come to it, if the others did."""
    missing = [rank for rank in ranks if rank.bandwidth is None]
    behind = [rank for rank in missing if not rank.measuring]
    if behind and len(behind) < len(ranks):
        return Fault(f"{name_ranks(behind)} did not come to all_reduce with large messages")
    if len(missing) < len(ranks):
        return Fault(f"{name_ranks(missing)} did not finish all_reduce with large messages")
    return Fault("no rank finished all_reduce with large messages")


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"

"""Bus bandwidth against what is known: only of known hardware, and by the slowest rank."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.model import Finding
from safelaunch.preflight.active import bandwidth_faults
from safelaunch.preflight.active.bandwidth_faults import Limits, bus_bandwidths, expected
from safelaunch.preflight.active.probe_report import Measured, ProbeReport, RankReport, find_fault

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE: dict[str, Any] = tomllib.loads(Path(bandwidth_faults.__file__).with_name("bandwidth.toml").read_text())
H200 = ["NVIDIA H200"] * 8
GIB = 1 << 30


def at(bus_gb_s: float, count: int = 8) -> list[RankReport]:
    """Ranks that measured this bus bandwidth with 1 GiB; the clock of the first ones stopped earlier."""
    seconds = GIB * 2 * (count - 1) / count / (bus_gb_s * 1e9)
    times = [seconds / 2] * (count - 1) + [seconds]
    return [RankReport(rank, 3, 3, measuring=True, bandwidth=(Measured(GIB, each),)) for rank, each in enumerate(times)]


def judge(ranks: list[RankReport], models: list[str], ways: tuple[str, ...] = ()) -> Finding:
    known = expected(TABLE, models)
    return bandwidth_faults.judge(ranks, known, Limits(0.85, 0.5), other_ways=ways, where="8 ranks over nccl")


def test_the_slowest_rank_counts() -> None:
    assert bus_bandwidths(at(464)) == {GIB: pytest.approx(464e9)}


@pytest.mark.parametrize(("gb_s", "severity"), [(464, "ok"), (400, "ok"), (380, "warning"), (200, "error")])
def test_known_hardware_is_judged(gb_s: float, severity: str) -> None:
    finding = judge(at(gb_s), H200)
    assert finding.severity == severity
    assert f"{gb_s} GB/s with 1 GiB" in finding.summary
    if severity != "ok":
        assert "stas00/ml-engineering" in finding.because[0]


@pytest.mark.parametrize("models", [["NVIDIA H200 NVL"] * 8, [*H200[:7], "NVIDIA H100 80GB HBM3"], H200[:4], []])
def test_other_hardware_is_never_judged(models: list[str]) -> None:
    finding = judge(at(1), models)
    assert finding.severity == "ok"
    assert "1 GB/s with 1 GiB (not judged)" in finding.summary


def test_another_way_of_nccl_is_not_judged() -> None:
    finding = judge(at(100), H200, ("NCCL_P2P_DISABLE",))
    assert finding.severity == "ok"
    assert "NCCL_P2P_DISABLE" in finding.summary


def test_one_rank_has_no_bus() -> None:
    assert judge([RankReport(0, 3, 3, bandwidth=())], H200[:1]).summary == "one rank: there is no bus to measure"


def test_a_rank_that_does_not_come_to_large_messages_is_named_here_alone() -> None:
    ranks = [RankReport(rank, 3, 3, measuring=rank != 2) for rank in range(4)]
    assert find_fault(ProbeReport(tuple(ranks)), 60.0) is None
    finding = judge(ranks, H200)
    assert (finding.severity, finding.summary) == ("error", "rank 2 did not come to all_reduce with large messages")


def test_a_rank_that_dies_with_large_messages_is_named() -> None:
    waiting = [RankReport(rank, 3, 3, measuring=True) for rank in range(3)]
    dead = RankReport(3, 3, 3, measuring=True, failed_s=1.0, exit_code=-11)
    assert judge([*waiting, dead], H200).summary == "rank 3 died with signal 11 in all_reduce with large messages"


def test_every_entry_of_the_table_has_a_source_and_is_found() -> None:
    for entry in TABLE["all_reduce"]:
        assert "/" in entry["source"]
        found = expected(TABLE, [entry["gpu"]] * entry["ranks"])
        assert entry["mib"] * (1 << 20) in {one.size for one in found}

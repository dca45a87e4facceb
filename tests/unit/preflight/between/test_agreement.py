"""Who differs from the others, and who cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.model import Finding
from safelaunch.preflight.between.agreement import environment, hardware, master_address, rendezvous_id, versions
from safelaunch.preflight.between.facts import Facts, Picture
from safelaunch.preflight.between.vote import vote

SAME = {"torch": "2.8.0", "CUDA": "12.8", "NCCL": "2.27.3", "driver": "570.1", "Python": "3.11"}
Judge = Callable[[Picture], Iterator[Finding]]


def facts(rank: int, **changes: Any) -> Facts:
    usual: dict[str, Any] = {"versions": SAME, "endpoint": ("10.0.0.1",), "own": (f"10.0.0.{rank + 1}", "127.0.0.1")}
    return Facts(rank, f"n{rank}", **{**usual, **changes})


def nodes(count: int, changed: dict[int, dict[str, Any]] | None = None, **common: Any) -> Picture:
    return Picture(count, tuple(facts(rank, **{**common, **(changed or {}).get(rank, {})}) for rank in range(count)))


def only(judge: Judge, picture: Picture) -> Finding:
    (finding,) = judge(picture)
    return finding


@pytest.mark.parametrize("judge", [versions, environment, master_address, hardware, rendezvous_id])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_nodes_that_agree(judge: Judge, count: int) -> None:
    assert only(judge, nodes(count)).severity == "ok"


def test_nodes_that_would_wait_under_different_names_are_told_the_option_to_leave_out() -> None:
    finding = only(rendezvous_id, nodes(3, {n: {"rdzv_id": str(n * 4711)} for n in range(3)}))
    assert (finding.severity, len(finding.because)) == ("error", 3)
    assert "node n1 (rank 1): --rdzv-id 4711" in finding.because
    assert "leave out --rdzv-id" in finding.remedy


@given(st.integers(3, 12).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
def test_the_odd_one_is_named_wherever_it_is(case: tuple[int, int]) -> None:
    count, odd = case
    finding = only(versions, nodes(count, {odd: {"versions": {**SAME, "torch": "2.7.1"}}}))
    assert finding.severity == "error"
    assert finding.where == f"node n{odd} (rank {odd})"
    assert finding.summary == f"node n{odd} (rank {odd}) has torch 2.7.1; all others have torch 2.8.0"


def test_of_two_it_cannot_be_told() -> None:
    finding = only(versions, nodes(2, {1: {"versions": {**SAME, "NCCL": "2.26.2"}}}))
    assert finding.summary == "node n0 (rank 0) has NCCL 2.27.3; node n1 (rank 1) has NCCL 2.26.2"
    assert "cannot tell which is wrong" in finding.because[0]
    assert finding.where == "nodes n0 (rank 0) and n1 (rank 1)"


def test_half_against_half_cannot_be_told() -> None:
    other = {"versions": {**SAME, "torch": "2.7.1"}}
    assert "cannot tell" in only(versions, nodes(4, {0: other, 2: other})).because[0]


@pytest.mark.parametrize(("name", "severity"), [("torch", "error"), ("CUDA", "error"), ("NCCL", "error"),
                                                ("driver", "warning"), ("Python", "warning")])  # fmt: skip
def test_what_a_version_counts_as(name: str, severity: str) -> None:
    finding = only(versions, nodes(3, {1: {"versions": {**SAME, name: "0.1"}}}))
    assert (finding.code, finding.severity) == ("SL161", severity)


def test_an_environment_that_differs_as_a_whole_is_one_finding() -> None:
    finding = only(versions, nodes(3, {2: {"versions": {**SAME, "torch": "2.7", "CUDA": "12.6", "NCCL": "2.26"}}}))
    assert "torch 2.7, CUDA 12.6, NCCL 2.26" in finding.summary


@pytest.mark.parametrize(("name", "severity"), [("NCCL_PROTO", "error"), ("NCCL_IB_DISABLE", "error"),
                                                ("NCCL_IB_HCA", "warning"), ("NCCL_DEBUG", "warning"),
                                                ("GLOO_SOCKET_IFNAME", "note")])  # fmt: skip
def test_what_a_variable_counts_as(name: str, severity: str) -> None:
    finding = only(environment, nodes(3, {1: {"env": {name: "x"}}}, uses_gpu=True))
    assert (finding.severity, finding.where) == (severity, "node n1 (rank 1)")
    unset = "unset or 0" if name.endswith("_DISABLE") else "unset"
    assert finding.summary == f"node n1 (rank 1) has {name}=x; all others have {name} {unset}"


@pytest.mark.parametrize("env", [{"NCCL_IB_DISABLE": "0"}, {"NCCL_P2P_DISABLE": "0"}, {"NCCL_PROTO": ""},
                                 {"TORCH_NCCL_BLOCKING_WAIT": "0"}, {"NCCL_COLLNET_ENABLE": " "}])  # fmt: skip
def test_a_value_that_says_the_same_as_none(env: dict[str, str]) -> None:
    assert only(environment, nodes(3, {1: {"env": env}})).severity == "ok"


def test_variables_of_nccl_stop_no_job_on_the_cpu() -> None:
    assert only(environment, nodes(3, {1: {"env": {"NCCL_PROTO": "LL"}}})).severity == "warning"


def test_a_switch_that_is_on_by_default_is_not_off_when_unset() -> None:
    finding = only(environment, nodes(3, {1: {"env": {"NCCL_CUMEM_ENABLE": "0"}}}, uses_gpu=True))
    assert finding.severity == "error"
    assert "NCCL_CUMEM_ENABLE=0" in finding.summary


def test_variables_that_differ_in_the_same_way_are_told_together() -> None:
    finding = only(environment, nodes(3, {1: {"env": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}}}))
    assert "NCCL_ALGO=Ring, NCCL_PROTO=LL" in finding.summary


def test_of_many_variables_the_first_stand_in_the_summary_and_the_others_below() -> None:
    names = [f"UCX_{letter}" for letter in "ABCDE"]
    finding = only(environment, nodes(3, {1: {"env": dict.fromkeys(names, "1")}}))
    assert finding.summary == (
        "node n1 (rank 1) has UCX_A=1, UCX_B=1, UCX_C=1; all others have UCX_A unset, UCX_B unset, UCX_C unset"
        " (2 more differ in the same way)"
    )
    assert finding.because[-1] == "these differ as well: UCX_D, UCX_E"


# ------------------------------------------------------------------------------------------- the endpoint


def test_a_node_that_finds_another_address_is_named_but_it_has_come() -> None:
    finding = only(master_address, nodes(3, {2: {"endpoint": ("10.0.9.9",)}}))
    assert (finding.severity, finding.where) == ("warning", "node n2 (rank 2)")
    assert "10.0.9.9" in finding.summary


def test_even_of_two_the_one_that_finds_a_stranger_is_named() -> None:
    assert only(master_address, nodes(2, {1: {"endpoint": ("10.0.9.9",)}})).where == "node n1 (rank 1)"


def test_several_addresses_of_the_same_machine_are_no_fault() -> None:
    own = ("10.0.0.1", "192.168.0.1", "127.0.0.1")
    assert only(master_address, nodes(2, {0: {"own": own}, 1: {"endpoint": ("192.168.0.1",)}})).severity == "ok"
    assert only(master_address, nodes(2, {1: {"endpoint": ("fd00::1", "10.0.0.1")}})).severity == "ok"


def test_the_listener_may_find_itself_at_the_loopback_address() -> None:
    assert only(master_address, nodes(2, {0: {"endpoint": ("127.0.1.1",)}})).severity == "ok"
    seen = nodes(3, {0: {"endpoint": ("127.0.1.1", "34.1.2.3")}}, endpoint=("34.1.2.3",))
    assert only(master_address, seen).severity == "ok"


def test_of_addresses_that_all_differ_it_cannot_be_told() -> None:
    finding = only(master_address, nodes(2, {0: {"endpoint": ("34.1.2.3",)}, 1: {"endpoint": ("34.1.2.4",)}}))
    assert finding.severity == "warning"
    assert "cannot tell" in finding.because[0]


def test_an_address_that_no_interface_has_is_no_fault_where_all_find_it() -> None:
    assert only(master_address, nodes(3, endpoint=("34.1.2.3",))).severity == "ok"


# ------------------------------------------------------------------------------------------- hardware


NDR = "InfiniBand 400 Gb/s"
GPUS: dict[str, Any] = {"uses_gpu": True, "gpus": ("H100",) * 8}


@pytest.mark.parametrize(
    "other", [{"mlx5_0:1": NDR}, {"mlx5_0:1": NDR, "mlx5_1:1": "InfiniBand 200 Gb/s"},
              {"mlx5_0:1": NDR, "mlx5_1:1": "Ethernet 400 Gb/s"}, {}]
)  # fmt: skip
def test_other_adapters_are_an_error_of_a_job_with_gpus_only(other: dict[str, str]) -> None:
    both = {"hcas": {"mlx5_0:1": NDR, "mlx5_1:1": NDR}}
    finding = only(hardware, nodes(3, {1: {"hcas": other}}, **both, **GPUS))
    assert (finding.severity, finding.where) == ("error", "node n1 (rank 1)")
    assert finding.summary.endswith(f"; all others have 2 x {NDR}")
    usual = "ports of nodes n0 (rank 0) and n2 (rank 2): mlx5_0:1, mlx5_1:1"
    assert (usual in finding.because) == (set(other) != set(both["hcas"]))
    assert only(hardware, nodes(3, {1: {"hcas": other}}, **both)).severity == "ok"


def test_adapters_with_other_names_are_a_note() -> None:
    """Pods of Kubernetes get virtual functions of any number, and names depend on the board."""
    seen = nodes(2, {0: {"hcas": {"mlx5_12:1": NDR, "mlx5_7:1": NDR}}, 1: {"hcas": {"mlx5_3:1": NDR, "mlx5_9:1": NDR}}},
                 **GPUS)  # fmt: skip
    finding = only(hardware, seen)
    assert (finding.code, finding.severity) == ("SL164", "note")
    assert finding.because == ("ports of node n0 (rank 0): mlx5_12:1, mlx5_7:1",
                               "ports of node n1 (rank 1): mlx5_3:1, mlx5_9:1")  # fmt: skip


def test_other_gpus_are_a_warning() -> None:
    finding = only(hardware, nodes(3, {0: {"gpus": ("H100",) * 7}}, uses_gpu=True, gpus=("H100",) * 8))
    assert (finding.severity, finding.where) == ("warning", "node n0 (rank 0)")
    assert finding.summary == "node n0 (rank 0) has 7 x H100; all others have 8 x H100"


def test_many_names_are_cut() -> None:
    picture = nodes(40)
    assert picture.names(range(40)) == "nodes n0 (rank 0), n1 (rank 1), n2 (rank 2) and 37 others"


@given(st.dictionaries(st.integers(0, 20), st.sampled_from("abc"), min_size=1))
def test_a_majority_is_more_than_half_of_at_least_three(values: dict[int, str]) -> None:
    found = vote(values)
    counts = sorted((list(values.values()).count(value) for value in set(values.values())), reverse=True)
    assert sum(len(ranks) for _, ranks in found.groups) == len(values)
    assert found.majority == (len(values) > 2 and len(counts) > 1 and 2 * counts[0] > len(values))
    assert not found.odd or 2 * len(found.odd) < len(values)

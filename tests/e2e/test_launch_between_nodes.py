"""A launch on several nodes compares them before any agent joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import netns
import pytest

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

STRICT = '[preflight]\nmin_shm = "8000GiB"\n[preflight.severity]\nSL104 = "error"\n'


@pytest.fixture
def hosts(rig: netns.Hosts, tmp_path: Path) -> Iterator[netns.Hosts]:
    rig.known(1, 2, 3, cwd=tmp_path)
    yield rig
    rig.heal()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    program = tmp_path / "sum.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo'); x = torch.ones(1); dist.all_reduce(x)\n"
        "assert x.item() == dist.get_world_size(); dist.destroy_process_group()\n"
    )
    return program


def c10d(hosts: netns.Hosts, nodes: int) -> tuple[object, ...]:
    return ("--nproc-per-node", 1, "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-id", "job-7",
            "--rdzv-endpoint", f"{hosts.name(1)}:29400")  # fmt: skip


def static(hosts: netns.Hosts, nodes: int) -> tuple[object, ...]:
    return ("--nproc-per-node", 1, "--nnodes", nodes, "--master-addr", hosts.name(1), "--master-port", 29511)


def test_good_nodes_meet_and_then_run(hosts: netns.Hosts, script: Path, tmp_path: Path) -> None:
    ended = hosts.launch(script, *c10d(hosts, 2), cwd=tmp_path, own={1: (), 2: ()})
    assert [code for code, _ in ended] == [0, 0], ended
    assert not any("SL16" in err for _, err in ended)

    ranks = {1: ("--node-rank", 0), 2: ("--node-rank", 1)}
    ended = hosts.launch(script, *static(hosts, 2), cwd=tmp_path, own=ranks)
    assert [code for code, _ in ended] == [0, 0], ended


def test_a_node_that_is_refused_ends_the_others_at_once_and_is_named(
    hosts: netns.Hosts, script: Path, tmp_path: Path
) -> None:
    profile = tmp_path / "strict.toml"
    profile.write_text(STRICT)
    ended = hosts.launch(script, *c10d(hosts, 3), cwd=tmp_path, own={1: (), 2: (), 3: ("--profile", profile)})

    assert [code for code, _ in ended] == [69, 69, 69], ended
    for _, err in ended[:2]:
        assert f"error[SL169]: node {hosts.name(3)} (rank " in err
        assert "= because: SL104: " in err
    assert "error[SL104]" in ended[2][1]
    assert "SL169" not in ended[2][1]


def test_a_node_with_another_torch_is_named_before_anything_starts(
    hosts: netns.Hosts, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netns, "KEPT", {"SAFELAUNCH_PROBE_FAULT": "version@1"})
    profile = tmp_path / "odd.toml"
    profile.write_text('[env]\nNCCL_PROTO = "LL"\n')
    own = {1: ("--node-rank", 0), 2: ("--node-rank", 1, "--profile", profile), 3: ("--node-rank", 2)}
    ended = hosts.launch(script, *static(hosts, 3), cwd=tmp_path, own=own)

    assert [code for code, _ in ended] == [69, 69, 69], ended
    for _, err in ended:
        assert f"error[SL161]: node {hosts.name(2)} (rank 1) has torch 0.0.1" in err
        assert f"warning[SL162]: node {hosts.name(2)} (rank 1) has NCCL_PROTO=LL" in err


@pytest.mark.long
def test_a_node_that_is_not_checked_disturbs_nobody_and_is_not_disturbed(
    hosts: netns.Hosts, script: Path, tmp_path: Path
) -> None:
    profile = tmp_path / "hasty.toml"
    profile.write_text('[preflight]\ndeadline = "20s"\n')  # of which half is for waiting
    own = {1: ("--node-rank", 0, "--profile", profile), 2: ("--node-rank", 1, "--preflight", "off")}
    ended = hosts.launch(script, *static(hosts, 2), cwd=tmp_path, own=own)

    assert [code for code, _ in ended] == [0, 0], ended
    assert "warning[SL160]" in ended[0][1], ended

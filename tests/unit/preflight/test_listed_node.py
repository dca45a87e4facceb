"""A node that is on the list of bad nodes is refused, and a list that cannot be read refuses none."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost

from safelaunch.model import Finding
from safelaunch.preflight.machine.host import Wanted
from safelaunch.preflight.node.listed import listed


def said(root: Path, path: str = "/shared/bad", **environ: str) -> Finding:
    host = FakeHost(root, environ=environ, wanted=Wanted(bad_nodes=path))
    (finding,) = listed(host)
    return finding


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "bad").write_text("# ours\nnode-b 2026-11-20 GPU 3 failed\n")
    return tmp_path


def test_a_listed_node_is_refused_with_the_reason_and_the_line_to_delete(root: Path) -> None:
    finding = said(root, SLURMD_NODENAME="node-b")

    assert (finding.severity, finding.where) == ("error", "/shared/bad:2")
    assert finding.because == ("2026-11-20 GPU 3 failed",)
    assert "--exclude=node-b" in finding.remedy


def test_other_nodes_pass(root: Path) -> None:
    assert said(root, SLURMD_NODENAME="node-c").severity == "ok"
    assert said(root, "/shared/none").severity == "ok"


def test_without_a_list_there_is_nothing_to_look_at(root: Path) -> None:
    assert said(root, "").severity == "skipped"


def test_a_list_that_cannot_be_read_is_no_reason(root: Path) -> None:
    assert said(root, "/shared").severity == "unchecked"

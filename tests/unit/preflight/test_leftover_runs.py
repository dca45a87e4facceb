from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_host import only
from victims import LISTEN, WAIT, python

from safelaunch.model import Finding, Job
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.node.leftovers import SUPERVISOR, TOKEN, earlier_runs


def marked(supervisor: str) -> dict[str, str]:
    return {**os.environ, TOKEN: "t0ken", SUPERVISOR: supervisor}


def dead_supervisor() -> str:
    """A pid that was used a moment ago, with the start time of nobody."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return f"{child.pid}:1"


def about(pid: int, job: Job) -> Finding | None:
    """The finding, if it accuses this process; the machine may have other leftovers."""
    finding = only(earlier_runs(Host(job)))
    return finding if any(f"pid {pid} (" in line for line in finding.because) else None


def test_a_process_whose_supervisor_is_dead_is_found() -> None:
    with python(WAIT, marked(dead_supervisor())) as (child, _):
        finding = about(child.pid, Job(nproc=1))
    assert finding is not None
    assert finding.severity == "warning"
    assert str(child.pid) in finding.remedy.strip("`").split()


def test_a_pid_that_was_used_again_is_not_the_supervisor() -> None:
    with python(WAIT, marked(f"{os.getpid()}:1")) as (child, _):
        assert about(child.pid, Job(nproc=1)) is not None


def test_a_run_that_is_alive_is_left_in_peace() -> None:
    me = Host(Job(nproc=1)).process(os.getpid())
    assert me is not None
    with python(WAIT, marked(f"{me.pid}:{me.start}")) as (child, _):
        assert about(child.pid, Job(nproc=1)) is None


def test_a_leftover_that_holds_the_wanted_port_is_named_with_it() -> None:
    with python(LISTEN.format(address="127.0.0.1"), marked(dead_supervisor())) as (child, taken):
        finding = about(child.pid, Job(nproc=1, master_port=int(taken)))
    assert finding is not None
    assert finding.severity == "warning"  # whether the port can be used says its own check
    assert f"port {taken} is held by one of them" in finding.because


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_run_has_left_alone_after_its_success_is_meant_to_live(code: int, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"exit_code": code}))
    rank_dir = str(tmp_path / "attempt_0" / "rank_000")
    with python(WAIT, {**marked(dead_supervisor()), "SAFELAUNCH_RANK_DIR": rank_dir}) as (child, _):
        assert (about(child.pid, Job(nproc=1)) is None) == (code == 0)

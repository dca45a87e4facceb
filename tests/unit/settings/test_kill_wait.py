"""What a scheduler gives between SIGTERM and SIGKILL, from its files and from nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.settings.kill_wait import kill_wait, read

IN_A_JOB = {"SLURM_JOB_ID": "7"}


def files(**contents: str) -> Callable[[str], str | None]:
    """Reads these files and no others; `etc_slurm_conf` is /etc/slurm.conf."""
    names = {"conf": "/etc/slurm/slurm.conf", "cached": "/var/spool/slurmd/conf-cache/slurm.conf"}
    return {names.get(name, name): text for name, text in contents.items()}.get


def test_outside_a_scheduler_nothing_is_known_and_no_file_is_read() -> None:
    def fail(path: str) -> str | None:
        raise AssertionError(path)

    assert kill_wait({"SLURM_CONF": "/etc/slurm/slurm.conf"}, fail) is None


@pytest.mark.parametrize(
    ("text", "seconds", "where"),
    [
        ("ClusterName=a\nKillWait=60\n", 60.0, "/etc/slurm/slurm.conf:2"),
        ("killwait = 90 # longer\n", 90.0, "/etc/slurm/slurm.conf:1"),
        ("#KillWait=60\nClusterName=a\n", 30.0, "/etc/slurm/slurm.conf (Slurm's default)"),
        ("KillWait=60\nKillWait=45\n", 45.0, "/etc/slurm/slurm.conf:2"),
        ("BatchKillWait=60\n", 30.0, "/etc/slurm/slurm.conf (Slurm's default)"),
        ("", 30.0, "/etc/slurm/slurm.conf (Slurm's default)"),
    ],
)
def test_kill_wait_of_slurm(text: str, seconds: float, where: str) -> None:
    found = kill_wait(IN_A_JOB, files(conf=text))
    assert found is not None
    assert (found.value, found.origin.source, found.origin.where) == (seconds, "file", where)


def test_the_first_file_that_can_be_read_counts_and_slurm_conf_names_the_only_one() -> None:
    both = files(conf="KillWait=40\n", cached="KillWait=50\n")
    assert kill_wait(IN_A_JOB, both).value == 40.0  # type: ignore[union-attr]
    assert kill_wait(IN_A_JOB, files(cached="KillWait=50\n")).value == 50.0  # type: ignore[union-attr]
    named = kill_wait({**IN_A_JOB, "SLURM_CONF": "/opt/slurm.conf"}, both)
    assert named is not None
    assert (named.value, named.origin.source) == (30.0, "default")


def test_included_files_are_followed_and_a_circle_ends() -> None:
    contents = {
        "/etc/slurm/slurm.conf": "Include local.conf\nInclude /gone\n",
        "/etc/slurm/local.conf": "Include slurm.conf\n KillWait=300\n",
    }
    found = kill_wait(IN_A_JOB, contents.get)
    assert found is not None
    assert (found.value, found.origin.where) == (300.0, "/etc/slurm/local.conf:2")


def test_in_a_pod_only_the_default_of_kubernetes_is_known() -> None:
    found = kill_wait({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, files())
    assert found is not None
    assert (found.value, found.origin.source) == (30.0, "default")
    assert "terminationGracePeriodSeconds" in found.origin.where


def test_files_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    assert read(str(tmp_path / "gone")) is None
    assert read(str(tmp_path)) is None
    (tmp_path / "bytes").write_bytes(b"KillWait=\xff\n")
    assert "KillWait" in (read(str(tmp_path / "bytes")) or "")
    assert os.path.exists(tmp_path / "bytes")

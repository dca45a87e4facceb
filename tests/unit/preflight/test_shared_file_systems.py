from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeHost, only, volume, write

sys.path.append(str(Path(__file__).parents[2] / "rigs"))

import silent_server

from safelaunch.model import Finding, Job
from safelaunch.preflight.machine import host as host_module
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.mounts import mount_of, mounts
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.node.disk import disk
from safelaunch.preflight.node.shared_fs import shared_fs

GIB = 1 << 30
TABLE = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:45 / /mnt/nfs rw,relatime shared:2 master:1 - nfs4 server:/export/my\\040data rw,vers=4.2
23 21 0:46 / /lustre rw - lustre 10.0.0.1@tcp:/scratch rw
24 21 0:47 / /home rw - autofs systemd-1 rw
25 21 0:48 / /mnt/nfs/local rw - tmpfs tmpfs rw
26 21 0:49 / /s3 rw - fuse.goofys bucket rw
27 21 0:50 / /img rw - fuse.squashfuse /x.sqsh ro
"""


class Slow(FakeHost):
    """A host on which what lies below some directories does not answer, or after some seconds; it counts its
    children."""

    def __init__(self, root: Path, job: Job, **options: Any) -> None:
        super().__init__(root, job, **options)
        self.slow: Mapping[str, float] = {}
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], deadline_s: float, environ: Mapping[str, str] | None = None) -> Ended:
        path = argv[-2]
        self.asked.append(path)
        seconds = next((s for point, s in self.slow.items() if path.startswith(point)), 0.0)
        if seconds > deadline_s:
            return Ended(None, "", "", deadline_s, timed_out=True)
        ended = super().run(argv, deadline_s, environ)
        return Ended(0, ended.stdout[:-1] + f', "elapsed_s": {seconds}}}', "", seconds) if seconds else ended


def check(
    root: Path, run_dir: str = "/data", slow: Mapping[str, float] | None = None, **environ: str
) -> tuple[list[Finding], Slow]:
    write(root, {"/proc/self/mountinfo": TABLE})
    host = Slow(root, Job(nproc=1, run_dir=run_dir), environ=environ)
    host.slow = slow or {}
    return list(shared_fs(host)), host


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/", "/"),
        ("/data/x", "/"),
        ("/mnt/nfs/deep/down", "/mnt/nfs"),
        ("/mnt/nfs2", "/"),
        ("/mnt/nfs/local/x", "/mnt/nfs"),  # the walk ends at the first that may not answer
        ("/link/x", "/mnt/nfs"),
        ("/relative/x", "/lustre"),
        ("/loop/x", "/"),
        ("/home/someone", "/home"),
    ],
)
def test_the_file_system_of_a_path_is_told_without_touching_it(tmp_path: Path, path: str, point: str) -> None:
    write(tmp_path, {"/proc/self/mountinfo": TABLE})
    (tmp_path / "link").symlink_to("/mnt/nfs/project")
    (tmp_path / "relative").symlink_to("lustre/project")
    (tmp_path / "loop").symlink_to("/loop")
    root = Root(str(tmp_path))
    found = mount_of(root, mounts(root), path)
    assert found is not None
    assert found.point == point


def test_mounts_are_read_with_blanks_in_their_names_and_known_for_local_or_not(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/self/mountinfo": TABLE})
    found = {mount.point: mount for mount in mounts(Root(str(tmp_path)))}
    assert found["/mnt/nfs"].source == "server:/export/my data"
    assert [point for point, mount in found.items() if mount.network] == ["/mnt/nfs", "/lustre", "/home", "/s3"]


def test_a_job_on_local_disks_starts_no_child(tmp_path: Path) -> None:
    findings, host = check(tmp_path, HOME="/root")
    assert [(finding.severity, finding.summary) for finding in findings] == [
        ("skipped", "the job needs no network file system")
    ]
    assert host.asked == []


def test_network_directories_are_looked_at_in_a_child(tmp_path: Path) -> None:
    write(tmp_path, {"/mnt/nfs/runs/x": "", "/lustre/x": ""})
    (finding,), host = check(tmp_path, "/mnt/nfs/runs/new", HF_HOME="/lustre/hf")
    assert (finding.severity, finding.summary) == ("ok", "/mnt/nfs (nfs4), /lustre (lustre) answer")
    assert sorted(host.asked) == ["/lustre/hf", "/mnt/nfs/runs/new"]


def test_a_file_system_that_does_not_answer_is_one_error_and_asked_once(tmp_path: Path) -> None:
    write(tmp_path, {"/mnt/nfs/x": "", "/lustre/x": ""})
    (finding,), host = check(
        tmp_path, "/mnt/nfs/runs", {"/mnt/nfs": 99.0}, HOME="/mnt/nfs/me", HF_HOME="/mnt/nfs/hf", TORCH_HOME="/lustre"
    )
    assert finding.severity == "error"
    assert finding.summary == "/mnt/nfs/runs does not answer within 15 s"
    assert "the run directory is there" in finding.because[0]
    assert finding.where == "server:/export/my data (nfs4) on /mnt/nfs"
    assert len([path for path in host.asked if path.startswith("/mnt/nfs")]) == 1


def test_a_slow_one_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"/lustre/x": ""})
    (finding,), _ = check(tmp_path, "/lustre", {"/lustre": 6.0})
    assert finding.severity == "warning"
    assert finding.summary == "/lustre took 6.0 s to answer"


def test_room_on_a_dead_file_system_is_left_to_this_check(tmp_path: Path) -> None:
    write(tmp_path, {"/tmp/x": "", "/proc/self/mountinfo": TABLE})
    host = Slow(tmp_path, Job(nproc=1, run_dir="/mnt/nfs/runs"), volumes={"/": volume(10 * GIB)})
    host.slow = {"/mnt/nfs": 99.0}
    finding = only(disk(host))
    assert finding.severity == "unchecked"
    assert "SL139" in finding.because[0]


@pytest.mark.parametrize(("name", "severity"), [("HOME", "error"), ("TMPDIR", "error"), ("HF_HOME", "warning")])
def test_a_cache_that_does_not_answer_may_never_be_touched(tmp_path: Path, name: str, severity: str) -> None:
    write(tmp_path, {"/mnt/nfs/x": ""})
    (finding,), _ = check(tmp_path, "/data", {"/mnt/nfs": 99.0}, **{name: "/mnt/nfs"})
    assert finding.severity == severity


@pytest.mark.parametrize(("said", "severity"), [("healthy\n", "ok"), ("NOT HEALTHY\n", "warning")])
def test_lustre_is_asked_how_it_is(tmp_path: Path, said: str, severity: str) -> None:
    write(tmp_path, {"/lustre/x": "", "/sys/fs/lustre/health_check": said})
    findings, _ = check(tmp_path, "/lustre")
    assert [finding.severity for finding in findings] == [severity]
    elsewhere, _ = check(tmp_path, "/data")
    assert [finding.severity for finding in elsewhere] == ["skipped"]


def test_a_real_server_that_never_answers_costs_the_deadline_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = tmp_path / "share"
    try:
        with silent_server.mounted(point):
            monkeypatch.setattr(host_module, "STORAGE_DEADLINE_S", 1.0)
            host = Host(Job(nproc=1, run_dir=f"{point}/runs"), environ={})
            begin = time.monotonic()
            finding = only(shared_fs(host))
            elapsed_s = time.monotonic() - begin
            host.end_children()
    except OSError as error:
        pytest.skip(f"no FUSE mount here: {error}")
    assert finding.severity == "error"
    assert finding.summary == f"{point}/runs does not answer within 1 s"
    assert finding.where == f"silent (fuse.silent) on {point}"
    assert elapsed_s < 6.0

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch import files
from safelaunch.launch import run_dir, scratch
from safelaunch.model import SafelaunchError

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="folders of other users take root")


def made(base: Path | str, *, nodes: int = 1, chosen: bool = False, **environ: str) -> run_dir.RunDir:
    several = nodes > 1
    return run_dir.create(str(base), "8f2c", "node-a", several_nodes=several, chosen=chosen, environ=environ)


def create(base: Path | str, run_id: str = "8f2c", *, nodes: int = 1) -> Path:
    found = run_dir.create(str(base), run_id, "node-a", several_nodes=nodes > 1, chosen=True)
    assert not found.warning
    return Path(found.path)


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_private_folder_of_the_runs_name(tmp_path: Path) -> None:
    path = create(tmp_path / "runs" / "deep")

    assert path == tmp_path / "runs" / "deep" / "8f2c"
    assert path.stat().st_mode & 0o777 == 0o700
    assert list(path.iterdir()) == []  # the probe for room left nothing


def test_no_run_writes_into_anothers_folder(tmp_path: Path) -> None:
    assert [create(tmp_path).name for _ in range(3)] == ["8f2c", "8f2c.2", "8f2c.3"]


def test_a_file_of_the_runs_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "8f2c").write_text("mine")

    assert create(tmp_path).name == "8f2c.2"
    assert (tmp_path / "8f2c").read_text() == "mine"


def test_nodes_share_the_run_and_not_the_folder(tmp_path: Path) -> None:
    assert create(tmp_path, nodes=2) == tmp_path / "8f2c" / "node-a"
    assert create(tmp_path, nodes=2) == tmp_path / "8f2c" / "node-a.2"


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(SafelaunchError, match="is a file, not a folder") as caught:
        create(tmp_path / "runs")
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL003", 2)
    assert str(tmp_path / "runs") in caught.value.diagnostic.summary


@pytest.mark.parametrize("base", ["/proc/safelaunch", "/proc/self/fd/runs"])
def test_a_place_that_cannot_be_written(base: str) -> None:
    with pytest.raises(SafelaunchError) as caught:
        create(base)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL003", 2)
    assert base in caught.value.diagnostic.summary
    assert "--run-dir" in caught.value.diagnostic.remedy


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0755", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this container may not mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.rig
@pytest.mark.parametrize("chosen", [True, False])
def test_a_full_disk_is_left_for_another_place(tiny_disk: Path, temporary: Path, chosen: bool) -> None:
    found = made(tiny_disk, chosen=chosen)
    assert Path(found.path).parent.parent == temporary
    assert found.warning.startswith(f"warning[SL003]: {tiny_disk}: No space left on device: this run is kept in ")
    assert list(tiny_disk.iterdir()) == []


def test_a_default_that_cannot_be_made_is_left_for_temporary_files(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "safelaunch_runs").write_text("precious")
    found = made(tmp_path / "safelaunch_runs")
    path = Path(found.path)
    assert path.parent.parent == temporary
    assert path.parent.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o700
    words = f"{tmp_path}/safelaunch_runs is a file, not a folder: this run is kept in {path}"
    assert found.warning == f"warning[SL003]: {words} (--run-dir DIR chooses another place)"


def test_without_temporary_files_the_users_state_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such-folder")
    assert made("/proc/runs", XDG_STATE_HOME=str(tmp_path)).path == str(tmp_path / "safelaunch" / "8f2c")
    home = {"HOME": str(tmp_path / "home")}
    assert made("/proc/runs", **home).path == str(tmp_path / "home/.local/state/safelaunch/8f2c")
    monkeypatch.setattr(scratch, "MEMORY", str(tmp_path))
    assert Path(made("/proc/runs").path).parent.parent == tmp_path


def test_where_nothing_can_be_written_the_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such-folder")
    monkeypatch.setattr(scratch, "MEMORY", "/proc")
    with pytest.raises(SafelaunchError, match="/proc/runs"):
        made("/proc/runs", HOME="/proc")


def test_several_nodes_share_a_run_in_the_other_place_too(temporary: Path) -> None:
    path = Path(made("/proc/runs", nodes=2).path)
    assert (path.name, path.parent.name, path.parent.parent.parent) == ("node-a", "8f2c", temporary)


def test_a_limit_of_file_sizes_is_no_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    try:
        assert create(tmp_path).parent == tmp_path
        assert "files may not grow beyond 64 KiB (ulimit -f)" in run_dir.file_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert run_dir.file_limit() == ""


# ------------------------------------------------------------------------------------- folders of others


def given(path: Path, uid: int, mode: int = 0o777) -> Path:
    """A folder of that user."""
    path.mkdir(exist_ok=True)
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


@ROOT
def test_the_folder_of_another_user_is_not_written_to(tmp_path: Path, temporary: Path) -> None:
    shared = given(tmp_path / "shared", 0, 0o1777)
    theirs = given(shared / "safelaunch_runs", 1234)
    found = made(theirs)
    assert list(theirs.iterdir()) == []
    assert Path(found.path).parent.parent == temporary
    assert f"{theirs} belongs to user 1234: this run is kept in" in found.warning


@ROOT
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, temporary: Path) -> None:
    shared = given(tmp_path / "shared", 0, 0o1777)
    secret = given(tmp_path / "secret", 0, 0o700)
    link = shared / "safelaunch_runs"
    link.symlink_to(secret)
    os.lchown(link, 1234, 1234)
    found = made(link)
    assert list(secret.iterdir()) == []
    assert f"{link} is a link of user 1234: this run is kept in {temporary}" in found.warning


@ROOT
def test_the_folder_of_another_user_that_was_chosen_is_used_with_a_word(tmp_path: Path) -> None:
    theirs = given(given(tmp_path / "shared", 0, 0o1777) / "team", 1234)
    found = made(theirs, chosen=True)
    assert found.path == str(theirs / "8f2c")
    assert found.warning == (f"warning[SL003]: {theirs} belongs to user 1234, who can take away what is written there")


@ROOT
def test_root_in_the_folder_of_a_user_takes_that_users_runs(tmp_path: Path) -> None:
    # As in a container with a project of its user's mounted. Whoever owns the folder above could do all of it anyway.
    project = given(tmp_path / "project", 1234, 0o755)
    assert made(given(project / "safelaunch_runs", 1234, 0o700)).path == str(project / "safelaunch_runs" / "8f2c")


def test_a_link_of_ones_own_leads_to_where_the_runs_are_to_be(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "safelaunch_runs").symlink_to(tmp_path / "large")
    assert not made(tmp_path / "safelaunch_runs").warning
    assert (tmp_path / "large" / "8f2c").is_dir()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_link_where_the_run_would_go_is_not_followed(tmp_path: Path, temporary: Path, nodes: int) -> None:
    (tmp_path / "elsewhere").mkdir()
    base = tmp_path / "runs"
    base.mkdir()
    (base / "8f2c").symlink_to(tmp_path / "elsewhere")
    found = made(base, nodes=nodes)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert Path(found.path).is_relative_to(base / "8f2c.2" if nodes == 1 else temporary)


def test_what_is_written_later_follows_the_folder_and_not_its_path(tmp_path: Path) -> None:
    path = create(tmp_path)
    path.rename(tmp_path / "moved")
    (tmp_path / "elsewhere" / "incident-0").mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")

    files.write_text(str(path / "result.json"), "{}")
    files.write_text(str(path / "incident-0" / "verdict.json"), "{}")
    os.close(files.append_to(str(path / "agent.jsonl")))

    assert [entry.name for entry in (tmp_path / "elsewhere").iterdir()] == ["incident-0"]
    assert not list((tmp_path / "elsewhere" / "incident-0").iterdir())
    assert (tmp_path / "moved" / "incident-0" / "verdict.json").read_text() == "{}"
    assert sorted(entry.name for entry in (tmp_path / "moved").iterdir()) == [
        "agent.jsonl",
        "incident-0",
        "result.json",
    ]


def test_a_link_below_the_run_directory_is_not_followed(tmp_path: Path) -> None:
    path = create(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (path / "incident-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"incident-0/verdict\.json"):
        files.write_text(str(path / "incident-0" / "verdict.json"), "{}")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("run_id", ["8f2c", "job_17-0", "a.b", "ünï", "with space", "x" * 200, "-dash", "12345-0"])
def test_run_ids_that_name_a_folder(run_id: str, tmp_path: Path) -> None:
    assert create(tmp_path, run_dir.check_run_id(run_id)).parent == tmp_path


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        ".",
        "..",
        ".hidden",
        "../up",
        "a/b",
        "/etc",
        "a/",
        "a\0b",
        "a\nb",
        "a\n",
        "\x1b[31m",
        "\t",
        "x" * 201,
        "ü" * 101,
    ],
)
def test_run_ids_that_name_none(run_id: str) -> None:
    with pytest.raises(SafelaunchError) as caught:
        run_dir.check_run_id(run_id)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL004", 2)
    assert not set(caught.value.diagnostic.summary) & {"\n", "\x1b", "\0"}  # it is shown, not acted on


@pytest.mark.parametrize("run_id", ["a\x7fb", "a\x9b31mb"])
def test_other_control_characters_name_none(run_id: str) -> None:
    with pytest.raises(SafelaunchError):
        run_dir.check_run_id(run_id)


@pytest.mark.parametrize(
    ("environ", "run_id"),
    [
        ({"SLURM_JOB_ID": "17"}, "17-0"),
        ({"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "2"}, "17-2"),
        ({"BEAKER_JOB_ID": "01HX"}, "01HX"),
    ],
)
def test_the_schedulers_job_names_the_run(environ: dict[str, str], run_id: str) -> None:
    assert run_dir.default_run_id(environ, "node-a") == run_id


def test_without_a_scheduler_time_and_host_name_the_run() -> None:
    run_id = run_dir.default_run_id({}, "node-a")

    assert run_id.endswith("-node-a")
    assert run_dir.check_run_id(run_id) == run_id


def test_the_base_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_dir.base_dir("mine", {}) == str(tmp_path / "mine")
    assert run_dir.base_dir(None, {}) == str(tmp_path / "safelaunch_runs")


def test_scratch_is_private_and_never_shared() -> None:
    first, second = (Path(run_dir.create_scratch("unit-test-token", "/proc")) for _ in range(2))
    try:
        assert first != second
        assert {path.stat().st_mode & 0o777 for path in (first, second)} == {0o700}
    finally:
        shutil.rmtree(first)
        shutil.rmtree(second)


@pytest.mark.rig
def test_scratch_goes_where_there_is_room_for_it(
    tiny_disk: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MEMORY", str(tiny_disk))
    assert Path(run_dir.create_scratch("a", "/proc")).parent == temporary
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    assert Path(run_dir.create_scratch("b", "/proc")).parent == tiny_disk

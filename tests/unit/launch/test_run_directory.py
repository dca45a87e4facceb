from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError


def create(base: Path | str, run_id: str = "8f2c", *, nodes: int = 1) -> Path:
    return Path(run_dir.create(str(base), run_id, "node-a", several_nodes=nodes > 1))


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


def test_a_full_disk_refuses_the_launch(tiny_disk: Path) -> None:
    with pytest.raises(SafelaunchError, match="No space left") as caught:
        create(tiny_disk)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL003", 69)
    assert "space" in caught.value.diagnostic.remedy
    assert list(tiny_disk.iterdir()) == []


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
    assert run_dir.base_dir(None, {}) == str(tmp_path / "runs")


def test_scratch_is_private_and_never_shared() -> None:
    first, second = (Path(run_dir.create_scratch("unit-test-token")) for _ in range(2))
    try:
        assert first != second
        assert {path.stat().st_mode & 0o777 for path in (first, second)} == {0o700}
    finally:
        shutil.rmtree(first)
        shutil.rmtree(second)

"""Bad input gets one clear message with a code, a reason and a remedy; nothing starts and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, Ended, environment, launch

HELLO = FAULTS / "hello.py"


def refused(ended: Ended, code: str, exit_code: int, *words: str) -> None:
    assert ended.code == exit_code, ended.err
    assert f"error[{code}]" in ended.err
    for word in words:
        assert word in ended.err
    assert "Traceback" not in ended.err
    assert "= help:" in ended.err
    assert "hello" not in ended.out
    assert len(ended.err.splitlines()) <= 6


def test_a_missing_script(tmp_path: Path) -> None:
    refused(launch("train.py", cwd=tmp_path), "SL002", 2, "there is no file train.py", str(tmp_path))


def test_a_directory_as_script(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    refused(launch("train", cwd=tmp_path), "SL002", 2, "train is a directory")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    refused(launch("--no-python", "no-such-command", cwd=tmp_path), "SL002", 2, "no-such-command")


def test_a_command_that_the_kernel_does_not_take_is_no_failure_to_meet(tmp_path: Path) -> None:
    command = tmp_path / "no-first-line"
    command.write_text("echo hello\n")
    command.chmod(0o755)

    ended = launch("--nproc-per-node", 1, "--no-python", "./no-first-line", cwd=tmp_path)

    assert ended.code == 75
    assert "error[SL601]: the agent failed: OSError: [Errno 8] Exec format error: './no-first-line'" in ended.err


def test_no_script_at_all(tmp_path: Path) -> None:
    refused(launch(cwd=tmp_path), "SL001", 2, "no training script")


@pytest.mark.parametrize("number", ["-1", "0", "1.5"])
def test_a_number_of_processes_that_is_none(number: str, tmp_path: Path) -> None:
    refused(launch(f"--nproc-per-node={number}", HELLO, cwd=tmp_path), "SL001", 2, "--nproc-per-node", number)


@pytest.mark.long
def test_a_device_that_torch_does_not_know(tmp_path: Path) -> None:
    refused(launch("--nproc-per-node=many", HELLO, cwd=tmp_path), "SL001", 2, "nproc_per_node value: many")


def test_an_option_that_torchrun_alone_refuses(tmp_path: Path) -> None:
    ended = launch("--rdzv-backend", "no-such-backend", "--rdzv-endpoint", "localhost:0", HELLO, cwd=tmp_path)

    assert ended.code in (2, 75)
    assert "no-such-backend" in ended.err
    assert "Traceback" not in ended.err


def test_an_unknown_option_names_the_nearest(tmp_path: Path) -> None:
    refused(launch("--nproc-pre-node", 2, HELLO, cwd=tmp_path), "SL001", 2, "--nproc-per-node")


@pytest.mark.parametrize("run_id", ["a/b", "../up", ".hidden", "a\nb", ""])
def test_a_run_id_that_cannot_name_a_folder(run_id: str, tmp_path: Path) -> None:
    refused(launch("--rdzv-id", run_id, HELLO, cwd=tmp_path), "SL004", 2)
    assert not (tmp_path / "safelaunch_runs").exists()


def test_a_file_where_the_run_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "safelaunch_runs").write_text("precious")
    (tmp_path / "elsewhere").mkdir()

    ended = launch(HELLO, cwd=tmp_path, TMPDIR=str(tmp_path / "elsewhere"))
    assert ended.code == 0
    assert "warning[SL003]: " in ended.err
    assert "is a file, not a folder: this run is kept in " in ended.err
    assert (tmp_path / "safelaunch_runs").read_text() == "precious"
    assert list((tmp_path / "elsewhere").glob("safelaunch_runs-*/*/result.json"))


def test_a_run_directory_that_cannot_be_written(tmp_path: Path) -> None:
    refused(launch("--run-dir", "/proc/self", HELLO, cwd=tmp_path), "SL003", 2, "--run-dir")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a mount needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.rig
def test_a_full_disk_at_the_run_directory(tiny_disk: Path, tmp_path: Path) -> None:
    ended = launch("--run-dir", tiny_disk, HELLO, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert ended.code == 0
    assert f"warning[SL003]: {tiny_disk}: No space left on device: this run is kept in {tmp_path}" in ended.err
    assert list(tiny_disk.iterdir()) == []


def test_the_evidence_may_fill_the_disk_and_the_verdict_still_comes(tmp_path: Path) -> None:
    # The run directory becomes a folder that takes no more files after the start.
    ended = launch("--nproc-per-node", 2, FAULTS / "vandal.py", cwd=tmp_path)

    assert ended.code == 1
    assert "error[SL401]: rank 1 raised ValueError: after the vandals" in ended.err
    told = re.search(
        r"warning\[SL902\]: the evidence cannot be written to \S+/incident-0: .*; it is in (\S+)", ended.err
    )
    assert told, ended.err
    assert f"= bundle: {told[1]}" in ended.err
    assert (Path(told[1]) / "evidence" / "case.json").is_file()
    shutil.rmtree(told[1])


def test_runs_of_one_id_never_share_a_folder(tmp_path: Path) -> None:
    for _ in range(2):
        assert launch("--rdzv-id", "mine", HELLO, cwd=tmp_path).code == 0

    assert sorted(path.name for path in (tmp_path / "safelaunch_runs").iterdir()) == ["mine", "mine.2"]
    assert (tmp_path / "safelaunch_runs/mine").stat().st_mode & 0o777 == 0o700


def test_a_taken_port_names_its_holder(tmp_path: Path, free_port: int) -> None:
    with subprocess.Popen(
        ["python3", "-c", f"import socket; s = socket.create_server(('', {free_port})); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()

        ended = launch("--master-port", free_port, HELLO, cwd=tmp_path)

        assert ended.code == 69
        assert f"error[SL102]: port {free_port}" in ended.err
        assert str(holder.pid) in ended.err
        assert "hello" not in ended.out
        holder.communicate(b"\n")


def test_torch_is_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")

    ended = launch(HELLO, cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    assert ended.code == 70
    assert "error[SL601]: torch cannot be imported: no torch here" in ended.err


def test_a_bad_profile_stops_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('description = "x"\n\n[timeouts]\nproces_group = "10m"\n')

    ended = launch("--profile", "./bad.toml", HELLO, cwd=tmp_path)

    refused(ended, "SL203", 78, "bad.toml:4", "process_group")
    assert not (tmp_path / "safelaunch_runs").exists()


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    ended = launch("--dry-run", "--nproc-per-node", 2, "--profile", "debug", HELLO, "--lr", "0.1", cwd=tmp_path)

    assert ended.code == 0
    assert "NCCL_DEBUG=INFO" in ended.out
    assert f"torchrun --nproc-per-node 2 {HELLO} --lr 0.1" in ended.out
    assert not (tmp_path / "safelaunch_runs").exists()


def test_the_result_is_json_on_request(tmp_path: Path) -> None:
    ended = launch("--json", "result.json", "--nproc-per-node", 2, FAULTS / "victim.py", "exit", 1, cwd=tmp_path)

    result = json.loads((tmp_path / "result.json").read_text())
    assert result["exit_code"] == ended.code == 1
    assert result["schema_version"] == 1
    assert [verdict["code"] for verdict in result["verdicts"]] == ["SL407"]
    exits = {worker["rank"]: worker["exit"]["code"] for worker in result["attempts"][0]["workers"]}
    assert exits[1] == 3


@pytest.mark.parametrize("target", ["/dev/null", "/dev/full", "-", "fifo"])
@pytest.mark.parametrize("failing", [False, True])
def test_where_the_result_goes_costs_no_exit_code(tmp_path: Path, target: str, failing: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    command = ["--json", target, "--preflight", "off", "--no-python", "false" if failing else "true"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*SAFELAUNCH, *command], cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert ended.returncode == int(failing)
    told = f"warning[SL902]: --json {target}: the result cannot be written there: No space left on device"
    assert (told in ended.stderr.decode()) == (target in ("/dev/full", "-"))
    assert all(stat.S_ISCHR(os.stat(f"/dev/{name}").st_mode) for name in ("null", "full"))
    if target == "fifo":
        assert json.loads(os.read(reader, 1 << 20))["exit_code"] == int(failing)
    os.close(reader)

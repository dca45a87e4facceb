"""Where torchrun trains, safelaunch does: nodes without room, memory, limits or folders that can be written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import SAFELAUNCH, TORCHRUN, environment, launch

pytestmark = pytest.mark.rig

TRAINS = """\
import os, sys
import torch.distributed as dist
import torch

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
sys.stdout.write(f"trained {dist.get_rank()} {int(total.item())}\\n")  # whole: ranks share the stream
if sys.argv[1:] == ["fail"] and dist.get_rank() == 1:
    raise ValueError("shard 17 is truncated")
dist.destroy_process_group()
"""

READ_ONLY_CWD = "mount --bind . . && mount -o remount,bind,ro . && cd $PWD"
NO_TEMPORARY = (
    "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && cd $PWD && mount -t tmpfs -o ro none /var/tmp"
)
FULL_CWD = "mount -t tmpfs -o size=64k none . && cd $PWD && cat /dev/zero > filler 2> /dev/null"
SMALL_SHM = "mount -t tmpfs -o size={} none /dev/shm"

# How the node is, and what safelaunch says of it.
NODES = {
    "read-only-cwd": (READ_ONLY_CWD, r"warning\[SL003\]: \S+/safelaunch_runs: Read-only file system: this run is kept"),
    "file-in-the-way": ("echo precious > safelaunch_runs", r"warning\[SL003\]: \S+ is a file, not a folder: this run"),
    "full-cwd": (FULL_CWD, r"warning\[SL003\]: \S+: No space left on device: this run is kept"),
    "small-shm": (SMALL_SHM.format("64k"), r"warning\[SL104\]: 64 KiB free in /dev/shm"),
    "read-only-shm": (SMALL_SHM.format("1m,ro"), r"warning\[SL104\]: /dev/shm is mounted read-only: .* NCCL fail"),
    "full-shm": (
        SMALL_SHM.format("64k") + "; cat /dev/zero > /dev/shm/filler 2> /dev/null",
        r"warning\[SL104\]: 0 B free in /dev/shm",
    ),
    "few-open-files": ("ulimit -n 64", r"warning\[SL101\]: a rank may open 64 files"),
    "short-files": ("ulimit -f 128", r"warning\[SL003\]: files may not grow beyond 64 KiB"),
    "no-proc": ("mount -t tmpfs none /proc", r"warning\[SL902\]: there is no /proc: torchrun runs this job"),
}


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, on a file system that no test mounts over."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a mount namespace of its own takes root")
    folder = tmp_path_factory.mktemp("project")
    (folder / "work").mkdir()
    (folder / "train.py").write_text(TRAINS)
    return folder


def surrounded(setup: str, *command: object, project: Path, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """Run a launcher of two ranks on a node that a shell script has prepared."""
    shell = ["unshare", "-m", "sh", "-c", f'{setup}\nexec "$@"', "sh"]
    words = [*shell, *map(str, command)]
    changes = {"TMPDIR": "/tmp", "HOME": str(project), **changes}
    return subprocess.run(
        words,
        cwd=project / "work",
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def trained(ended: subprocess.CompletedProcess[str]) -> bool:
    return ended.returncode == 0 and sorted(re.findall(r"trained \d \d", ended.stdout)) == [
        "trained 0 2",
        "trained 1 2",
    ]


@pytest.mark.long
@pytest.mark.parametrize("node", NODES)
def test_torchrun_trains(project: Path, node: str) -> None:
    assert trained(surrounded(NODES[node][0], *TORCHRUN, "--nproc-per-node", 2, project / "train.py", project=project))


@pytest.mark.parametrize("node", NODES)
def test_what_torchrun_trains_is_trained_with_a_warning(project: Path, node: str) -> None:
    setup, says = NODES[node]
    ended = surrounded(setup, *SAFELAUNCH, "--nproc-per-node", 2, project / "train.py", project=project)

    assert trained(ended), ended.stderr
    assert re.search(says, ended.stderr), ended.stderr
    assert "error" not in ended.stderr.lower().replace("error in cpuinfo", "")


@pytest.mark.parametrize("node", ["full-cwd", "full-shm", "short-files"])
def test_the_verdict_comes_there_with_its_evidence(project: Path, node: str) -> None:
    memory = project / "memory"
    memory.mkdir()
    setup = f"{NODES[node][0]}\nexport TMPDIR={memory}"
    ended = surrounded(
        setup, *SAFELAUNCH, "--preflight", "off", "--nproc-per-node", 2, project / "train.py", "fail", project=project
    )

    assert ended.returncode == 1
    assert "error[SL401]: rank 1 raised ValueError: shard 17 is truncated" in ended.stderr
    bundle = re.search(r"= bundle: (\S+)", ended.stderr)
    assert bundle, ended.stderr
    assert "cannot be written" not in ended.stderr
    assert Path(project / "work" / bundle[1]).is_dir()


def test_a_limit_of_files_that_nothing_fits_is_named(project: Path) -> None:
    ended = surrounded("ulimit -f 1", *SAFELAUNCH, "--nproc-per-node", 1, project / "train.py", project=project)

    assert ended.returncode == 69
    assert "error[SL003]: files may not grow beyond 512 B (ulimit -f)" in ended.stderr
    assert "SL901" not in ended.stderr


FILLS = """\
import os
try:
    with open("checkpoint", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
except OSError:
    if os.environ["RANK"] == "0":
        raise
"""


def test_a_disk_that_ranks_have_filled_keeps_no_verdict_from_its_evidence(project: Path) -> None:
    (project / "fill.py").write_text(FILLS)
    setup = "mount -t tmpfs -o size=3m none . && cd $PWD"
    search = 'sh -c \'"$@"; code=$?; find . -name "*.part"; exit $code\' sh'
    ended = surrounded(
        f'{setup}\nset -- {search} "$@"',
        *(*SAFELAUNCH, "--preflight", "off", "--nproc-per-node", 2, project / "fill.py"),
        project=project,
    )
    assert ended.returncode == 1, ended.stderr
    assert "No space left on device" in ended.stderr
    full = r"evidence cannot be written to (\S+): \1/\S+: No space left on device; it is in (\S+)"
    told = re.search(full, ended.stderr)
    assert told, ended.stderr
    assert re.search(rf"= bundle: {told[2]}   exit 1", ended.stderr)
    assert "None" not in ended.stderr
    assert ended.stdout == ""  # no part of a file is left
    folder = Path(told[2])
    assert folder.parent == Path("/dev/shm")
    assert folder.stat().st_mode & 0o777 == 0o700
    again = subprocess.run([*SAFELAUNCH, "diagnose", str(folder)], capture_output=True, text=True, check=True)
    assert "error[SL423]" in again.stdout
    shutil.rmtree(folder)


def test_where_no_temporary_file_can_be_written_memory_serves(project: Path) -> None:
    # torchrun itself needs one.
    ended = surrounded(
        f"{NO_TEMPORARY} && {READ_ONLY_CWD}",
        *SAFELAUNCH,
        *("--nproc-per-node", 2, "--preflight", "off", "--no-python", "sh", "-c", "echo trained $RANK 2"),
        project=project,
        HOME="/proc",
    )
    assert trained(ended), ended.stderr
    assert "this run is kept in /dev/shm/safelaunch_runs-" in ended.stderr


def test_an_unprivileged_user_where_he_may_not_write(project: Path) -> None:
    (project / "bin").mkdir()
    os.chmod(project, 0o755)
    python = Path(SAFELAUNCH[0]).resolve()
    if any(not path.stat().st_mode & 0o005 for path in python.parents):
        pytest.skip("other users may not run this Python")
    user = ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups"]
    ended = surrounded(":", *user, *SAFELAUNCH, "--nproc-per-node", 2, project / "train.py", project=project)
    assert trained(ended), ended.stderr
    assert "safelaunch_runs: Permission denied: this run is kept in /tmp/safelaunch_runs-" in ended.stderr


def test_a_chosen_run_directory_that_cannot_be_made_is_refused_as_torchruns_log_dir(project: Path) -> None:
    for launcher, option in ((SAFELAUNCH, "--run-dir"), (TORCHRUN, "--log-dir")):
        command = [*launcher, "--nproc-per-node", 2, option, "/proc/runs", project / "train.py"]
        ended = surrounded(":", *command, project=project)
        assert ended.returncode != 0
        assert not ended.stdout


def test_the_result_names_the_folder_in_which_the_run_is_kept(project: Path) -> None:
    ended = surrounded(
        READ_ONLY_CWD,
        *(*SAFELAUNCH, "--json", "-", "--preflight", "off", "--no-python", "true"),
        project=project,
        TMPDIR=str(project),
    )
    run_dir = Path(json.loads(ended.stdout)["run_dir"])
    assert run_dir.parent.parent == project
    assert (run_dir / "result.json").read_text() == ended.stdout


RESTARTS = """\
import os, sys
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
for number in range(1000 if attempt == "0" else 0):
    try:
        open(f"file-{number}", "x").close()
    except OSError:
        break
print("attempt", attempt, flush=True)
sys.exit(attempt == "0")
"""


def test_a_disk_without_room_for_a_file_stops_no_restart(project: Path) -> None:
    (project / "restarts.py").write_text(RESTARTS)
    ended = surrounded(
        "mount -t tmpfs -o size=4m,nr_inodes=60 none . && cd $PWD",
        *(*SAFELAUNCH, "--preflight", "off", "--max-restarts", 1, "--nproc-per-node", 1, project / "restarts.py"),
        project=project,
        TMPDIR=str(project),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["attempt", "0", "attempt", "1"]
    assert f"the logs of the ranks go to {project}/torchelastic_" in ended.stderr
    told = re.search(r"; it is in (/dev/shm/\S+)", ended.stderr)
    assert told, ended.stderr
    shutil.rmtree(told[1])


@pytest.mark.parametrize("module", ["queue", "socket", "psutil"])
def test_a_module_in_the_working_directory_is_for_the_script(module: str, tmp_path: Path) -> None:
    """`python -m safelaunch` has that directory first on its own path."""
    (tmp_path / f"{module}.py").write_text("raise RuntimeError('for the script')\n")
    (tmp_path / "train.py").write_text("print('trains')\n")

    ended = launch("--preflight", "off", "--no-warm-start", "train.py", cwd=tmp_path)

    assert (ended.code, ended.out) == (0, "trains\n"), ended.err
    assert ended.err == ""

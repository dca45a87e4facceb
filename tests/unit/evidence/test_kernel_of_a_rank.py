"""Where a rank and the processes below it are in the kernel, seen on real processes."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import living
import pytest
from living import HANG, python, soon, until

from safelaunch import procfs
from safelaunch.evidence import kernel, proc_tasks, syscalls

READY = "import os, sys, time\nprint('ready', flush=True)\n"


@pytest.fixture(autouse=True)
def _fresh_scan() -> None:
    proc_tasks.forget()


def look(pid: int) -> dict[str, Any]:
    found = kernel.collect(HANG, living.rank(pid), soon())
    assert found.data is not None, found.unavailable
    return found.data


def in_call(pid: int, *names: str) -> dict[str, Any]:
    """The kernel's word once the process is in one of these calls."""

    def waits() -> dict[str, Any] | None:
        data = look(pid)
        if not data["syscall"] and os.geteuid() != 0:
            pytest.skip("/proc/PID/syscall cannot be read")
        return data if data["syscall"] in names and data["state"] == "S" else None

    return until(waits)


def test_a_rank_that_sleeps() -> None:
    with python(READY + "time.sleep(600)") as process:
        data = in_call(process.pid, "clock_nanosleep", "nanosleep")

    assert data["file"] == ""
    assert data["TracerPid"] == "0"
    assert data["cpu_s"] >= 0  # in ticks of 10 ms
    assert data["io_bytes"] > 0
    assert data["threads"] == data["children"] == []


def test_a_rank_that_reads_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "a fifo"
    os.mkfifo(fifo)
    source = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nprint('ready', flush=True)\nos.read(fd, 1)"
    with python(source, str(fifo)) as process:
        data = in_call(process.pid, "read")

    assert data["file"] == str(fifo)
    assert data["filesystem"] not in ("", "pipefs")


def test_a_rank_that_opens_a_fifo_nobody_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with python(f"import os\nos.chdir({str(tmp_path)!r})\n" + READY + "open('fifo')") as process:
        assert in_call(process.pid, "openat", "open")["file"] == str(tmp_path / "fifo")


def test_a_rank_that_polls_a_pipe() -> None:
    source = "import select\np = select.poll()\np.register(0, select.POLLIN)\n" + READY + "p.poll()"
    with python(source) as process:
        assert in_call(process.pid, "poll", "ppoll")["file"].startswith("pipe:[")


def test_a_stopped_rank_names_its_threads() -> None:
    source = "import threading\nthreading.Thread(target=input, daemon=True).start()\n" + READY + "time.sleep(600)"
    with python(source) as process:
        os.kill(process.pid, signal.SIGSTOP)
        data = until(lambda: data if len((data := look(process.pid))["threads"]) == 2 else None)

    assert data["state"] == "T"
    assert {thread["state"] for thread in data["threads"]} == {"T"}
    assert process.pid in [thread["tid"] for thread in data["threads"]]


CHILD = (
    "import os, sys, subprocess\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import os, sys; os.read(os.open(sys.argv[1], os.O_RDWR), 1)',"
    " sys.argv[1]])\n" + READY + "child.wait()"
)


def test_a_child_that_reads_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with python(CHILD, str(tmp_path / "fifo")) as process:

        def reads() -> dict[str, Any] | None:
            proc_tasks.forget()
            data = look(process.pid)
            return data if [child["syscall"] for child in data["children"]] == ["read"] else None

        data = until(reads)

    (child,) = data["children"]
    assert (child["ppid"], child["state"], child["file"]) == (process.pid, "S", str(tmp_path / "fifo"))
    assert child["name"].startswith("python")
    assert data["syscall"] in ("wait4", "waitid")


def test_what_a_child_used_is_the_ranks_own_once_it_has_ended() -> None:
    reads = "open('/dev/zero', 'rb').read(1 << 26)"
    source = (
        "import os, sys, subprocess\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        f"subprocess.run([sys.executable, '-c', {reads!r}])\nprint('done', flush=True)\nsys.stdin.read()"
    )
    with python(source) as process:
        before = look(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
        after = look(process.pid)

    assert after["io_bytes"] - before["io_bytes"] >= 1 << 26
    assert after["cpu_s"] >= before["cpu_s"]
    assert after["t"] > before["t"]


def test_one_scan_serves_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    monkeypatch.setattr(procfs, "scan", lambda: scans.append(1) or iter(()))
    looks = [threading.Thread(target=proc_tasks.below, args=(os.getpid(),)) for _ in range(8)]
    for thread in looks:
        thread.start()
    for thread in looks:
        thread.join()

    assert len(scans) == 1


def test_calls_have_names() -> None:
    known = {"x86_64": {0: "read", 232: "epoll_wait"}, "aarch64": {63: "read", 22: "epoll_pwait"}}
    for number, name in known.get(os.uname().machine, {}).items():
        assert syscalls.name(number) == name
    assert syscalls.name(99999) == "99999"


MOUNTS = r"""22 27 0:21 / /proc rw - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 27 0:44 / /data rw - nfs4 server:/data rw,hard
91 27 0:45 / /data rw - lustre mds:/data rw
92 27 0:46 / /my\040disk rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/data/shard", "lustre"),  # mounted over the other
        ("/data", "lustre"),
        ("/database", "ext4"),
        ("/my disk/x", "xfs"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_of_a_file(file: str, kind: str) -> None:
    assert proc_tasks.filesystem(MOUNTS, file) == kind


def test_no_file_system_where_nothing_is_mounted() -> None:
    assert proc_tasks.filesystem("", "/x") == ""

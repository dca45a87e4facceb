"""What we read beside somebody else's program must not be taken from it."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from safelaunch import black_box, regular
from safelaunch.settings import kill_wait
from safelaunch.settings.lint import nccl_conf, script


def test_the_beginning_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xc3\xa9 \xff and more")
    assert regular.text(str(tmp_path / "file"), 6) == "café �"
    assert regular.text(str(tmp_path / "none"), 6) is None
    assert regular.text(str(tmp_path), 6) is None
    assert regular.text("/dev/zero", 6) is None
    assert regular.text("a\0b", 6) is None


def test_a_pipe_keeps_what_is_in_it() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"import os\nos.environ['NCCL_A'] = '1'\n")
    path = f"/proc/self/fd/{reader}"
    assert regular.text(path, 100) is None
    assert script.read(path) == script.Script()
    assert os.read(reader, 9) == b"import os"
    os.close(reader)
    os.close(writer)


def test_nobody_waits_for_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / ".nccl.conf"
    os.mkfifo(fifo)
    assert nccl_conf.settings({"HOME": str(tmp_path)}, str(fifo)) == ()
    assert kill_wait.read(str(fifo)) is None
    assert script.read(str(fifo)) == script.Script()


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert regular.read(str(tmp_path / "file"), 10) == b"0123456789"
    assert regular.read(str(tmp_path / "file"), 10, offset=4) == b"456789"
    with pytest.raises(OSError, match="File too large"):
        regular.read(str(tmp_path / "file"), 9)
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(OSError, match="File too large"):
        regular.read(str(tmp_path / "sparse"), 1 << 20)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/zero", str(tmp_path / "fifo"), str(tmp_path)):
        with pytest.raises(OSError, match="it is no regular file"):
            regular.read(path)


def test_a_file_that_counts_is_its_owners_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    (tmp_path / "link").symlink_to(path)
    assert regular.read(str(path), owner=os.getuid()) == b"mine"
    assert regular.read(str(tmp_path / "link")) == b"mine"
    with pytest.raises(OSError, match="link"):
        regular.read(str(tmp_path / "link"), owner=os.getuid())
    with pytest.raises(PermissionError, match="belongs to another user"):
        regular.read(str(path), owner=os.getuid() + 1)


def test_what_is_mapped_of_another_user_cannot_be_cut_off(tmp_path: Path) -> None:
    """Whoever has it mapped while its owner shortens it is killed."""
    plain = os.open(tmp_path / "plain", os.O_CREAT | os.O_RDWR)
    loose = os.memfd_create("safelaunch", os.MFD_ALLOW_SEALING)
    for opened in (plain, loose):
        with pytest.raises(OSError, match="can cut it off"):
            regular.demand_sealed(opened, "box")
    path = str(tmp_path / "box")
    black_box.create(path, 1)
    opened = os.open(path, os.O_RDWR)
    regular.demand_sealed(opened, path)
    os.close(opened)


def test_what_is_not_to_be_read_notices_nothing(tmp_path: Path) -> None:
    """A FIFO whose reader goes ends its writer, and some devices act when they are opened."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    for path in ("fifo", "link"):
        with pytest.raises(OSError, match="no regular file"):
            regular.descriptor(str(tmp_path / path), writable=True)

    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(0) == []  # a writer that has gone is POLLHUP
    os.close(reader)


def test_without_proc_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    opened = os.open

    def without_proc(path: str, *rest: int, **named: int) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return opened(path, *rest, **named)

    monkeypatch.setattr(os, "open", without_proc)
    assert regular.read(str(tmp_path / "file")) == b"x"


def test_what_the_kernel_makes_as_it_is_read_is_not_taken(tmp_path: Path) -> None:
    """/proc/kmsg and trace_pipe are regular files to stat(2); those of tracefs and /proc have no size."""
    assert regular.read("/proc/self/status") == b""
    assert regular.text("/proc/self/status", 100) == ""
    assert regular.beginning("/proc/self/status", 100) == b""
    os.symlink("/proc/self/status", tmp_path / "a.log")
    with open(regular.given(str(tmp_path / "a.log")), "rb") as file:
        assert file.read() == b""


def test_a_pipe_that_a_shell_names_is_read() -> None:
    """`safelaunch diagnose <(zcat job.log.gz)`: its file system has no blocks either."""
    reader, writer = os.pipe()
    os.write(writer, b"a line")
    os.close(writer)
    with open(regular.given(f"/proc/self/fd/{reader}"), "rb") as file:
        assert file.read() == b"a line"
    os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make links of others")
def test_root_is_not_led_to_what_another_user_may_not_read(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_bytes(b"a password")
    (tmp_path / "his").write_bytes(b"a log")
    os.chown(tmp_path / "his", 1234, 1234)
    for name, target, owner in (("a", "shadow", 1234), ("b", "his", 1234), ("c", "his", 0), ("d", "shadow", 0)):
        os.symlink(target, tmp_path / name)
        os.chown(tmp_path / name, owner, owner, follow_symlinks=False)

    with pytest.raises(OSError, match="leads there to what is another's"):
        regular.read(str(tmp_path / "a"))
    assert regular.text(str(tmp_path / "a"), 100) is None
    assert regular.document(str(tmp_path / "a")) == {}
    assert [regular.read(str(tmp_path / name)) for name in "bcd"] == [b"a log", b"a log", b"a password"]

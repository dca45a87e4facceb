"""What a user has named is written as a shell's redirection would write it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harness import environment

from safelaunch import output

LARGE = b"x" * 300_000  # more than a pipe holds


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits long for a reader that does not come."""
    monkeypatch.setattr(output, "PATIENCE_S", 0.2)


def said(path: object, *, tmp_path: Path, script: str = "", **streams: object) -> subprocess.CompletedProcess[bytes]:
    """Write by a process with streams of its own."""
    source = f"{script}\nfrom safelaunch import output\noutput.write({str(path)!r}, b'result')\n"
    return subprocess.run(
        [sys.executable, "-c", source], env=environment(), cwd=tmp_path, timeout=60, check=False, **streams
    )


def test_a_new_file_has_the_mode_that_a_shell_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        output.write(str(tmp_path / "new" / "result.json"), b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "result.json").read_bytes() == b"{}"
    assert (tmp_path / "new" / "result.json").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result.json"]


@pytest.mark.parametrize("mode", [0o604, 0o666])
def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    path.chmod(mode)
    with open(path, "rb") as reader:
        output.write(str(path), b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode


def test_a_link_leads_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "result.json").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there/result.json")
    (tmp_path / "to-nothing").symlink_to("there/other.json")
    for name in ("link", "to-nothing"):
        output.write(str(tmp_path / name), b"new")
        assert (tmp_path / name).is_symlink()
    assert {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()} == {
        "result.json": b"new",
        "other.json": b"new",
    }


def test_both_names_of_a_file_show_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a longer text than the new one")
    os.link(tmp_path / "a", tmp_path / "b")
    output.write(str(tmp_path / "a"), b"new")
    assert (tmp_path / "b").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users take root")
class TestAsRoot:
    """Who owns a folder in which root works may put there what he likes, and when he likes."""

    def refused(self, path: Path, why: str) -> None:
        with pytest.raises(PermissionError, match=why) as caught:
            output.write(str(path), b"new")
        assert caught.value.filename == str(path)

    def test_a_file_of_another_user_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "result.json").write_bytes(b"old")
        os.chown(tmp_path / "result.json", 1234, 1234)
        self.refused(tmp_path / "result.json", r"belongs to another user \(uid 1234\)")
        assert (tmp_path / "result.json").read_bytes() == b"old"

    @pytest.mark.parametrize("target", ["precious", "new", "below/new"])
    def test_a_link_of_another_user_leads_to_nothing_of_ours(self, tmp_path: Path, target: str) -> None:
        (tmp_path / "ours" / "below").mkdir(parents=True)
        (tmp_path / "ours" / "precious").write_bytes(b"old")
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "report.html").symlink_to(tmp_path / "ours" / target)
        (tmp_path / "theirs" / "folder").symlink_to(tmp_path / "ours")
        for name in ("report.html", "folder", "."):
            os.chown(tmp_path / "theirs" / name, 1234, 1234, follow_symlinks=False)
        self.refused(tmp_path / "theirs" / "report.html", "the link of one user")
        self.refused(tmp_path / "theirs" / "folder" / target, "the link of one user")
        assert (tmp_path / "ours" / "precious").read_bytes() == b"old"
        assert not [*tmp_path.rglob("new")]

    def test_no_folder_is_made_through_such_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "ours").mkdir()
        (tmp_path / "folder").symlink_to(tmp_path / "ours")
        os.chown(tmp_path / "folder", 1234, 1234, follow_symlinks=False)
        self.refused(tmp_path / "folder" / "made" / "report.html", "the link of one user")
        assert not [*(tmp_path / "ours").iterdir()]

    def test_a_second_name_of_a_file_of_ours_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_bytes(b"old")
        (tmp_path / "theirs").mkdir()
        os.link(tmp_path / "precious", tmp_path / "theirs" / "report.html")
        os.chown(tmp_path / "theirs", 1234, 1234)
        self.refused(tmp_path / "theirs" / "report.html", "a second name")
        assert (tmp_path / "precious").read_bytes() == b"old"

    def test_what_is_put_there_meanwhile_is_left_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "precious").write_bytes(b"old")
        (tmp_path / "theirs").mkdir()
        path, put = tmp_path / "theirs" / "report.html", output.files.put

        def swapped(*arguments: object, **more: object) -> None:
            path.symlink_to(tmp_path / "precious")
            put(*arguments, **more)

        monkeypatch.setattr(output.files, "put", swapped)
        output.write(str(path), b"new")
        assert (tmp_path / "precious").read_bytes() == b"old"
        assert path.read_bytes() == b"new"

    def test_a_new_file_in_a_folder_of_another_user_is_written(self, tmp_path: Path) -> None:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 1234, 1234)
        output.write(str(tmp_path / "theirs" / "report.html"), b"new")
        assert (tmp_path / "theirs" / "report.html").read_bytes() == b"new"


def test_a_device_stays_one(tmp_path: Path) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        null.open("wb").close()
    except OSError:
        pytest.skip("devices take root")
    output.write(str(null), b"result")
    assert stat.S_ISCHR(null.stat().st_mode)
    output.write("/dev/null", b"result")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_is_told_by_its_name() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        output.write("/dev/full", b"result")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize("path", ["-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "link"])
def test_the_standard_output_is_added_to(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    with open(tmp_path / "log", "wb") as log:
        log.write(b"what the ranks have printed\n")
        log.flush()
        assert said(path, tmp_path=tmp_path, stdout=log).returncode == 0
    assert (tmp_path / "log").read_bytes() == b"what the ranks have printed\nresult"
    assert said(path, tmp_path=tmp_path, stdout=subprocess.PIPE).stdout == b"result"


def test_a_descriptor_that_a_shell_has_opened_is_written_to(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as file:
        assert said(f"/dev/fd/{writer}", tmp_path=tmp_path, pass_fds=[writer]).returncode == 0
        os.close(writer)
        assert file.read() == b"result"


@pytest.mark.parametrize("late", [False, True])
def test_who_reads_a_fifo_gets_it_all(tmp_path: Path, late: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    writer = threading.Thread(target=output.write, args=(str(fifo), LARGE))
    for thread in (writer, reader) if late else (reader, writer):
        thread.start()
    for thread in (reader, writer):
        thread.join()
    assert read == [LARGE]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.usefixtures("impatient")
def test_a_fifo_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match=r"nobody reads this pipe, for 0.2 s: '.*fifo'"):
        output.write(str(tmp_path / "fifo"), b"result")


@pytest.mark.usefixtures("impatient")
def test_a_reader_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match=r"its reader has taken nothing for 0.2 s: '.*fifo'"):
        output.write(str(tmp_path / "fifo"), LARGE)
    os.close(reader)


@pytest.mark.usefixtures("impatient")
def test_a_blocking_pipe_that_nobody_empties_is_given_up() -> None:
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="its reader has taken nothing"):
        output.write(f"/dev/fd/{writer}", LARGE)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("path", ["{}", "{}/file/below", "/proc/nowhere/result.json"])
def test_what_cannot_be_written_is_told_by_its_name_and_leaves_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(OSError, match=re.escape(path.format(tmp_path))) as caught:
        output.write(path.format(tmp_path), b"result")
    assert caught.value.filename == path.format(tmp_path)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"precious"}

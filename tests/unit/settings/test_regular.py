"""What we read beside somebody else's program must not be taken from it."""

from __future__ import annotations

import os
from pathlib import Path

from safelaunch.settings import kill_wait, regular
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

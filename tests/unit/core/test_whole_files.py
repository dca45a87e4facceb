from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import environment

from safelaunch import files
from safelaunch.model import Exit


def test_documents_are_written_as_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "document.json"
    files.write_json(str(path), {"exit": Exit(-9, 1.5), "ranks": (1, 2), "path": Path("/x")})

    assert json.loads(path.read_text()) == {"exit": {"code": -9, "t": 1.5}, "ranks": [1, 2], "path": "/x"}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["document.json"]


def test_text_that_is_no_unicode_is_kept_readable(tmp_path: Path) -> None:
    files.write_text(str(tmp_path / "text"), "caf\udce9")

    assert (tmp_path / "text").read_text() == "caf\\udce9"


def test_a_document_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text("old")
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises((ValueError, RecursionError)):
        files.write_json(str(path), loop)
    assert path.read_text() == "old"


def test_a_full_disk_leaves_the_old_document(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text("old")
    source = f"from safelaunch import files\nfiles.write_text({str(path)!r}, 'x' * 10_000_000)"

    def small_files_only() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = subprocess.run(
        [sys.executable, "-c", source], env=environment(), capture_output=True, text=True, preexec_fn=small_files_only
    )

    assert "OSError" in done.stderr
    assert path.read_text() == "old"


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    files.write_text(str(path), "a" * 1_000_000)
    with open(path) as reader:  # opened before, read after the next write
        files.write_text(str(path), "b")

        assert set(reader.read()) == {"a"}
    assert path.read_text() == "b"


def test_a_fault_has_the_name_of_the_file_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def __init__(self, descriptor: int, _mode: str) -> None:
            os.close(descriptor)

        def write(self, _data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as write(2) has it: without a name

    monkeypatch.setattr(files, "open", Full, raising=False)
    with pytest.raises(OSError, match="No space left on device") as caught:
        files.write_text(str(tmp_path / "verdict.json"), "{}")
    assert caught.value.filename == str(tmp_path / "verdict.json")
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("precious")
    (tmp_path / "result.json").symlink_to(tmp_path / "secret")
    files.write_text(str(tmp_path / "result.json"), "{}")
    assert (tmp_path / "secret").read_text() == "precious"
    assert not (tmp_path / "result.json").is_symlink()
    (tmp_path / "agent.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"agent\.jsonl"):
        files.append_to(str(tmp_path / "agent.jsonl"))


def test_what_is_there_is_not_taken_for_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            files.make(str(tmp_path / name))
    files.make(str(tmp_path / "above" / "new"))
    assert (tmp_path / "above" / "new").stat().st_mode & 0o777 == 0o700


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    files.write_text(str(tmp_path / "env.txt"), "A=1\n")
    assert (tmp_path / "env.txt").stat().st_mode & 0o777 == 0o600

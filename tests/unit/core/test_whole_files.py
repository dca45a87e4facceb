from __future__ import annotations

import json
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

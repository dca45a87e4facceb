"""The file with the job's secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cluster.secret import SecretError, job_key

SHARED = "ab" * 32


def written(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_without_a_file_the_store_is_trusted() -> None:
    assert job_key(SHARED, "") == bytes.fromhex(SHARED)


def test_with_a_file_the_store_alone_does_not_do(tmp_path: Path) -> None:
    one = job_key(SHARED, written(tmp_path / "one", "hunter2\n", 0o600))
    other = job_key(SHARED, written(tmp_path / "other", "hunter3\n", 0o600))
    assert len({one, other, bytes.fromhex(SHARED)}) == 3
    assert one == job_key(SHARED, written(tmp_path / "again", "hunter2", 0o400))


def test_a_secret_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (
        written(tmp_path / "open", "hunter2", 0o644),
        written(tmp_path / "empty", "\n", 0o600),
        str(tmp_path / "nowhere"),
        str(tmp_path),
    ):
        with pytest.raises(SecretError, match=path):
            job_key(SHARED, path)

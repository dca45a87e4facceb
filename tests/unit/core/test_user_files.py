"""Where a user's own small documents are kept, and where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch import user_files


def test_a_document_is_kept_and_found(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "safelaunch" / "node.json"

    user_files.keep(str(path), {"passed": 1})

    assert user_files.load(str(path)) == {"passed": 1}
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
@pytest.mark.parametrize("theirs", ["home", "home/.cache", "home/.cache/safelaunch"])
def test_root_writes_nothing_where_another_user_can_put_a_link(tmp_path: Path, theirs: str) -> None:
    """With the HOME of a user, as where `sudo` keeps it."""
    (tmp_path / "root" / "safelaunch").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    link = tmp_path / theirs
    if theirs != "home":
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tmp_path / "root")
    os.chown(link, 65534, 65534, follow_symlinks=False)

    with pytest.raises(PermissionError, match="it belongs to another user"):
        user_files.keep(str(tmp_path / "home/.cache/safelaunch/node.json"), {})

    assert not list((tmp_path / "root/safelaunch").iterdir())


def test_a_link_in_the_cache_leads_nowhere(tmp_path: Path) -> None:
    """Root may run with the HOME of another user, who knows of files that have no end."""
    (tmp_path / "node.json").symlink_to("/dev/zero")
    (tmp_path / "kept.json").write_text("{}")
    (tmp_path / "other.json").symlink_to(tmp_path / "kept.json")

    for name in ("node.json", "other.json"):
        with pytest.raises(OSError, match=name):
            user_files.load(str(tmp_path / name))

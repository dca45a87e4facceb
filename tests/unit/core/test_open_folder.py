"""A folder that is opened once: what lies below it, and nothing else, is reached, whatever its owner does meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch.open_folder import OpenFolder


def read(held: OpenFolder, path: object) -> bytes:
    with open(held.open(str(path)), "rb") as file:
        return file.read()


def test_no_link_on_the_way_leads_out_of_it(tmp_path: Path) -> None:
    """Whoever owns the folder may put one there between a look and the reading."""
    (tmp_path / "theirs/inside").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/file").write_bytes(b"secret")
    (tmp_path / "theirs/inside/file").write_bytes(b"theirs")
    (tmp_path / "theirs/folder").symlink_to(tmp_path / "ours")
    (tmp_path / "theirs/file").symlink_to(tmp_path / "ours/file")
    os.mkfifo(tmp_path / "theirs/pipe")
    (tmp_path / "named").symlink_to("theirs/.")
    root = tmp_path / "named"  # what the user has named may be a link of his own

    held = OpenFolder(str(root))
    assert read(held, root / "inside/file") == b"theirs"
    for path in ("folder/file", "file", "../ours/file", "inside/../folder/file", "pipe", ""):
        with pytest.raises(OSError, match=r"link leads there|not below|no regular file|No such"):
            held.open(f"{root}/{path}")
    assert list(held.walk()) == [
        (str(root), ["inside"], ["file", "folder", "pipe"]),
        (str(root / "inside"), [], ["file"]),
    ]


def test_it_stays_the_same_when_its_path_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "file").write_text(name)
    root = tmp_path / "theirs"
    held = OpenFolder(str(root))
    walk = held.walk()
    assert next(walk) == (str(root), ["below"], [])
    root.rename(tmp_path / "old")
    root.symlink_to("ours")
    assert next(walk) == (str(root / "below"), [], ["file"])
    assert held.text(str(root / "below/file"), 100) == "theirs"


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "round").symlink_to("round")
    for name in ("file", "round", "missing", "file/below"):
        with pytest.raises(OSError, match=r"."):
            OpenFolder(str(tmp_path / name))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
def test_the_link_of_another_user_leads_to_his_own_alone(tmp_path: Path) -> None:
    for name, owner in (("ours", 0), ("his", 12345), ("a_third", 12346)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, owner, owner)
        (tmp_path / f"to_{name}").symlink_to(name)
        os.lchown(tmp_path / f"to_{name}", 12345, 12345)
    OpenFolder(str(tmp_path / "to_his")).close()
    for name in ("to_ours", "to_a_third"):
        with pytest.raises(PermissionError):
            OpenFolder(str(tmp_path / name))


def test_files_are_read_and_removed_in_the_folder_and_behind_no_link(tmp_path: Path) -> None:
    for name in ("theirs/inside", "theirs/other", "ours"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text('{"of": "' + name + '"}')
    root = tmp_path / "theirs"
    (root / "led").symlink_to(tmp_path / "ours")
    held = OpenFolder(str(root))

    assert held.document(str(root / "inside/file"), 100) == {"of": "theirs/inside"}
    assert held.document(str(root / "led/file"), 100) == {}
    assert held.names(str(root)) == ["inside", "led", "other"]
    assert held.folders() == ["inside", "other"]
    assert [held.has(f"{root}/{name}") for name in ("inside/file", "led/file", "led", "inside", "nothing")] == [
        True, False, False, False, False,
    ]  # fmt: skip
    for path, most, owner in (
        ("inside/file", 3, None),
        ("inside/file", 100, os.geteuid() + 1),
        ("led/file", 100, None),
    ):
        with pytest.raises(OSError, match=r"too large|another user|link leads there"):
            held.read(str(root / path), most, owner)

    held.remove(str(root / "inside/file"), held.found(str(root / "other/file")))
    assert (root / "inside/file").exists()  # it is another one
    for path in ("inside/file", "other/file", "led/file", "nothing"):
        held.remove(str(root / path), held.found(str(root / path)))

    assert [name for name in ("inside", "other", "led") if (root / name / "file").exists()] == ["led"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_in_a_folder_of_another_user_nothing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "theirs/ours").mkdir(parents=True)
    (tmp_path / "theirs/ours/file").touch()
    os.chown(tmp_path / "theirs", 12345, 12345)
    held = OpenFolder(str(tmp_path / "theirs"))

    held.remove(str(tmp_path / "theirs/ours/file"))

    assert (tmp_path / "theirs/ours/file").exists()
    assert held.folders() == []

"""The list of bad nodes: people and several runs write it, and what it says of a node is found by any of its names."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from safelaunch import bad_nodes

LIST = """# our bad nodes
node-b  2026-11-20  SL428: GPU 3 failed: Xid 79
gpu-7.cluster\tcooling   # ask the admins

10.0.0.7
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "bad").write_text(LIST)
    return str(tmp_path / "bad")


def test_lines_of_people_are_read(path: str) -> None:
    assert [(one.host, one.why, one.line) for one in bad_nodes.read(path)] == [
        ("node-b", "2026-11-20 SL428: GPU 3 failed: Xid 79", 2),
        ("gpu-7.cluster", "cooling", 3),
        ("10.0.0.7", "", 5),
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("node-b", True),
        ("node-b.cluster", True),
        ("NODE-B", True),
        ("gpu-7", True),
        ("gpu-7.other", False),
        ("node-b2", False),
        ("10.0.0.7", True),
        ("10.0.0.8", False),
        ("10", False),
    ],
)
def test_a_missing_domain_makes_no_difference(name: str, found: bool, path: str) -> None:
    assert (bad_nodes.find((name,), bad_nodes.read(path)) is not None) is found


def test_a_pod_is_found_by_the_name_of_its_node(path: str) -> None:
    names = bad_nodes.own_names("train-0-abcde", {"NODE_NAME": "node-b"})
    assert bad_nodes.find(names, bad_nodes.read(path)) is not None


def test_there_need_be_no_list_yet(tmp_path: Path) -> None:
    assert bad_nodes.read(str(tmp_path / "none")) == ()


def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(OSError, match=r".*"):
            bad_nodes.read(str(path))
        with pytest.raises(OSError, match=r".*"):
            bad_nodes.add(str(path), "node-c", "SL428: GPU 0 failed")


def test_a_node_is_written_once_and_on_a_line_of_its_own(path: str) -> None:
    Path(path).write_text("node-b  the last line has no end")

    assert bad_nodes.add(path, "node-c", "SL428: GPU 0 failed:\nXid 79 in call #41\x1b[31m")
    assert not bad_nodes.add(path, "node-c.cluster", "SL428: again")
    assert not bad_nodes.add(path, "node-b", "SL428: again")

    first, second = bad_nodes.read(path)
    assert first.host == "node-b"
    assert second.why.partition(" ")[2] == "SL428: GPU 0 failed: Xid 79 in call no. 41 [31m"


def test_nodes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    path = str(tmp_path / "bad")
    threads = [threading.Thread(target=bad_nodes.add, args=(path, f"node-{n}", "SL112: reset")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {one.host for one in bad_nodes.read(path)} == {f"node-{n}" for n in range(8)}


def test_nothing_is_written_through_what_another_user_may_have_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("mine\n")
    listed, link = tmp_path / "bad", tmp_path / "link"
    os.link(keys, listed)
    link.symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="second name"):
        bad_nodes.add(str(listed), "node-c", "x")
    assert bad_nodes.add(str(link), "node-c", "x"), "our own link may lead there"
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if os.lstat(link).st_uid == 0:  # root's links are followed
        os.chown(link, 1234, -1, follow_symlinks=False)
    with pytest.raises(PermissionError):
        bad_nodes.add(str(link), "node-d", "x")
    assert keys.read_text() == "mine\n"


@pytest.mark.parametrize("data", [b"\0" * 100, bytes(range(256)) * 40])
def test_what_is_no_text_is_no_list(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(OSError, match="it is no text"):
        bad_nodes.read(str(tmp_path / "bad"))

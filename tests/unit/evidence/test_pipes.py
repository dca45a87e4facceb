"""Asking ranks of NCCL for their Flight Recorder through torch's own pipe."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from safelaunch import procfs
from safelaunch.evidence import pipes
from safelaunch.evidence.ranks import Identity, RankProcess, Seen


def rank(folder: Path, number: int = 3, pipe: bool = True) -> RankProcess:
    """This process as a rank."""
    process = procfs.read(os.getpid())
    assert process is not None
    environ = {"TORCH_FR_DUMP_TEMP_FILE": str(folder / "dump_")}
    if pipe:
        environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = str(folder / "ask_")
    return RankProcess(Identity(3, number, 4, number, ()), Seen(process, "train.py", True, environ, owner=os.geteuid()))


def test_a_byte_in_the_pipe_brings_a_dump(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_3.pipe")
    reader = os.open(tmp_path / "ask_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "dump_3").write_bytes(b"of an hour ago")

    def monitor() -> None:
        os.set_blocking(reader, True)
        assert os.read(reader, 8) == b"1"
        (tmp_path / "dump_3").write_bytes(b"of now, and longer")

    asked = pipes.ask([rank(tmp_path)])
    assert [one.reason for one in asked] == [""]
    thread = threading.Thread(target=monitor)
    thread.start()
    found = pipes.answers(asked, time.monotonic() + 30)
    thread.join()
    os.close(reader)

    assert Path(found[3]).read_bytes() == b"of now, and longer"


def test_nobody_is_waited_for_who_does_not_read_the_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_3.pipe")

    (asked,) = pipes.ask([rank(tmp_path)])
    assert "cannot be written to" in asked.reason
    assert pipes.answers([asked], time.monotonic() + 30) == {}


def test_a_file_in_place_of_the_pipe_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ask_3.pipe").write_text("mine")

    (asked,) = pipes.ask([rank(tmp_path)])
    assert asked.reason.endswith("is no pipe of its own")
    assert (tmp_path / "ask_3.pipe").read_text() == "mine"


def test_ranks_without_a_pipe_are_not_asked(tmp_path: Path) -> None:
    assert pipes.ask([rank(tmp_path, pipe=False)]) == []


def test_an_old_dump_is_no_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_3.pipe")
    reader = os.open(tmp_path / "ask_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "dump_3").write_bytes(b"of an hour ago")

    asked = pipes.ask([rank(tmp_path)])
    assert pipes.answers(asked, time.monotonic() + 0.3) == {}
    os.close(reader)


def test_a_dump_that_lies_there_is_found_if_the_rank_may_have_written_it(tmp_path: Path) -> None:
    dump = tmp_path / "dump_3"
    dump.write_bytes(b"of now")
    assert pipes.lying([rank(tmp_path)]) == {3: f"/proc/{os.getpid()}/root{dump}"}

    os.utime(dump, (1.0, 1.0))  # of an earlier run
    assert pipes.lying([rank(tmp_path)]) == {}

    dump.write_bytes(b"")
    assert pipes.lying([rank(tmp_path)]) == {}

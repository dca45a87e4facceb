"""Ranks' output on its way to the console: what torch would have written, without waiting and without haste."""

from __future__ import annotations

import io
import os
import select
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, api, start_processes, tail_log
from torch.distributed.elastic.multiprocessing.tail_log import tail_logfile

from safelaunch.agent import elastic, tail
from safelaunch.agent.console import Console, Lines, pieces
from safelaunch.agent.tail import Changes, File, Follower, Tail

Step = tuple[str, bytes]
NEVER_S = 1000.0


class Steps(threading.Event):
    """Torch, and we, sleep each time when a file has nothing more; here its next change happens then."""

    def __init__(self, path: Path, steps: list[Step]) -> None:
        super().__init__()
        self._path = path
        self._steps = list(steps)
        self._file: io.BufferedWriter | None = None

    def is_set(self) -> bool:
        return not self._steps

    def next(self, *_: object) -> bool:
        """What comes while somebody sleeps; true, as of a sleep that a change has ended."""
        what, data = self._steps.pop(0) if self._steps else ("nothing", b"")
        if what == "truncate" and self._file is not None:
            os.truncate(self._file.fileno(), 0)
        elif what == "rotate" and self._file is not None:
            self._path.rename(self._path.with_name(f"old-{len(self._steps)}"))
            self._path.write_bytes(data)
        elif what == "write":
            self._file = self._file or open(self._path, "ab")  # noqa: SIM115
            self._file.write(data)
            self._file.flush()
        return True


def follow(files: list[File], out: Console, finished: list[threading.Event]) -> None:
    wake = os.eventfd(1)  # nothing is waited for
    try:
        Follower(files, out, finished, wake, 0.0).run()
    finally:
        os.close(wake)


PARTS = [
    b"a",
    b"loss 0.1",
    b"\n",
    b"\r",
    b"\r\n",
    "é€😀".encode(),
    "é".encode()[:1],
    b"\xff",
    b"\x0b\x0c\x1c",
    b"\xc2\x85",
    b"",
]
CHUNK = st.lists(st.sampled_from(PARTS), max_size=8).map(b"".join) | st.binary(max_size=30)
STEP = st.tuples(st.just("write"), CHUNK) | st.tuples(st.sampled_from(["truncate", "rotate", "nothing"]), CHUNK)


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(STEP, max_size=6),
    header=st.sampled_from(["[default0]:", "", "rank\n"]),
    keep=st.sampled_from([None, lambda line: "loss" in line]),
    block=st.sampled_from([1, 7, tail.BLOCK]),
)
def test_what_is_written_is_what_torch_writes(
    steps: list[Step], header: str, keep: Callable[[str], bool] | None, block: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "ROUND_S", 0.0)
        patch.setattr(tail, "BLOCK", block)
        theirs, ours = io.StringIO(), io.StringIO()
        path = Path(name, "theirs")
        changes = Steps(path, steps)
        patch.setattr(tail_log, "time", SimpleNamespace(sleep=changes.next))
        tail_logfile(header, str(path), theirs, changes, 0.0, keep or (lambda _: True))
        path = Path(name, "ours")
        changes = Steps(path, steps)
        patch.setattr(Changes, "pause", changes.next)
        patch.setattr(Changes, "sleep", changes.next)
        follow([File(str(path), Lines(header, keep))], Console(ours), [changes])

    assert ours.getvalue() == theirs.getvalue()


@given(data=st.lists(st.sampled_from([b"a", b"\n", b"word\n", b"x" * 50]), max_size=40).map(b"".join))
def test_pieces_are_whole_lines(data: bytes) -> None:
    found = [bytes(piece) for piece in pieces(data, 20)]

    assert b"".join(found) == data
    assert all(piece.endswith(b"\n") for piece in found[:-1])
    assert all(len(piece) <= 20 or piece.count(b"\n", 0, -1) == 0 for piece in found)


class Reader:
    """The other end of a console."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        self.dst = os.fdopen(writer, "w", 1)

    def until(self, end: bytes) -> bytes:
        said = b""
        while not said.endswith(end):
            said += os.read(self._reader, 1 << 16)
        return said

    def empty(self) -> bool:
        return not select.select([self._reader], [], [], 0)[0]

    def close(self) -> None:
        self.dst.close()
        os.close(self._reader)


@pytest.fixture
def console() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


def tailing(files: dict[int, Path], console: Reader, interval_s: float = NEVER_S) -> Tail:
    return Tail("default", {rank: str(path) for rank, path in files.items()}, console.dst, None, interval_s).start()


def test_a_line_comes_when_it_is_written_and_the_end_when_it_is_told(
    tmp_path: Path, console: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LOST_S", NEVER_S)
    files = {rank: tmp_path / f"{rank}.log" for rank in range(2)}
    for path in files.values():
        path.touch()
    tailed = tailing(files, console)
    for rank, path in files.items():
        for number in range(3):
            with path.open("a") as file:
                file.write(f"line {number}\n")
            assert console.until(b"\n") == b"[default%d]:line %d\n" % (rank, number)

    with files[1].open("a") as file:
        file.write("no end")
    tailed.stop()

    assert console.until(b"end") == b"[default1]:no end"
    assert tailed.stopped()


def test_a_prompt_is_seen_while_the_rank_waits(tmp_path: Path, console: Reader) -> None:
    path = tmp_path / "0.log"
    path.write_text("ready\nname? ")
    tailed = tailing({0: path}, console, 0.01)

    assert console.until(b"? ") == b"[default0]:ready\n[default0]:name? "
    tailed.stop()


@pytest.mark.parametrize("missing", ["inotify", "descriptors", "attribute"])
def test_without_what_it_needs_it_looks_from_time_to_time(
    missing: str, tmp_path: Path, console: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "inotify":
        monkeypatch.setattr(tail, "NEXT_CHANGE", 0)  # refused with EINVAL
        monkeypatch.setattr(tail, "LOST_S", NEVER_S)
    elif missing == "descriptors":
        monkeypatch.setattr(tail.os, "eventfd", lambda *_: os.open(tmp_path / "not there" / "x", os.O_RDONLY))
    else:
        monkeypatch.setattr(tail, "NEEDED", ("_something_new",))
    path = tmp_path / "0.log"
    path.touch()
    tailed = tailing({0: path}, console, 0.01)
    for number in range(3):
        with path.open("a") as file:
            file.write(f"{number}\n")
            file.flush()
        if missing == "inotify":
            assert console.until(b"\n") == b"[default0]:%d\n" % number
    tailed.stop()
    assert missing == "inotify" or console.until(b"2\n") == b"[default0]:0\n[default0]:1\n[default0]:2\n"


def test_a_file_that_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, console: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    files = {0: tmp_path / "0.log", 1: tmp_path / "1.log"}
    files[0].mkdir()
    files[1].write_text("here\n")

    tailing(files, console).stop()

    assert console.until(b"\n") == b"[default1]:here\n"
    assert "IsADirectoryError" in caplog.text


def test_a_file_that_never_comes_holds_up_nobody(tmp_path: Path, console: Reader) -> None:
    tailing({0: tmp_path / "0.log"}, console).stop()

    assert console.empty()


def test_a_console_that_takes_no_more_for_now_gets_everything_in_the_end(tmp_path: Path, console: Reader) -> None:
    os.set_blocking(console.dst.fileno(), False)
    path = tmp_path / "0.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    tailed = tailing({0: path}, console)

    said = console.until(b"]:line 99999\n")

    tailed.stop()
    assert said == b"".join(b"[default0]:line %d\n" % number for number in range(100_000))


def test_what_the_console_has_no_letters_for_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="latin-1") as dst:
        Console(dst).write("é €\n")

    assert path.read_bytes() == b"\xe9 ?\n"


def test_a_change_before_the_sleep_is_not_missed_and_a_later_one_costs_nothing(tmp_path: Path) -> None:
    wake = os.eventfd(0)
    changes = Changes(wake)
    with (tmp_path / "log").open("w", buffering=1) as file:
        assert changes.wait_for(file.fileno())
        file.write("one\n")
        assert changes.sleep(NEVER_S)  # the test's own timeout is the limit
        file.write("two\n")
        assert not changes.sleep(0.0)  # the rank was not held up for it: nobody watches
    changes.close()
    os.close(wake)


def test_torch_elastic_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Reader) -> None:
    monkeypatch.setattr(api, "TailLog", api.TailLog)
    monkeypatch.setattr("sys.stdout", console.dst)
    elastic.pass_output_on_in_blocks(None)
    logs = DefaultLogsSpecs(log_dir=str(tmp_path), tee=Std.ALL)

    def run() -> None:  # in a thread torch leaves the signal handlers alone
        env = {"LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
        processes = start_processes("default", "/bin/echo", {0: ("hello",)}, {0: env}, logs)
        started.append(type(processes._tail_logs[0] if hasattr(processes, "_tail_logs") else processes._stdout_tail))
        processes.wait(period=0.01)
        processes.close()

    started: list[type] = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert started == [Tail]
    assert console.until(b"\n") == b"[default0]:hello\n"


def test_a_line_that_does_not_end_is_not_held_back_for_ever() -> None:
    lines = Lines("[0]:")
    block = b"x" * (1 << 16)

    written = [lines.feed(block) for _ in range(64)]

    assert sum(map(bool, written)) == 3
    assert "".join(written).replace("[0]:", "") == "x" * (51 << 16)
    assert lines.feed(b"end\n") == "[0]:" + "x" * (13 << 16) + "end\n"

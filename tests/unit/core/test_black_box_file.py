from __future__ import annotations

import errno
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch import black_box, black_box_reader
from safelaunch.codec import checked
from safelaunch.diagnosis.waitgraph import calls
from safelaunch.evidence.black_box import collect
from safelaunch.model import Collective, Incident, LoaderPass, Phase, WorkerProcess


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A black box for three ranks."""
    file = str(tmp_path / "black_box")
    black_box.create(file, 3)
    return file


def enter(writer: black_box.Writer, seq: int, *, op: str = "all_reduce", file: str = "/job/train.py") -> int:
    return writer.enter(writer.text(op, (file, 61, "main"), "0", "float32"), 4, seq, 1000 + seq)


def slot(path: str, index: int = 0) -> black_box_reader.Slot:
    found = black_box_reader.read(path, index)
    assert found is not None
    return found


def test_what_was_written_is_read(path: str) -> None:
    writer = black_box.Writer(path, 0)
    enter(writer, 7)

    (entry,) = slot(path).entries
    said = (
        entry.op,
        entry.group,
        entry.group_size,
        entry.seq,
        entry.numel,
        entry.dtype,
        entry.status == black_box.DONE,
    )
    assert said == ("all_reduce", "0", 4, 7, 1007, "float32", False)
    assert (entry.file, entry.line, entry.function) == ("/job/train.py", 61, "main")
    assert slot(path).pid == os.getpid()
    assert (slot(path).shut_down, slot(path).exit_call) == (None, None)


def test_left_collectives_are_done(path: str) -> None:
    writer = black_box.Writer(path, 0)
    writer.leave(enter(writer, 1))
    enter(writer, 2)

    assert [(entry.seq, entry.status == black_box.DONE) for entry in slot(path).entries] == [(1, True), (2, False)]


def test_the_ring_keeps_the_latest_in_order(path: str) -> None:
    writer = black_box.Writer(path, 0)
    total = 3 * black_box.ENTRIES + 5
    for seq in range(1, total + 1):
        writer.leave(enter(writer, seq))

    assert [entry.seq for entry in slot(path).entries] == list(range(total - black_box.ENTRIES + 1, total + 1))
    times = [entry.t for entry in slot(path).entries]
    assert times == sorted(times)


@pytest.mark.parametrize("more", [0, 1, black_box.ENTRIES - 1, black_box.ENTRIES, 3 * black_box.ENTRIES + 5])
def test_a_look_at_the_latest_calls_takes_what_has_come_since(path: str, more: int) -> None:
    writer, reader = black_box.Writer(path, 0), black_box_reader.Reader(path)
    writer.bind(path, 0)
    for seq in range(1, 8):
        enter(writer, seq)
    last = reader.arrivals(0, os.getpid(), 0)[-1][0]
    for seq in range(8, 8 + more):
        enter(writer, seq)

    found = [call[3] for call in reader.arrivals(0, os.getpid(), last)]
    assert found == [*range(8, 8 + more)][-black_box.ENTRIES :]


def test_when_a_call_returned_is_known_of_calls_that_were_not_issued_and_waited_for_later(path: str) -> None:
    writer, reader = black_box.Writer(path, 0), black_box_reader.Reader(path)
    writer.leave(enter(writer, 1))
    issued = enter(writer, 2)
    writer.leave(issued, black_box.ISSUED)
    writer.leave(writer.again(issued, ()))
    enter(writer, 3)

    made, waited, inside = reader.arrivals(0, os.getpid(), 0)
    assert made[1] <= made[2] <= waited[1]
    assert waited[2] < 0
    assert inside[2] == 0


def test_a_short_entry_hides_a_long_one_before_it(path: str) -> None:
    writer = black_box.Writer(path, 0)
    for _ in range(black_box.ENTRIES):
        enter(writer, 1, op="reduce_scatter_tensor", file="/a/very/long/path/to/a/training/script.py")
    enter(writer, 2, op="barrier", file="a.py")

    last = slot(path).entries[-1]
    assert (last.op, last.file, last.line, last.function) == ("barrier", "a.py", 61, "main")


def test_a_thread_that_comes_back_late_ends_nobody_elses_collective(path: str) -> None:
    writer = black_box.Writer(path, 0)
    slow = enter(writer, 1)
    for seq in range(2, black_box.ENTRIES + 2):  # another thread's, round the whole ring
        enter(writer, seq)
    writer.leave(slow)

    assert not any(entry.status == black_box.DONE for entry in slot(path).entries)


def test_a_half_written_entry_is_skipped(path: str) -> None:
    writer = black_box.Writer(path, 0)
    enter(writer, 1)
    offset, *_ = enter(writer, 2)
    with open(path, "r+b") as file:  # as a writer leaves it that was killed before its last store
        file.seek(offset)
        file.write(struct.pack("<Q", 0))

    assert [entry.seq for entry in slot(path).entries] == [1]


def test_ranks_do_not_touch_each_other(path: str) -> None:
    writers = [black_box.Writer(path, index) for index in range(3)]
    for index, writer in enumerate(writers):
        for seq in range(20):
            enter(writer, 100 * index + seq)
    writers[1].exit_call("b.py", 5, "main", 3)
    writers[2].shutting_down(False)

    assert [slot(path, index).entries[-1].seq for index in range(3)] == [19, 119, 219]
    assert [slot(path, index).exit_call for index in range(3)] == [None, ("b.py", 5, "main", "3"), None]
    assert [slot(path, index).shut_down is None for index in range(3)] == [True, True, False]


def test_a_slot_nobody_wrote_is_none(path: str) -> None:
    black_box.Writer(path, 0)

    assert black_box_reader.read(path, 1) is None
    assert black_box_reader.read(path, 3) is None  # beyond the end of the file


def test_a_restarted_rank_starts_with_an_empty_slot(path: str) -> None:
    first = black_box.Writer(path, 1)
    enter(first, 9)
    first.exit_call("a.py", 1, "main", 1)
    first.shutting_down(False)
    black_box.Writer(path, 1)

    again = slot(path, 1)
    assert (again.entries, again.exit_call, again.shut_down) == ([], None, None)


def test_what_a_killed_process_wrote_is_still_there(path: str) -> None:
    pid = os.fork()
    if pid == 0:
        enter(black_box.Writer(path, 1), 5)
        os.kill(os.getpid(), 9)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == -9
    assert slot(path, 1).pid == pid
    assert slot(path, 1).entries[-1].seq == 5


@pytest.mark.parametrize(
    ("given", "read"),
    [(3, "3"), (None, "0"), (0, "0"), ("bad data", "bad data"), (True, "True"), ("ü" * 3000, None), ("a\0b", "a")],
)
def test_exit_calls(path: str, given: object, read: str | None) -> None:
    black_box.Writer(path, 0).exit_call("/job/träin.py", 12, "main", given)

    called = slot(path).exit_call
    assert called is not None
    assert called[:3] == ("/job/träin.py", 12, "main")
    assert called[3] == read if read is not None else called[3].startswith("ü" * 400)


def test_the_last_exit_call_counts(path: str) -> None:
    writer = black_box.Writer(path, 0)
    writer.exit_call("/job/a/long/name/of/a/script.py", 12345, "a_long_function", "a long message")
    writer.exit_call("b.py", 1, "f", 2)

    assert slot(path).exit_call == ("b.py", 1, "f", "2")


def test_an_exit_call_in_a_file_with_a_long_path_can_be_read(path: str) -> None:
    black_box.Writer(path, 0).exit_call("/" + "d/" * 600 + "train.py", 3, "main", 2)

    called = slot(path).exit_call
    assert called is not None
    assert called[0].endswith("train.py")


def test_a_long_path_of_another_alphabet_keeps_its_line(path: str) -> None:
    enter(black_box.Writer(path, 0), 1, file="/" + "学习/" * 60 + "train.py")

    (entry,) = slot(path).entries
    assert (entry.line, entry.function) == (61, "main")


def test_create_never_overwrites(path: str) -> None:
    with pytest.raises(FileExistsError):
        black_box.create(path, 1)


def _no_memfd(*_: object) -> int:
    raise PermissionError(errno.EACCES, "vm.memfd_noexec")


def _elsewhere(*_: object) -> bool:
    return False


@pytest.mark.parametrize(
    "shorten", [lambda path: os.open(path, os.O_WRONLY | os.O_TRUNC), lambda path: os.truncate(path, 0)]
)
def test_nobody_can_shorten_it_below_those_who_have_it_mapped(path: str, shorten: Callable[[str], object]) -> None:
    writer, reader = black_box.Writer(path, 0), black_box_reader.Reader(path)

    with pytest.raises(PermissionError):
        shorten(path)

    enter(writer, 7)
    last = reader.latest(0, os.getpid())
    assert last is not None
    assert last.seq == 7


def test_it_is_read_for_its_owner_and_through_no_other_link(path: str, tmp_path: Path) -> None:
    enter(black_box.Writer(path, 0), 7)
    found = black_box_reader.read(path, 0, os.getuid())
    assert found is not None
    assert found.entries[-1].seq == 7

    with pytest.raises(OSError, match="regular"):
        black_box_reader.read(path, 0, os.getuid() + 1)
    other = tmp_path / "other"
    other.write_bytes(Path(path).read_bytes())
    with open(other, "rb") as opened:
        for target in (str(other), f"/proc/{os.getpid()}/fd/{opened.fileno()}"):
            link = tmp_path / "link"
            link.symlink_to(target)
            with pytest.raises(OSError, match="regular"):
                black_box_reader.read(str(link), 0, os.getuid())
            link.unlink()


@pytest.mark.parametrize("missing", ["os.memfd_create", "safelaunch.black_box._leads_to"])
def test_a_plain_file_does_where_there_are_no_sealed_ones(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, _no_memfd if missing == "os.memfd_create" else _elsewhere)
    file = tmp_path / "plain"
    before = len(os.listdir("/proc/self/fd"))
    black_box.create(str(file), 2)

    assert not file.is_symlink()
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (2 * black_box.SLOT, 0o600)
    assert len(os.listdir("/proc/self/fd")) == before
    enter(black_box.Writer(str(file), 1), 7)
    assert slot(str(file), 1).entries[-1].seq == 7


def test_the_file_is_private_and_has_its_full_size(path: str) -> None:
    status = os.stat(path)
    assert (status.st_size, status.st_mode & 0o777) == (3 * black_box.SLOT, 0o600)
    assert status.st_blocks * 512 >= status.st_size  # allocated: a write to a full disk would be a SIGBUS


def test_writers_refuse_a_file_that_cannot_hold_them(path: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        black_box.Writer(str(tmp_path / "missing"), 0)
    with pytest.raises((ValueError, IndexError, struct.error)):
        black_box.Writer(path, 3)


def test_the_rules_know_how_many_calls_a_record_holds() -> None:
    """`diagnosis` imports neither files nor workers, and so has the number to itself."""
    assert calls.RING == black_box.ENTRIES


@pytest.mark.parametrize("t", [1e300, 1e9, float("inf"), float("nan"), -1.0])
def test_a_call_at_a_time_that_cannot_be_is_none(path: str, t: float) -> None:
    writer = black_box.Writer(path, 0)
    enter(writer, 1)
    place, _, _ = enter(writer, 2)
    with open(path, "r+b") as file:
        file.seek(place + 8)
        file.write(struct.pack("<d", t))
        file.seek(8)
        file.write(struct.pack("<d", t))

    reader = black_box_reader.Reader(path)
    assert [entry.seq for entry in slot(path).entries] == [1]
    assert slot(path).shut_down is None
    assert reader.latest(0, os.getpid()) is None
    assert [call[3] for call in reader.arrivals(0, os.getpid(), 0)] == [1]


def test_a_case_of_random_bytes_can_be_read_again(path: str) -> None:
    random_ = random.Random(1)
    worker = WorkerProcess(0, 0, os.getpid(), "host", 0.0, black_box=path, owner=os.getuid())
    for _ in range(20):
        black_box.Writer(path, 0)
        with open(path, "r+b") as file:
            file.seek(8)
            # Numbers of lines and tags are digits: here and there one of a hundred of them, or one that `int` refuses.
            noise = random_.randbytes(black_box.SLOT - 8)
            file.write(noise.replace(b"\x01\x02", b"\x009").replace(b"\x07", "\0²\0".encode()))
        told = json.loads(json.dumps(collect(Incident("exit", 0, (0,), 0.0), worker, 0.0).data))
        for call in told["collectives"]:
            checked(Collective, call)
        for phase in told["phases"]:
            checked(Phase, phase)
        for one in told["loaders"]:
            checked(LoaderPass, one)
        for name in ("beat", "progress", "steps", "stepped", "batches", "exhausted", "shut_down"):
            assert told[name] is None or 0 <= told[name] < 1 << 63, name


def test_a_number_of_many_digits_is_none(path: str) -> None:
    writer = black_box.Writer(path, 0)
    writer.enter(writer.text("all_reduce", ("/job/train.py", 10**30, "main"), "0", "float32", 10**30), 4, 1, 1)
    writer.exit_call("/job/train.py", 10**40, "main", 1)

    assert [(entry.line, entry.tag) for entry in slot(path).entries] == [(0, 0)]
    assert slot(path).exit_call is None

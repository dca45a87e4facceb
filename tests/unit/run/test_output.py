"""What a launch says is written in order and whole, and nobody who says it waits for a reader."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.printable import line
from safelaunch.run import output
from safelaunch.run.output import Output


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """A pipe's descriptor to read from, and a stream to write to."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
    os.close(reader)


def fill(stream: io.TextIOWrapper) -> int:
    """Write until the pipe is full; returns how much."""
    os.set_blocking(stream.fileno(), False)
    size = 0
    try:
        while True:
            size += os.write(stream.fileno(), b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(stream.fileno(), True)
    return size


def read_to_the_end(reader: int, stream: io.TextIOWrapper) -> str:
    stream.close()
    data = b""
    while chunk := os.read(reader, 1 << 16):
        data += chunk
    return data.decode()


def test_texts_come_in_order_and_whole(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    said = Output(stream)

    for number in range(500):
        said.write([line(f"line {number}")])

    assert said.finish()
    assert read_to_the_end(reader, stream) == "".join(f"line {number}\n" for number in range(500))


def test_nobody_waits_for_a_reader_that_stalls(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    filled = fill(stream)
    said = Output(stream)

    said.write([line("the verdict")])

    assert not said.finish(0.01)
    assert len(os.read(reader, filled)) == filled  # and then it has come back
    assert said.finish()
    assert os.read(reader, 100) == b"the verdict\n"


def test_a_long_text_waits_as_long_as_the_reader_reads(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    text = line(*["word "] * 100_000)
    said = Output(stream)

    said.write([text])
    received = b""
    while len(received) <= len(text):
        received += os.read(reader, 1 << 12)

    assert said.finish()
    assert received.decode() == f"{text}\n"


def test_of_what_nobody_reads_the_latest_is_kept(
    pipe: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "KEPT_BYTES", 100)
    reader, stream = pipe
    filled = fill(stream)
    said = Output(stream)
    said.write([line("first")])
    while said._waiting:  # until the thread has taken it, which is stuck with it
        pass

    for number in range(50):
        said.write([line(f"line {number}")])
    os.read(reader, filled)

    assert said.finish()
    lines = os.read(reader, 1 << 16).decode().splitlines()
    kept = lines[2:]
    assert lines[:2] == ["first", f"safelaunch: {50 - len(kept)} messages left out: nobody read them"]
    assert kept == [f"line {number}" for number in range(50 - len(kept), 50)]


def test_a_reader_that_is_gone_is_no_reason_to_fail() -> None:
    gone, writer = os.pipe()
    os.close(gone)
    with os.fdopen(writer, "w") as broken:
        said = Output(broken)
        said.write([line("hello")])
        assert said.finish()


def test_a_stream_without_a_descriptor_is_written_to() -> None:
    stream = io.StringIO()
    Output(stream).write([line("hello")])
    assert stream.getvalue() == "hello\n"


def test_what_stands_behind_half_a_line_begins_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("Epoch 1:  40%")
    with open(path, "a") as stream:
        said = Output(stream)
        said.write_anew([line("safelaunch: rank 1 is late")])
        said.write_anew([line("safelaunch: progress returned")])
        assert said.finish()

    assert path.read_text() == "Epoch 1:  40%\nsafelaunch: rank 1 is late\nsafelaunch: progress returned\n"


def test_where_nobody_can_see_what_stands_last_an_empty_line_comes_first(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    said = Output(stream)

    said.write_anew([line("safelaunch: rank 1 is late")])

    assert said.finish()
    assert read_to_the_end(reader, stream) == "\nsafelaunch: rank 1 is late\n"

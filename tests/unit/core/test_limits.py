"""What is read has limits of time and memory, and they are gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from safelaunch import limits
from safelaunch.limits import LimitError, limited, size_of


def test_what_takes_too_long_is_ended_and_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    monkeypatch.setattr(limits, "SECONDS_PER_MIB", 0.8)
    begun = time.monotonic()
    with pytest.raises(LimitError, match="longer than 1 s"), limited(5):
        sum(1 for _ in iter(int, 1))

    assert time.monotonic() - begun < 5
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_what_takes_too_much_memory_is_ended_and_the_limit_is_named() -> None:
    # In a process of its own: one that has done much before may have so much memory to give without asking for more.
    script = """if True:
        import resource
        from safelaunch import limits
        limits.ROOM = limits.ROOM_PER_MIB = 16 << 20
        before = resource.getrlimit(resource.RLIMIT_AS)
        try:
            with limits.limited(5):
                bytearray(64 << 20)
        except limits.LimitError as error:
            print(error)
        print(resource.getrlimit(resource.RLIMIT_AS) == before)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines() == ["it takes more than 32 MiB of memory, the limit for 1 MiB of input", "True"]


def test_a_larger_input_may_take_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM", 16 << 20)
    monkeypatch.setattr(limits, "ROOM_PER_MIB", 16 << 20)
    with limited(20 << 20):
        bytearray(64 << 20)


def test_the_clock_stands_still_while_somebody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.1)
    monkeypatch.setattr(limits, "SECONDS_PER_MIB", 0.2)
    with limited(5), limits.waiting():
        time.sleep(0.6)


def test_the_size_of_what_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(bytes(10))
    (tmp_path / "a" / "b" / "two").write_bytes(bytes(100))
    os.mkfifo(tmp_path / "pipe")

    assert size_of([str(tmp_path)], 6) == 110
    assert size_of([str(tmp_path)], 1) == 10
    assert size_of([str(tmp_path / "a" / "one"), "-", "/nowhere"], 6) == 10


def test_what_comes_through_a_pipe_lengthens_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.0)
    monkeypatch.setattr(limits, "SECONDS_PER_MIB", 50.0)
    with limits.limited(0):
        limits.longer(2 << 20)
        left, _ = signal.getitimer(signal.ITIMER_REAL)

    assert 140 < left < 150


def test_a_hole_in_a_file_gives_no_time(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)

    assert limits.size_of([str(tmp_path / "sparse")], 1) <= 1 << 20


def test_a_part_of_the_time_is_given_to_what_is_inside() -> None:
    with limits.limited(0):
        whole, _ = signal.getitimer(signal.ITIMER_REAL)
        with limits.share(0.5):
            inside, _ = signal.getitimer(signal.ITIMER_REAL)
        after, _ = signal.getitimer(signal.ITIMER_REAL)

    assert inside <= whole / 2
    assert whole - 1 < after <= whole

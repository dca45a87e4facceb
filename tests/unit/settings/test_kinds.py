"""Durations, sizes and the other texts that settings accept."""

from __future__ import annotations

import pytest

from safelaunch.settings import kinds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert kinds.DURATION.read(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10 m", "10min", "m10", "-1", "-1s", "inf", "nan", "1e400", "0", "0s", "10m5"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kinds.DURATION.read(text)


def test_a_grace_period_may_be_nothing() -> None:
    assert kinds.GRACE.read("0") == 0


def test_a_limit_may_be_never() -> None:
    assert kinds.LIMIT.read("never") is None
    assert kinds.LIMIT.read("2m") == 120


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("100", 100),
        ("1kB".upper(), 1000),
        ("1GiB", 1024**3),
        ("1 GiB", 1024**3),
        ("1.5MiB", 1536 * 1024),
        ("2T", 2 * 1000**4),
    ],
)
def test_sizes_are_bytes(text: str, count: int) -> None:
    assert kinds.SIZE.read(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1PiB", "1 gib", "1e9"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kinds.SIZE.read(text)


@pytest.mark.parametrize("text", ["1", "8", "auto", "cpu", "gpu", "xpu", "npu", "privateuseone"])
def test_processes_are_a_number_or_a_device_that_torch_may_know(text: str) -> None:
    assert kinds.PROCESSES.read(text) == text


def test_true_is_not_the_number_one() -> None:
    for kind in (kinds.DURATION, kinds.ENV_TEXT, kinds.integer(0), kinds.NODES):
        with pytest.raises(ValueError, match=r".*"):
            kind.from_toml(True)

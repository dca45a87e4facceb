"""What counts as progress in a pulse."""

from __future__ import annotations

import struct

import pytest

from safelaunch import pulse

LOAD = "checkpoint load"


@pytest.fixture
def memory() -> bytearray:
    return bytearray(pulse.SIZE)


def progress(memory: bytearray) -> float:
    return pulse.Pulse(memory, 0).progress


def test_to_try_again_and_again_is_no_progress(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)
    writer.step()
    stepped = progress(memory)
    attempt = writer.begin(LOAD)
    begun = progress(memory)
    assert begun > stepped
    for _ in range(3):
        writer.attempted(attempt)
        assert progress(memory) == stepped
        attempt = writer.begin(LOAD)
        assert progress(memory) == stepped

    ((name, since, expect, _),) = pulse.Pulse(memory, 0).phases
    assert (name, expect) == (LOAD, 0.0)
    assert since > begun  # that of the attempt itself
    writer.end(attempt)
    ended = progress(memory)
    writer.begin(LOAD)
    assert progress(memory) > ended > since


def test_something_else_after_a_failure_is_progress(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)
    writer.attempted(writer.begin(LOAD))
    writer.step()
    before = progress(memory)
    writer.begin("checkpoint save")

    assert progress(memory) > before


def test_what_is_begun_long_after_a_failure_is_progress(memory: bytearray, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = pulse.Writer(memory, 0)
    now = 100.0
    monkeypatch.setattr(pulse, "monotonic", lambda: now)
    writer.attempted(writer.begin(LOAD))
    now += pulse.RETRY_S
    writer.begin(LOAD)

    assert progress(memory) == now


def test_to_look_at_the_same_things_in_turn_is_progress_once(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)

    def look(name: str) -> float:
        writer.looked(writer.begin(name))
        return progress(memory)

    first, second = look("store.get(a)"), look("store.get(b)")
    assert first < second
    assert {look(name) for _ in range(3) for name in ("store.get(a)", "store.get(b)")} == {second}
    assert look("store.get(c)") > second


def test_what_fails_leaves_room_for_others(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)
    for _ in range(3 * pulse.PHASES):
        writer.attempted(writer.begin(LOAD))
    assert pulse.Pulse(memory, 0).phases == []
    assert writer.begin(LOAD) >= 0


def test_while_a_call_is_under_way_on_a_device_its_end_alone_is_progress(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)
    writer.on_device(1, 7)
    begun = progress(memory)
    assert begun > 0
    writer.step()  # the host runs ahead
    writer.on_device(2, 7)
    assert progress(memory) == begun
    assert pulse.Pulse(memory, 0).waiting
    writer.on_device(1, 8)
    completed = progress(memory)
    assert completed > begun
    writer.on_device(0, 9)
    writer.step()

    assert progress(memory) > completed
    assert not pulse.Pulse(memory, 0).waiting


@pytest.mark.parametrize("t", [1e300, float("inf"), float("nan"), -5.0])
def test_times_that_cannot_be_are_no_progress(memory: bytearray, t: float) -> None:
    writer = pulse.Writer(memory, 0)
    writer.begin(LOAD)
    for at in [*range(0, 248, 8), 256 + 64 * (pulse.PHASES - 1), *range(768, pulse.SIZE, 8)]:
        struct.pack_into("<d", memory, at, t)
    seen = pulse.Pulse(memory, 0)

    assert (seen.progress, seen.beat, seen.phases) == (0.0, 0.0, [])
    assert {one[4] for one in seen.loaders} <= {0.0}


def test_counts_have_63_bits_at_most(memory: bytearray) -> None:
    struct.pack_into("<Q", memory, 8, (1 << 64) - 1)

    assert pulse.Pulse(memory, 0).steps == (1 << 63) - 1


def test_a_phase_without_end_is_expected_for_a_number_of_seconds(memory: bytearray) -> None:
    pulse.Writer(memory, 0).begin(LOAD, float("inf"))

    assert pulse.Pulse(memory, 0).phases[0][2] == pulse.LONGEST_S

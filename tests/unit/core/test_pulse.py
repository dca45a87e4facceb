"""What counts as progress in a pulse."""

from __future__ import annotations

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
    first = writer.begin(LOAD)
    begun = progress(memory)
    for _ in range(3):
        writer.fail(first)
        assert progress(memory) <= begun
        first = writer.begin(LOAD)
        assert progress(memory) == begun

    ((name, since, _, _),) = pulse.Pulse(memory, 0).phases
    assert (name, since) == (LOAD, begun)


@pytest.mark.parametrize("what", ["step", "returned", "exists"])
def test_to_try_again_after_something_else_is_progress(memory: bytearray, what: str) -> None:
    writer = pulse.Writer(memory, 0)
    writer.fail(writer.begin(LOAD))
    if what == "exists":
        writer.end(writer.begin("checkpoint save"))
    else:
        getattr(writer, what)()
    before = progress(memory)
    writer.begin(LOAD)

    assert progress(memory) > before


def test_what_fails_leaves_room_for_others(memory: bytearray) -> None:
    writer = pulse.Writer(memory, 0)
    for _ in range(3 * pulse.PHASES):
        writer.fail(writer.begin(LOAD))
    assert pulse.Pulse(memory, 0).phases == []
    assert writer.begin(LOAD) >= 0

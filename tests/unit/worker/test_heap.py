from __future__ import annotations

from safelaunch.worker import heap

PAGE = 4096


def pages(things: list[bytes]) -> int:
    return len({id(thing) // PAGE for thing in things})


def test_what_is_made_after_it_lies_side_by_side() -> None:
    others = [bytes(100) for _ in range(20_000)]
    del others[::40]  # free places all over

    fillers = heap.fill()
    made = [bytes(100) for _ in range(300)]

    whole = 300 * bytes(100).__sizeof__() // PAGE
    assert pages(made) <= 2 * whole + 2
    assert fillers
    assert others

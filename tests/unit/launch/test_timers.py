"""One deadline for each action, and an action may call off the next."""

from __future__ import annotations

from safelaunch.launch.timers import Timers


def test_an_action_is_taken_once_when_it_is_due() -> None:
    timers, done = Timers(), []

    def act() -> None:
        done.append(1)

    assert timers.wait() is None
    assert timers.wait(0.5) == 0.5
    timers.after(60.0, act)
    assert list(timers.take()) == []
    timers.after(0.0, act)  # in the place of the first deadline
    assert timers.wait() == 0.0
    assert list(timers.take()) == [act]
    assert list(timers.take()) == []
    assert timers.wait() is None


def test_what_one_action_calls_off_or_puts_off_is_not_taken() -> None:
    for call_off in (lambda t: t.clear(), lambda t: t.after(60.0, second)):
        timers = Timers()

        def first() -> None: ...

        def second() -> None: ...

        timers.after(0.0, first)
        timers.after(0.0, second)
        taken = []
        for action in timers.take():
            taken.append(action)
            call_off(timers)
        assert taken == [first]

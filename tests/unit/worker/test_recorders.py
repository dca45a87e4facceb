"""torch's Flight Recorders, asked by a rank itself: whether a call is under way on its device."""

from __future__ import annotations

import json
from typing import Any

from safelaunch.worker import recorders


class Recorder:
    """A recorder with these (enqueued, completed) numbers, and entries; it counts how often those were asked for."""

    def __init__(self, *numbers: tuple[int, int], entries: int = 0) -> None:
        self.numbers, self.entries, self.asked = numbers, entries, 0

    def __call__(self, includes: bool, only_active: bool) -> bytes:  # noqa: ARG002
        self.asked += includes
        status = {
            str(at): {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
            for at, (enqueued, completed) in enumerate(self.numbers)
        }
        entries: dict[str, Any] = {"entries": [{}] * self.entries} if includes and self.entries else {}
        return json.dumps({"pg_status": status, **entries}).encode()


def test_a_group_whose_latest_call_is_completed_has_none_under_way() -> None:
    assert recorders.UnderWay([Recorder((5, 5), (-1, -1)), Recorder((0, 0))]).look() == (0, 7)


def test_groups_of_all_backends_count() -> None:
    assert recorders.UnderWay([Recorder((5, 4)), Recorder((3, 1), (2, 2))]).look()[0] == 2


def test_numbers_that_differ_prove_nothing_where_the_recorder_has_no_open_entry() -> None:
    recorder = Recorder((64, 61))  # calls on two streams, and the lower number has ended last
    looks = recorders.UnderWay([recorder])

    assert [looks.look()[0] for _ in range(3 * recorders.STILL)] == [1] * (recorders.STILL - 1) + [0] * (
        2 * recorders.STILL + 1
    )
    assert recorder.asked == 1
    recorder.numbers = ((66, 61),)
    assert looks.look()[0] == 1


def test_a_call_that_does_not_end_stays_under_way() -> None:
    recorder = Recorder((64, 61), entries=3)
    looks = recorders.UnderWay([recorder])

    assert {looks.look()[0] for _ in range(3 * recorders.STILL)} == {1}
    assert recorder.asked == 1


def test_a_recorder_without_groups_is_left_out_of_what_is_written() -> None:
    written = json.loads(recorders.everything({"gloo": Recorder(), "nccl2": Recorder((1, 0), entries=1)}))

    assert list(written) == ["nccl2"]
    assert written["nccl2"]["entries"] == [{}]

"""A rank's own record of its calls, with what the Flight Recorder knows of them on the device."""

from __future__ import annotations

import dataclasses

from safelaunch.evidence.device_calls import settled, with_states
from safelaunch.model import Collective, RankFacts, StreamMark, StreamProgress


def call(op: str, seq: int, state: str = "", peer: int | None = None, group: str = "0") -> Collective:
    return Collective(op, group, seq, 4, "float32", True, float(seq), peer=peer, state=state)  # type: ignore[arg-type]


def test_collectives_are_known_by_their_numbers() -> None:
    own = [call("all_reduce", 7), call("all_reduce", 8), call("barrier", 9)]
    recorded = [call("all_reduce", 7, "completed"), call("all_reduce", 8, "enqueued"), call("barrier", 9, "enqueued")]

    found = with_states(own, recorded)

    assert [one.state for one in found] == ["completed", "enqueued", "enqueued"]
    assert [one.done for one in found] == [True, False, True]  # it waits in the first one
    assert [one.issued for one in found] == [False, False, True]


def test_what_the_host_waits_in_is_behind_what_its_device_waits_in() -> None:
    inside = dataclasses.replace(call("barrier", 9), done=False)
    recorded = [call("all_reduce", 8, "enqueued"), call("barrier", 9, "enqueued")]  # the first one by C++

    (found,) = with_states([inside], recorded)

    assert (found.done, found.issued) == (True, True)


def test_a_number_of_another_group_is_another_call() -> None:
    assert with_states([call("all_reduce", 7)], [call("all_reduce", 7, "enqueued", group="1")])[0].state == ""


def test_the_latest_messages_to_a_rank_are_those_under_way() -> None:
    own = [call("send", 1, peer=1), call("send", 1, peer=2), call("isend", 2, peer=1), call("irecv", 3, peer=1)]
    recorded = [call("send", 4, "completed", 1), call("send", 5, "completed", 2), call("send", 6, "enqueued", 1)]

    assert [one.state for one in with_states(own, recorded)] == ["", "", "enqueued", ""]


def test_a_record_without_states_stays_as_it_is() -> None:
    own = (call("all_reduce", 7),)

    assert with_states(own, [call("all_reduce", 7)]) == own


def of_batch(op: str, seq: int, peer: int, t: float) -> Collective:
    return dataclasses.replace(call(op, seq, peer=peer), issued=True, how="batch", t=t)


def stands(reached: float, outstanding: float) -> StreamProgress:
    return StreamProgress(StreamMark("isend", reached, None), StreamMark("isend", outstanding, None))


TWO_BATCHES = [
    of_batch("isend", 1, 1, 1.0),
    of_batch("irecv", 1, 2, 1.1),
    of_batch("isend", 2, 1, 2.0),
    of_batch("irecv", 2, 2, 2.1),
]
ENDED = [call("send", 1, "completed", 1), call("recv", 2, "completed", 2), call("all_reduce", 9, "enqueued")]


def test_a_batch_of_messages_that_the_stream_has_not_passed_is_under_way_whatever_the_recorder_says() -> None:
    found = with_states(TWO_BATCHES, ENDED, stands(0.99, 1.99))

    assert [(one.state, one.done) for one in found] == [("enqueued", False)] * 2 + [("enqueued", True)] * 2


def test_what_the_stream_has_passed_before_another_call_has_ended() -> None:
    reduced = dataclasses.replace(call("all_reduce", 8), t=1.5)
    found = with_states([*TWO_BATCHES[:2], reduced, *TWO_BATCHES[2:]], ENDED, stands(1.49, 1.99))

    assert [one.state for one in found] == ["", "", "", "enqueued", "enqueued"]


def test_a_recorder_that_knows_of_messages_under_way_is_believed() -> None:
    found = with_states(TWO_BATCHES, [call("send", 2, "enqueued", 1)], stands(0.99, 1.99))

    assert [one.state for one in found] == ["", "", "enqueued", ""]


def test_a_message_whose_other_end_has_ended_is_not_under_way() -> None:
    own = with_states(TWO_BATCHES, ENDED, stands(0.99, 1.99))
    there = (of_batch("irecv", 1, 0, 5.0), dataclasses.replace(of_batch("irecv", 2, 0, 6.0), state="enqueued"))
    ranks = [RankFacts(0, 0, 10, collectives=own, recorded=tuple(ENDED)), RankFacts(1, 1, 11, collectives=there)]

    assert [one.state for one in settled(ranks)[0].collectives] == ["completed", "enqueued", "enqueued", "enqueued"]

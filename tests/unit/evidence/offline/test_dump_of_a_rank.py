"""One dump: what torch's entries mean, in each of their dialects."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fr_dumps import TRAIN, Recorder, world

from safelaunch.evidence.offline import dump
from safelaunch.evidence.offline.dump import Dump, UnreadableError
from safelaunch.model import Collective, Location

PAIRS = {"0": (0, 1, 2, 3), "1": (1, 3)}


def read(recorder: Recorder, **more: Any) -> Dump:
    return dump.read({**recorder.document(), **more}, recorder.rank, "nccl_trace_rank_0")


def told(read_: Dump) -> list[tuple[str, str, int, str]]:
    """Operation, group, number, and whether it is done, waited in or behind."""
    return [(call.op, call.group, call.seq, state(call)) for call in read_.calls]


def state(call: Collective) -> str:
    return "done" if call.done else "behind" if call.issued else "waits"


def test_nccl_waits_in_the_first_call_that_is_not_done() -> None:
    recorder = Recorder(0, PAIRS).call().call(state="scheduled", line=90).call("barrier", state="scheduled")

    assert told(read(recorder)) == [
        ("all_reduce", "0", 1, "done"),
        ("all_reduce", "0", 2, "waits"),
        ("barrier", "0", 3, "behind"),
    ]
    waited = read(recorder).calls[1]
    assert (waited.location, waited.numel, waited.dtype) == (Location(TRAIN, 90, "train_step"), 1000, "float32")
    assert waited.group_size == 4


def test_a_call_of_nccl_that_has_timed_out_is_not_done() -> None:
    assert told(read(Recorder(0, PAIRS).call(state="scheduled", retired=True)))[0][3] == "waits"


def test_with_timing_a_call_that_the_gpu_has_not_begun_is_not_waited_in() -> None:
    recorder = Recorder(0, PAIRS).call(time_discovered_started_ns=5).call(state="scheduled")

    assert told(read(recorder))[1][3] == "behind"


def test_with_timing_all_that_has_begun_is_waited_in() -> None:
    recorder = Recorder(1, PAIRS).call(state="started").call(group="1", state="started").call(state="scheduled")

    assert [states for *_, states in told(read(recorder))] == ["waits", "waits", "behind"]


def test_gloo_is_done_when_it_is_retired() -> None:
    recorder = Recorder(0, PAIRS, backend="gloo").call(state="scheduled", retired=True).call(state="scheduled")

    assert [states for *_, states in told(read(recorder))] == ["done", "waits"]
    assert read(recorder).met == {"0": 1}


def test_the_last_of_gloo_may_have_failed() -> None:
    recorder = Recorder(0, PAIRS, backend="gloo").calls(2, state="scheduled", retired=True)

    assert read(recorder).met == {"0": 1}


def test_gloo_that_counts_more_than_it_records_has_sent_messages() -> None:
    recorder = Recorder(0, PAIRS, backend="gloo").call(op_id=1)
    assert not read(recorder).messages_lost
    assert read(recorder.call(op_id=3)).messages_lost


def test_a_coalesced_launch_is_one_call_in_the_state_of_its_end() -> None:
    recorder = Recorder(0, PAIRS).call("_all_gather_base", state="scheduled")
    recorder.call("_all_gather_base", state="scheduled", same_launch=True).call("coalesced", same_launch=True).call()

    assert told(read(recorder)) == [
        ("all_gather_into_tensor_coalesced", "0", 1, "done"),
        ("all_reduce", "0", 2, "done"),
    ]


def test_messages_name_global_ranks_and_count_by_pair() -> None:
    recorder = Recorder(3, PAIRS)
    recorder.call("send 1->0", "1", message=True).call("send 1->0", "1", message=True, state="scheduled")
    recorder.call("recv 1<-0", "1", message=True, state="scheduled", same_launch=True)
    recorder.call("coalesced", "1", message=True, state="scheduled", same_launch=True)

    found = read(recorder)
    assert told(found) == [("send", "1", 1, "done"), ("send", "1", 2, "waits"), ("recv", "1", 1, "waits")]
    assert {call.peer for call in found.calls} == {1}
    assert found.high == {}


def test_a_group_made_anew_begins_anew() -> None:
    recorder = Recorder(0, PAIRS).calls(40, pg_id=0)
    recorder.seqs["0"] = 0
    recorder.calls(2, pg_id=7)

    assert [seq for _, _, seq, _ in told(read(recorder))] == [1, 2]


def test_few_calls_of_many_are_kept_with_the_latest_of_each_kind() -> None:
    recorder = Recorder(0, PAIRS).call("barrier").calls(500).calls(30, state="scheduled")

    found = read(recorder)
    assert len(found.calls) < 40
    assert found.calls[0].op == "barrier"
    assert (found.high, found.met) == ({"0": 502}, {"0": 501})
    assert told(found)[-6:] == [
        ("all_reduce", "0", 502, "waits"),
        *(("all_reduce", "0", n, "behind") for n in range(503, 508)),
    ]


def test_a_ring_that_was_full_says_so() -> None:
    assert not read(Recorder(0, PAIRS, room=10).calls(10)).overwritten
    assert read(Recorder(0, PAIRS, room=10).calls(11)).overwritten


def test_only_active_calls_leave_gaps() -> None:
    recorder = Recorder(0, PAIRS).calls(3).call(group="1", state="scheduled").call(state="scheduled")
    del recorder.entries[1:3]

    assert read(recorder).overwritten


def test_two_backends_are_not_mixed() -> None:
    recorder = Recorder(0, PAIRS).calls(3)
    recorder.entries.append({**recorder.entries[-1], "profiling_name": "gloo:barrier", "collective_seq_id": 77})

    assert (read(recorder).backend, read(recorder).high, read(recorder).left_out) == ("nccl", {"0": 3}, 1)


def test_membership_is_read_from_text() -> None:
    assert [dataclasses.astuple(group) for group in read(Recorder(1, PAIRS).call()).groups] == [
        ("0", (0, 1, 2, 3)),
        ("1", (1, 3)),
    ]


def test_torch_2_4_is_read() -> None:
    document = Recorder(0, PAIRS, version="2.1").call().document()
    for entry in document["entries"]:
        del entry["is_p2p"], entry["timeout_ms"]
    del document["pg_status"], document["comm_lib_version"]

    assert told(dump.read(document, 0, "x")) == [("all_reduce", "0", 1, "done")]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "no dump"),
        ({"weights": [1, 2]}, "no dump"),
        ({"version": "3.0", "entries": [{}]}, "version 3.0"),
        ({"version": "2.10", "entries": [], "pg_config": {}, "pg_status": {}}, "off"),
        (
            {"version": "2.10", "pg_config": {"0": {}}, "pg_status": {"0": {"last_enqueued_collective": 9}}},
            "no entries",
        ),
        (
            {"version": "2.10", "pg_config": {"0": {}}, "pg_status": {"0": {"last_enqueued_collective": "9"}}},
            "no entries",
        ),
        ({"version": "2.10", "entries": [{"state": "completed"}]}, "not those of a Flight Recorder"),
        ({"version": "2.10", "entries": "hello"}, "not those of a Flight Recorder"),
        ({"version": "2.10", "entries": [7, None]}, "not those of a Flight Recorder"),
    ],
)
def test_what_tells_nothing_is_not_taken_for_idle(document: Any, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        dump.read(document, 0, "x")


def test_a_rank_without_calls_is_idle_where_its_groups_are_known() -> None:
    assert read(Recorder(0, world(2))).calls == ()

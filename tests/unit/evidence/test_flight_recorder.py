"""The Flight Recorder's entries, asked of a rank and written by hand; and the groups that it has made."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import living
import pytest
from living import HANG, soon

from safelaunch import black_box
from safelaunch.evidence import black_box as box_evidence
from safelaunch.evidence import flight_recorder, groups
from safelaunch.model import WorkerProcess

Entry = dict[str, Any]


def entry(seq: int, op: str = "gloo:all_reduce", group: str = "0", **other: Any) -> Entry:
    """An entry as torch 2.13 writes it."""
    return {
        "collective_seq_id": seq,
        "profiling_name": op,
        "process_group": [group, "default_pg"],
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "state": "scheduled",
        "retired": True,
        "is_p2p": False,
        "thread_id": "139740227832704",
        "time_created_ns": time.time_ns(),
        **other,
    }


@pytest.fixture
def box(tmp_path: Path) -> str:
    path = str(tmp_path / "box")
    black_box.create(path, 1)
    return path


@contextmanager
def rank(box: str, entries: list[Entry] | str, backend: str = "gloo") -> Iterator[WorkerProcess]:
    """This process as a rank whose beat thread answers with `entries`."""
    writer = black_box.Writer(box, 0)
    writer.pulse.beat()
    over = threading.Event()

    def beats() -> None:
        while not over.wait(0.005):
            if writer.pulse.asked():
                text = entries if isinstance(entries, str) else json.dumps({backend: _dump(entries)})
                Path(black_box.beside(box, 0, "recorder")).write_text(text)
                writer.pulse.answer()

    thread = threading.Thread(target=beats)
    thread.start()
    try:
        yield living.rank(os.getpid(), box=box)
    finally:
        over.set()
        thread.join()


def _dump(entries: list[Entry]) -> dict[str, Any]:
    config = {"0": {"name": "0", "ranks": "[0, 1]"}, "1": {"name": "1", "ranks": "[4, 7]"}}
    return {"version": "2.10", "pg_config": config, "entries": entries}


def recorded(box: str, entries: list[Entry], backend: str = "gloo") -> list[Entry]:
    with rank(box, entries, backend) as worker:
        found = flight_recorder.collect(HANG, worker, soon())
    assert found.data is not None, found.unavailable
    collectives: list[Entry] = found.data["collectives"]
    return collectives


def test_an_entry_is_a_collective(box: str) -> None:
    before = time.monotonic()
    barrier = entry(2, "gloo:barrier", input_sizes=[], input_dtypes=[], retired=False)
    first, second = recorded(box, [entry(1), barrier])

    assert {name: first[name] for name in ("op", "group", "seq", "numel", "dtype", "done")} == {
        "op": "all_reduce", "group": "0", "seq": 1, "numel": 12, "dtype": "float32", "done": True,
    }  # fmt: skip
    assert (second["op"], second["numel"], second["dtype"], second["done"]) == ("barrier", -1, "", False)
    assert before - 1 < first["t"] < time.monotonic() + 1


def test_names_are_those_that_the_script_calls(box: str) -> None:
    names = ["nccl:_all_gather_base", "nccl:_reduce_scatter_base", "nccl:all_reduce", "odd"]
    entries = [entry(seq, name, state="completed", retired=False) for seq, name in enumerate(names)]
    found = recorded(box, entries)

    assert [item["op"] for item in found] == ["all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "odd"]
    assert all(item["done"] for item in found)


def test_messages_of_gloo_are_left_out(box: str) -> None:
    assert [item["seq"] for item in recorded(box, [entry(1), entry(2, "gloo:send 0->1", is_p2p=True)])] == [1]


def test_a_message_of_another_backend_has_the_global_rank_of_its_other_end(box: str) -> None:
    message = entry(9, "nccl:recv 0<-1", "1", is_p2p=True, p2p_seq_id=3, retired=False)
    (found,) = recorded(box, [message], "nccl")

    assert (found["op"], found["peer"], found["seq"], found["state"]) == ("recv", 7, 3, "enqueued")


@pytest.mark.parametrize("state", ["completed", "scheduled"])
def test_messages_that_were_enqueued_together_have_the_state_of_what_stands_behind_them(state: str, box: str) -> None:
    # As torch 2.15 writes it: what ends a batch has the number of the last message, and of the last collective.
    both = [
        entry(5, f"nccl:{op}", is_p2p=True, p2p_seq_id=3, op_id=8 + n, retired=False)
        for n, op in enumerate(("send 0->1", "recv 0<-1"))
    ]
    together = entry(5, "nccl:coalesced", p2p_seq_id=3, op_id=9, state=state, retired=False)
    before = entry(5, "nccl:all_reduce", p2p_seq_id=2, op_id=7, state="completed")
    found = recorded(box, [before, *both, together], "nccl")

    assert [(item["op"], item["done"]) for item in found] == [
        ("all_reduce", True),
        ("send", state == "completed"),
        ("recv", state == "completed"),
    ]


def test_collectives_that_were_enqueued_together_keep_their_end(box: str) -> None:
    parts = [entry(6, "nccl:_broadcast_oop", p2p_seq_id=3, op_id=10 + n, retired=False) for n in range(2)]
    end = entry(6, "nccl:ALLGATHER_coalesced", p2p_seq_id=3, op_id=11, state="completed")

    assert [item["op"] for item in recorded(box, [*parts, end], "nccl")][-1] == "ALLGATHER_coalesced"


def test_what_a_call_puts_out_is_counted_for_each_tensor(box: str) -> None:
    gathers = entry(1, "nccl:all_gather", output_sizes=[[3, 4], [2, 4]])

    assert recorded(box, [gathers], "nccl")[0]["outputs"] == [12, 8]


@pytest.mark.parametrize("backend", ["nccl", "nccl2"])
@pytest.mark.parametrize(
    ("entry_", "state"),
    [
        ({"retired": True, "state": "completed"}, "completed"),
        ({"retired": False, "state": "completed"}, "completed"),
        ({"retired": True}, "enqueued"),  # its watchdog has given it up
        ({"retired": False, "state": "started"}, "started"),
        ({"retired": False}, "enqueued"),
    ],
)
def test_a_call_of_a_device_has_its_state_there(backend: str, entry_: Entry, state: str, box: str) -> None:
    (found,) = recorded(box, [entry(1, f"{backend}:all_reduce", **entry_)], backend)

    assert found["state"] == state


def test_a_call_of_gloo_has_none(box: str) -> None:
    assert recorded(box, [entry(1, retired=False)])[0]["state"] == ""


def test_the_latest_of_each_group_and_what_is_not_done(box: str) -> None:
    many = [entry(seq, retired=seq not in (50, 250)) for seq in range(300)]
    found = recorded(box, [entry(7, group="1"), *many])

    assert [item["seq"] for item in found if item["group"] == "1"] == [7]
    assert [item["seq"] for item in found if item["group"] == "0"] == [250, *range(280, 300)]


def test_of_a_host_that_ran_ahead_the_latest_that_ended_are_kept(box: str) -> None:
    many = [entry(seq, "nccl:all_reduce", state="completed" if seq < 40 else "scheduled") for seq in range(100)]

    assert [item["seq"] for item in recorded(box, many, "nccl")] == [*range(35, 100)]


def test_a_second_look_asks_again(box: str) -> None:
    with rank(box, [entry(1)]) as worker:
        assert flight_recorder.collect(HANG, worker, soon()).data
        Path(black_box.beside(box, 0, "recorder")).unlink()
        assert flight_recorder.collect(HANG, worker, soon()).data


def test_a_rank_whose_interpreter_does_not_run_is_not_asked(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = black_box.Writer(box, 0)
    worker = living.rank(os.getpid(), box=box)
    assert "not begun to beat" in flight_recorder.collect(HANG, worker, soon()).unavailable
    writer.pulse.beat()
    late = time.monotonic() + 3
    monkeypatch.setattr(time, "monotonic", lambda: late)

    assert flight_recorder.collect(HANG, worker, late + 9).unavailable == (
        "the interpreter does not run (no beat for 3.0 s)"
    )
    assert writer.pulse.asked() == 0


def test_a_rank_that_does_not_answer(box: str) -> None:
    black_box.Writer(box, 0).pulse.beat()
    begun = time.monotonic()
    found = flight_recorder.collect(HANG, living.rank(os.getpid(), box=box), begun + 0.1)

    assert found.unavailable == "the rank did not answer within 0.1 s; it has not initialised torch.distributed"
    assert found.elapsed_s < 0.1 + 5


def test_a_rank_without_a_recorder(box: str, tmp_path: Path) -> None:
    black_box.Writer(box, 0).pulse.beat()
    assert "no black box" in flight_recorder.collect(HANG, living.rank(os.getpid()), soon()).unavailable
    stranger = living.rank(os.getppid(), box=box)
    assert "did not open" in flight_recorder.collect(HANG, stranger, soon()).unavailable
    assert list(tmp_path.iterdir()) == [tmp_path / "box"]


@pytest.mark.parametrize(("first", "lost"), [(0, False), (7, True), (None, False)])
def test_a_recorder_that_had_no_room_says_so(box: str, first: int | None, lost: bool) -> None:
    number = {} if first is None else {"record_id": first}
    with rank(box, [entry(1, **number)]) as worker:
        found = flight_recorder.collect(HANG, worker, soon())
    assert found.data is not None
    assert found.data["overwritten"] is lost


def test_groups_are_as_the_rank_wrote_them_down(box: str) -> None:
    worker = living.rank(os.getpid(), box=box)
    assert "no process group" in groups.collect(HANG, worker, soon()).unavailable
    lines = '{"name": "0", "ranks": [0, 1]}\n{"new": [1]}\n{"name": "1", "ranks": [1]}\nnonsense\n{"name": "2", "ra'
    Path(black_box.beside(box, 0, "groups")).write_text(lines)

    found = groups.collect(HANG, worker, soon())
    made = [{"name": "0", "ranks": [0, 1]}, {"name": "1", "ranks": [1]}]
    assert found.data == {"groups": made, "asked": [[1]], "meets": None}


def test_the_pulse_is_in_the_evidence(box: str) -> None:
    writer = black_box.Writer(box, 0)
    writer.pulse.beat()
    writer.pulse.step()
    for _ in range(2):
        writer.pulse.fed(None, None, 0)
    writer.pulse.begin("checkpoint", 90.0)
    failed = writer.enter(writer.text("all_reduce", ("a.py", 1, "main"), "0", "float32"), 2, 1, 4)
    writer.leave(failed, black_box.RAISED_AN_ERROR)

    data = box_evidence.collect(HANG, living.rank(os.getpid(), box=box), soon()).data
    assert data is not None
    assert (data["steps"], data["batches"], data["exhausted"]) == (1, 2, None)
    (phase,) = data["phases"]
    assert (phase["name"], phase["expect_s"], phase["thread"]) == ("checkpoint", 90.0, threading.get_native_id())
    assert 0 < data["beat"] <= data["progress"] <= data["t"]
    assert (data["collectives"][0]["done"], data["collectives"][0]["raised"]) == (False, True)

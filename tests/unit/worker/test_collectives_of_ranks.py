"""What the black box says of the collectives of real gloo ranks, beside what torch's own Flight Recorder says."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_ranks import GLOO, PREAMBLE, Left, run

from safelaunch.black_box import DONE, INSIDE, ISSUED, RAISED_AN_ERROR
from safelaunch.diagnosis.waitgraph.calls import canonical

# Ranks 0 and 1 exchange messages of which rank 2 knows nothing: gloo counts them along with its collectives.
MIXED = """
import json as _json
bindings = sys.modules["torch._C._distributed_c10d"]
MESSAGES = ("send", "isend", "recv", "irecv")
calls = {}
def note():
    for op, group, seq, status, peer in entries():
        if group.isdigit() and op not in MESSAGES:
            calls["%s %d" % (group, seq)] = op
one = torch.ones(6)
dist.all_reduce(one)
if RANK == 0:
    dist.send(one, 1)
    dist.send(one, 1)
    dist.recv(one, 1)
if RANK == 1:
    dist.recv(one, 0)
    dist.irecv(one, 0).wait()
    dist.isend(one, dst=0).wait()
note()
dist.barrier()
dist.all_reduce(one)
pair = dist.new_group([0, 1])
both = dist.new_group()
note()
if RANK < 2:
    dist.broadcast(one, 0, group=pair)
    operations = [dist.P2POp(dist.isend, one, 1 - RANK), dist.P2POp(dist.irecv, torch.ones(6), 1 - RANK)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    dist.all_reduce(one, group=pair)
note()
dist.all_gather([torch.ones(6) for _ in range(3)], one, group=both)
dist.all_gather_into_tensor(torch.ones(18), one)
dist.reduce(one, 0)
note()
dist.all_gather_object([None] * 3, {"rank": RANK})
note()
dist.broadcast_object_list([RANK], 0)
note()
dist.all_reduce(one)
note()
last = entries()[-1]
recorded = {}
for entry in _json.loads(bindings._dump_fr_trace_json(True, False))["entries"]:
    if not entry["is_p2p"]:
        name = entry["profiling_name"].partition(":")[2]
        recorded["%s %d" % (entry["process_group"][0], entry["collective_seq_id"])] = name
say(calls=calls, recorded=recorded, last=last, pair=pair.group_name if RANK < 2 else "", both=both.group_name)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[Left]:
    """Three ranks that have done a little of everything."""
    left = run(tmp_path_factory.mktemp("mixed"), GLOO + MIXED, ranks=3, PYTHONWARNINGS="ignore::FutureWarning")
    assert [rank.code for rank in left] == [0] * 3, [rank.err for rank in left]
    return left


def test_nothing_is_switched_off(mixed: list[Left]) -> None:
    # Rank 2 is no member of a group that the others make.
    assert [rank.err for rank in mixed] == [""] * 3


def test_numbers_agree_with_the_flight_recorder(mixed: list[Left]) -> None:
    for rank in mixed:
        ours, theirs = rank.said["calls"], rank.said["recorded"]
        assert set(ours) == set(theirs)
        assert {key: canonical(op) for key, op in ours.items()} == {key: canonical(op) for key, op in theirs.items()}


def test_numbers_agree_among_ranks_whatever_they_send(mixed: list[Left]) -> None:
    first, second, third = (rank.said["calls"] for rank in mixed)
    pair = mixed[0].said["pair"]

    assert first == second
    assert third == {key: op for key, op in first.items() if not key.startswith(pair + " ")}
    assert mixed[0].said["last"][:3] == mixed[2].said["last"][:3]


def test_every_rank_wrote_down_the_groups_it_knows(mixed: list[Left]) -> None:
    pair, both = mixed[0].said["pair"], mixed[0].said["both"]

    for rank in mixed:
        assert rank.groups["0"] == [0, 1, 2]
        assert rank.groups[both] == [0, 1, 2]
        assert rank.groups["init"] == [0, 1, 2]
    for rank in mixed[:2]:
        assert rank.groups[pair] == [0, 1]
    assert mixed[2].groups.get(pair, [0, 1]) == [0, 1]


def test_every_rank_wrote_down_which_groups_it_was_told_to_make(mixed: list[Left]) -> None:
    assert [rank.new_groups for rank in mixed] == [[[0, 1], [0, 1, 2]]] * 3


def test_the_last_word_is_that_the_group_is_gone(mixed: list[Left]) -> None:
    for rank in mixed:
        last = rank.slot.entries[-1]
        assert (last.op, last.group, last.status) == ("destroy_process_group", "0", DONE)
        assert last.thread == rank.pid
        assert last.file.endswith("/script.py")
        assert rank.slot.pulse.begun == rank.slot.pulse.ended


BARRIER = """
import json as _json
one = torch.ones(4)
dist.all_reduce(one)
dist.monitored_barrier()
dist.all_reduce(one)
dist.monitored_barrier()
dist.barrier()
seen = entries()
recorded = [
    [entry["profiling_name"].partition(":")[2], entry["collective_seq_id"]]
    for entry in _json.loads(sys.modules["torch._C._distributed_c10d"]._dump_fr_trace_json(True, False))["entries"]
]
say(seen=seen, recorded=recorded)
# Left alone, one end in fifty is a SIGABRT of torch's own (2.13, without safelaunch).
dist.destroy_process_group()
"""


def test_numbers_agree_after_a_monitored_barrier(tmp_path: Path) -> None:
    ranks = run(tmp_path, GLOO + BARRIER, ranks=2)

    for rank in ranks:
        assert (rank.code, rank.err) == (0, "")
        ours = [[op, seq] for op, group, seq, _, _ in rank.said["seen"] if group == "0"]
        assert ours == [entry for entry in rank.said["recorded"] if entry[0] != "monitored_barrier"]
        barriers = [[group, seq] for op, group, seq, _, _ in rank.said["seen"] if op == "monitored_barrier"]
        assert barriers == [["0:monitored_barrier", 1], ["0:monitored_barrier", 2]]
        assert rank.groups["0:monitored_barrier"] == [0, 1]


WAITS = """
one = torch.ones(4)
if RANK == 0:
    work = dist.all_reduce(one, async_op=True)
    issued = entries()
    waiter = threading.Thread(target=lambda: [work.wait(), mark("finished")])
    waiter.start()
    until(lambda: slot().entries[-1].status == black_box.INSIDE)
    inside, waiting = entries(), slot().pulse.waiting
    mark("waits")
    waiter.join()
    one_more = dist.irecv(one, 1)
    message = entries()[-1]
    waiter = threading.Thread(target=lambda: [one_more.wait(), mark("received")])
    waiter.start()
    until(lambda: slot().entries[-1].status == black_box.INSIDE)
    mark("waits for a message")
    waiter.join()
    say(issued=issued[-1], inside=inside[-1], waiting=waiting, message=message, after=entries()[-2:])
else:
    marked("waits")
    dist.all_reduce(one)
    marked("waits for a message")
    dist.send(one, 0)
    say(sent=entries()[-1])
dist.destroy_process_group()
"""


def test_what_was_issued_is_a_wait_once_it_is_waited_for(tmp_path: Path) -> None:
    first, second = run(tmp_path, GLOO + WAITS, ranks=2)

    assert (first.code, second.code, first.err, second.err) == (0, 0, "", "")
    assert first.said["issued"] == ["all_reduce", "0", 1, ISSUED, -1]
    assert first.said["inside"] == ["all_reduce", "0", 1, INSIDE, -1]
    assert first.said["waiting"] is True
    assert first.said["message"] == ["irecv", "0", 1, ISSUED, 1]
    assert first.said["after"] == [["all_reduce", "0", 1, DONE, -1], ["irecv", "0", 1, DONE, 1]]
    assert second.said["sent"] == ["send", "0", 1, DONE, 0]


HOW = """
one = torch.ones(4)
dist.all_reduce(one)
dist.all_reduce(one, dist.ReduceOp.MAX)
dist.reduce(one, 0, op=dist.ReduceOp.MIN)
dist.broadcast(one, 0)
other = 1 - RANK
marks = []
from safelaunch.worker import collectives
collectives.MARKS.mark = lambda *what: marks.append(what[0])
works = []
for _ in range(2):
    with dist.distributed_c10d._coalescing_manager(async_ops=True):  # as batch_isend_irecv has it on a GPU
        works += [dist.isend(one, other), dist.irecv(torch.ones(4), other)]
works += [dist.isend(one, other), dist.irecv(torch.ones(4), other)]
for work in works:
    work.wait()
say(how=[entry.how for entry in slot().entries], marks=marks)
dist.barrier()
"""


def test_what_a_call_does_with_elements_and_which_messages_are_a_batch(tmp_path: Path) -> None:
    for rank in run(tmp_path, GLOO + HOW, ranks=2):
        assert (rank.code, rank.err) == (0, "")
        assert rank.said["how"][1:] == ["sum", "max", "min", "", *["batch"] * 4, "", ""]
        # Nothing stands between the messages of a batch.
        assert rank.said["marks"] == ["isend", "isend", "isend", "irecv"]


RAISES = """
import json as _json
one = torch.ones(4)
dist.all_reduce(one)
errors = []
for call, *arguments in ((dist.all_reduce, "no tensor"), (dist.broadcast, one, 5), (dist.send, one, 0)):
    try:
        call(*arguments)
    except Exception as error:
        errors.append(type(error).__name__)
raised = entries()
dist.all_reduce(one)
dist.barrier()
last = _json.loads(sys.modules["torch._C._distributed_c10d"]._dump_fr_trace_json(True, False))["entries"][-1]
say(errors=errors, raised=raised, after=entries()[-2:], recorded=last["collective_seq_id"],
    begun=slot().pulse.begun, ended=slot().pulse.ended)
"""


def test_a_collective_that_raises_is_over_and_takes_no_number(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, GLOO + RAISES)

    assert (rank.code, rank.err) == (0, "")
    assert len(rank.said["errors"]) == 3
    assert RAISED_AN_ERROR in [status for *_, status, _ in rank.said["raised"]]
    assert INSIDE not in [status for *_, status, _ in rank.said["raised"]]
    assert [entry[0] for entry in rank.said["after"]] == ["all_reduce", "barrier"]
    assert rank.said["after"][-1][2] == rank.said["recorded"]
    assert rank.said["begun"] == rank.said["ended"]


BROKEN = """
black_box.Writer.enter = lambda *_, **__: 1 / 0
dist.all_reduce(torch.ones(3))
for _ in range(3):
    dist.all_reduce(torch.ones(3))
dist.barrier()
print("went on")
"""


def test_a_record_that_fails_is_off_with_one_warning(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, GLOO + BROKEN)

    assert (rank.code, rank.out) == (0, "went on\n")
    assert rank.err.count("\n") == 1
    assert "safelaunch: warning[SL902]: the record of collectives is off in this rank: ZeroDivisionError" in rank.err


FORKED = """
import torch.utils.data
import safelaunch
parameter = torch.nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
optimizer = torch.optim.SGD([parameter], lr=0.1)
dist.barrier()
def picture():
    pulse = slot().pulse
    return [entries(), pulse.steps, pulse.batches, pulse.marks, pulse.begun, pulse.ended, pulse.phases]
before = picture()
if os.fork() == 0:
    optimizer.step()
    list(torch.utils.data.DataLoader([1, 2, 3]))
    torch.save({}, "child.pt")
    safelaunch.heartbeat(1, 2)
    with safelaunch.phase("child"):
        pass
    for call in (dist.all_reduce, dist.isend):  # gloo itself does not survive a fork: they must fail before it
        try:
            call("no tensor", 0)
        except TypeError:
            pass
    os._exit(0)
_, status = os.wait()
say(status=status, same=before == picture(), before=before)
"""


def test_forked_children_write_nothing(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, GLOO + FORKED)

    assert rank.code == 0, rank.err
    assert (rank.said["status"], rank.said["same"]) == (0, True), rank.err
    assert set(rank.groups) == {"init", "0"}


def test_a_script_without_collectives_has_no_entries(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "print('ran')")

    assert (rank.code, rank.out, rank.slot.entries, rank.groups) == (0, "ran\n", [], {})
    assert PREAMBLE in (tmp_path / "script.py").read_text()


def test_a_traceback_through_our_wrappers_shows_none_of_them(tmp_path: Path) -> None:
    source = """
def average(value):
    try:
        dist.all_reduce(value)
    except TypeError as error:
        raise RuntimeError("not averaged") from error
average("gradient")
"""
    (rank,) = run(tmp_path, GLOO + source)

    assert rank.code == 1
    assert "safelaunch" not in rank.err.partition("Traceback")[2]
    assert "in all_reduce" in rank.err
    assert "dist.all_reduce(value)" in rank.err
    assert 'average("gradient")' in rank.err


def test_a_collective_that_python_itself_calls_at_the_end_is_recorded(tmp_path: Path) -> None:
    source = "import atexit\natexit.register(lambda: say(entries=entries()))\natexit.register(dist.barrier)\n"
    rank = run(tmp_path, GLOO + source, ranks=1)[0]

    assert [op for op, *_ in rank.said["entries"]][-1] == "barrier"
    assert "SL902" not in rank.err

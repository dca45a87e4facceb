"""Folders of Flight Recorder dumps, and what a person who reads them would say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fr_dumps import TRAIN, Recorder, world, write_all
from harness import REPOSITORY

from safelaunch.diagnosis import diagnose
from safelaunch.evidence.offline import dump_case, dump_files
from safelaunch.model import Verdict

RECORDED = REPOSITORY / "tests" / "dumps"


def judged(folder: Path) -> Verdict:
    found, _ = dump_files.find([str(folder)])
    return diagnose(dump_case.build(dump_files.read_all(found)))


def told(verdict: Verdict) -> str:
    return " / ".join((verdict.summary, *verdict.because))


# ------------------------------------------------------------------------------------- gloo, of real ranks

EXPECTED = {
    "gloo-late": ("SL301", (2,), "medium", "never entered all_reduce #7"),
    "gloo-operation": ("SL302", (1,), "low", "rank 1 makes broadcast #3"),
    "gloo-left-loop": ("SL302", (3,), "low", "who skipped it, or left early, the dumps do not say"),
    "gloo-subgroup": ("SL301", (3,), "medium", "rank 2 waits in all_reduce #4 of group 2"),
    "gloo-order": ("SL311", (0,), "medium", "rank 0 waits in all_reduce #2"),
    "gloo-message": ("SL399", (), "low", "gloo records no messages"),
    "gloo-healthy": ("SL399", (), "low", "no rank was inside a collective"),
    "gloo-gone": ("SL399", (), "low", "rank 1: no dump"),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("ending", ["", ".json"])
def test_dumps_of_real_ranks(name: str, ending: str, tmp_path: Path) -> None:
    code, culprits, confidence, mention = EXPECTED[name]
    for path in (RECORDED / name).iterdir():
        if path.suffix == ending:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    verdict = judged(tmp_path)

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == (code, culprits, confidence), told(verdict)
    assert mention in told(verdict)


def test_a_pickle_tells_the_lines_of_those_who_wait() -> None:
    verdict = judged(RECORDED / "gloo-late")

    assert any("fr_ranks.py" in line and "ranks 0 and 1 wait" in line for line in verdict.because), verdict.because
    assert verdict.location is None  # nobody knows where the culprit stands


def test_the_recorded_folders_are_those_that_are_expected() -> None:
    assert {path.name for path in RECORDED.glob("gloo-*")} == set(EXPECTED)


# ------------------------------------------------------------------------------------------- NCCL, by hand


def ranks(size: int) -> list[Recorder]:
    return [Recorder(rank, world(size)).calls(3) for rank in range(size)]


def waiting(recorder: Recorder, op: str = "all_reduce", group: str = "0", **more: object) -> Recorder:
    return recorder.call(op, group, state="scheduled", **more)  # type: ignore[arg-type]


def test_ranks_that_enqueued_ahead_wait_in_the_first_call(tmp_path: Path) -> None:
    everybody = ranks(4)
    for recorder in everybody[:3]:
        recorder.calls(9, state="scheduled")
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks, verdict.seq) == ("SL301", (3,), 4)
    assert "3 peers wait" in verdict.summary
    assert f"had finished all_reduce #3 at {TRAIN}:88" in told(verdict)
    assert verdict.confidence == "medium"


def test_a_rank_without_a_dump_is_not_blamed_and_not_passed_over(tmp_path: Path) -> None:
    verdict = judged(write_all(tmp_path, [waiting(one) for one in ranks(4) if one.rank != 2]))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL399", (), "low")
    assert "nothing is known of rank 2" in verdict.summary
    assert "rank 2: no dump" in told(verdict)


def test_with_a_dump_missing_a_name_is_less_sure(tmp_path: Path) -> None:
    first, second, *_ = ranks(4)
    verdict = judged(write_all(tmp_path, [waiting(first), waiting(second), ranks(4)[3]]))

    assert (verdict.culprit_ranks, verdict.confidence) == ((3,), "low")
    assert "rank 2: no dump" in told(verdict)


def test_groups_entered_in_another_order(tmp_path: Path) -> None:
    groups = {**world(3), "1": (0, 1, 2)}
    everybody = [Recorder(rank, groups).call().call(group="1") for rank in range(3)]
    for recorder in everybody:
        one, other = ("1", "0") if recorder.rank == 2 else ("0", "1")
        waiting(waiting(recorder, group=one, line=60), group=other, line=61)
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL311", (2,))


def test_a_chain_through_messages_ends_at_its_sink(tmp_path: Path) -> None:
    everybody = ranks(3)
    for recorder in everybody[:2]:
        peer = recorder.rank + 1
        recorder.call(f"recv {recorder.rank}<-{peer}", message=True, state="scheduled")
        recorder.call("coalesced", message=True, state="scheduled", same_launch=True)
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (2,))
    assert "has not sent what rank 1 waits for" in verdict.summary


def test_all_inside_the_same_collective_blames_nobody(tmp_path: Path) -> None:
    verdict = judged(write_all(tmp_path, [waiting(one) for one in ranks(4)]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())


@pytest.mark.parametrize("what", [{"numel": 999}, {"dtype": "Half"}])
def test_another_size_or_type(tmp_path: Path, what: dict[str, object]) -> None:
    everybody = [waiting(one, **(what if one.rank == 1 else {})) for one in ranks(4)]
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL410", (1,), "medium")


@pytest.mark.parametrize("op", ["all_to_all", "all_gather", "all_to_all_v_single"])
def test_uneven_sizes_are_right_where_they_may_be(tmp_path: Path, op: str) -> None:
    verdict = judged(write_all(tmp_path, [waiting(one, op, numel=100 + one.rank) for one in ranks(4)]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())


def test_of_two_that_disagree_nobody_is_named(tmp_path: Path) -> None:
    one, other = ranks(2)
    verdict = judged(write_all(tmp_path, [waiting(one), waiting(other, "broadcast")]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", ())


def test_a_call_that_the_gpu_has_not_begun(tmp_path: Path) -> None:
    everybody = ranks(4)
    for recorder in everybody:
        recorder.entries[-1]["time_discovered_started_ns"] = 1
        recorder.call(state="scheduled" if recorder.rank == 1 else "started")
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (1,))
    assert "the GPU has not begun it" in verdict.summary


def test_a_call_that_only_one_rank_makes_is_not_the_others_fault(tmp_path: Path) -> None:
    everybody = ranks(4)
    waiting(everybody[0], "broadcast", line=120)
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert "have never made such a call" in told(verdict)


def test_many_that_do_not_come_to_their_usual_call_are_named_without_confidence(tmp_path: Path) -> None:
    everybody = ranks(4)
    waiting(everybody[0])
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.culprit_ranks, verdict.confidence) == ((1, 2, 3), "low")


def test_a_dump_from_before_is_set_aside(tmp_path: Path) -> None:
    everybody = [waiting(one.calls(5)) for one in ranks(4)]
    everybody[2] = ranks(4)[2]
    verdict = judged(write_all(tmp_path, everybody))

    assert verdict.culprit_ranks == ()
    assert "rank 2: its dump was taken before its peers'" in told(verdict)


def test_a_dump_of_another_run_that_was_further_is_set_aside(tmp_path: Path) -> None:
    everybody = [waiting(one) for one in ranks(4)]
    everybody[2] = Recorder(2, world(4), clock_ns=everybody[0].clock_ns - 10**14).calls(900)
    verdict = judged(write_all(tmp_path, everybody))

    assert verdict.culprit_ranks == ()
    assert "rank 2: its dump was taken after its peers'" in told(verdict)


def test_a_later_dump_of_the_same_run_proves_that_nothing_hung(tmp_path: Path) -> None:
    everybody = [waiting(one) for one in ranks(4)]
    everybody[1] = ranks(4)[1]
    everybody[2] = ranks(4)[2].calls(900)
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks, verdict.waiting) == ("SL399", (), ())
    assert "a later dump, of rank 2, shows that the job went on" in told(verdict)


def test_who_enqueued_what_a_peer_has_finished_was_dumped_before(tmp_path: Path) -> None:
    everybody = [one.call(state="started") for one in ranks(4)]
    everybody[1] = ranks(4)[1].calls(2, state="scheduled", time_discovered_started_ns=None)
    everybody[1].entries[0]["time_discovered_started_ns"] = 1
    everybody[3] = ranks(4)[3].call()
    verdict = judged(write_all(tmp_path, everybody))

    assert verdict.culprit_ranks == ()
    assert "nothing is known of rank 1" in verdict.summary
    assert "no rank is late" not in verdict.remedy


@pytest.mark.parametrize(("age_s", "culprits"), [(0.001, ()), (60.0, (2,))])
def test_a_wait_no_longer_than_usual_is_no_hang(tmp_path: Path, age_s: float, culprits: tuple[int, ...]) -> None:
    everybody = [one if one.rank == 2 else waiting(one) for one in ranks(4)]
    write_all(tmp_path, everybody)
    written = everybody[0].clock_ns / 1e9 + age_s
    for path in tmp_path.iterdir():
        os.utime(path, (written, written))
    verdict = judged(tmp_path)

    assert verdict.culprit_ranks == culprits
    assert ("may simply have been running" in verdict.summary) == (not culprits)


@pytest.mark.parametrize(("early", "named"), [((0,), (0,)), ((1, 2, 3), (0,)), ((2, 3), ())])
def test_a_barrier_alone_does_not_tell_who_left_a_loop(
    tmp_path: Path, early: tuple[int, ...], named: tuple[int, ...]
) -> None:
    everybody = [waiting(one, "barrier" if one.rank in early else "all_reduce") for one in ranks(4)]
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL302", named, "low")


def test_who_enqueued_less_than_its_peers_is_told_of_without_blame(tmp_path: Path) -> None:
    everybody = ranks(4)
    for one in everybody:
        one.entries[0]["time_discovered_started_ns"] = 1  # started events are recorded, and these calls have none
        one.calls(1 if one.rank == 2 else 3, state="scheduled")
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert "rank 2 did not come to all_reduce #6 of group 0, which its peers enqueued" in verdict.summary


def test_two_against_one_are_no_majority(tmp_path: Path) -> None:
    everybody = [waiting(one, "broadcast" if one.rank == 1 else "all_reduce") for one in ranks(3)]

    assert judged(write_all(tmp_path, everybody)).culprit_ranks == ()


def test_of_a_message_without_its_other_half_both_ends_are_shown(tmp_path: Path) -> None:
    everybody = [waiting(one) for one in ranks(4) if one.rank != 3]
    receiver = Recorder(3, world(4)).calls(3).call("recv 3<-1", state="scheduled", message=True)
    verdict = judged(write_all(tmp_path, [*everybody, receiver]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL311", ())
    assert "ranks 1 and 3 wait for one another" in verdict.summary


def test_gloo_may_hide_what_most_ranks_do(tmp_path: Path) -> None:
    everybody = [Recorder(rank, {}, backend="gloo").calls(3) for rank in range(4)]
    everybody[3].call(state="scheduled")
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert "no monitored_barrier" in told(verdict)


def test_a_ring_without_the_group_proves_nothing(tmp_path: Path) -> None:
    groups = {**world(3), "1": (0, 2)}
    everybody = [Recorder(rank, groups, room=50).call(group="1") for rank in (0, 2)]
    for recorder in everybody:
        recorder.calls(60)
    waiting(everybody[0], group="1")
    verdict = judged(write_all(tmp_path, [*everybody, Recorder(1, groups, room=50).calls(60)]))

    assert verdict.culprit_ranks == (), told(verdict)


def test_groups_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    everybody = [Recorder(rank, {**world(4), "1": (0, 1) if rank < 2 else (2, 3)}) for rank in range(4)]
    for recorder in everybody:
        recorder.calls(2).calls(1 if recorder.rank < 2 else 9, group="1")
    waiting(everybody[2], group="1")
    verdict = judged(write_all(tmp_path, everybody))

    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (3,)), told(verdict)


def test_json_and_pickle_say_the_same(tmp_path: Path) -> None:
    everybody = ranks(4)
    for recorder in everybody[:3]:
        waiting(recorder).write_json(tmp_path)
    everybody[3].write_json(tmp_path, "trace_")
    verdict = judged(tmp_path)

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL301", (3,), "medium")
    assert json.dumps(verdict.because)

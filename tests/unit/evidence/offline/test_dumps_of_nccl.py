"""Dumps of NCCL's two backends: late hosts, late GPUs and ranks without a dump, in real incidents and by hand."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fr_dumps import TRAIN, Recorder, world, write_all
from harness import REPOSITORY

from safelaunch.diagnosis import diagnose
from safelaunch.evidence.offline import dump, dump_case, dump_files
from safelaunch.model import Verdict

RECORDED = REPOSITORY / "tests" / "dumps"

# Two incidents of 16 ranks whose faults are known: the ranks, and what stood still.
INCIDENTS = {"nccl-gpu-error": ({12, 14}, "SL318", "the GPUs of"), "nccl-lock-gil": ({9, 14}, "SL301", "the hosts of")}


def judged(folder: Path) -> Verdict:
    found, _ = dump_files.find([str(folder)])
    return diagnose(dump_case.build(dump_files.read_all(found)))


def of(documents: Mapping[int, Any]) -> Verdict:
    return diagnose(
        dump_case.build([dump.read(document, rank, f"_dump_{rank}") for rank, document in documents.items()])
    )


def incident(name: str, holds: str = "active") -> dict[int, Any]:
    documents = {rank: pickle.loads((RECORDED / name / f"_dump_{rank}").read_bytes()) for rank in range(16)}
    return {
        rank: without_entries(document) if holds == "counters" else document for rank, document in documents.items()
    }


def without_entries(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "entries"}


def told(verdict: Verdict) -> str:
    return " / ".join((verdict.summary, *verdict.because))


# --------------------------------------------------------------------------------------------- the incidents


@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.parametrize("holds", ["active", "counters"])
def test_an_incident_names_its_ranks_and_tells_host_from_gpu(name: str, holds: str) -> None:
    ranks, code, whose = INCIDENTS[name]
    verdict = of(incident(name, holds))

    assert (set(verdict.culprit_ranks), verdict.code) == (ranks, code), told(verdict)
    assert verdict.summary.startswith(whose)
    assert verdict.confidence == ("medium" if holds == "active" else "low")
    assert not ranks & set(verdict.waiting)


@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.parametrize("holds", ["active", "counters"])
@pytest.mark.parametrize("lost", range(16))
def test_without_one_of_its_dumps_nobody_else_is_named(name: str, holds: str, lost: int) -> None:
    ranks, code, _ = INCIDENTS[name]
    documents = incident(name, holds)
    del documents[lost]
    verdict = of(documents)

    if holds == "active":
        assert (set(verdict.culprit_ranks), verdict.code, verdict.confidence) == (ranks - {lost}, code, "low")
    else:
        assert set(verdict.culprit_ranks) <= ranks - {lost}, told(verdict)


@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.parametrize("seed", range(40))
def test_whichever_dumps_are_left_nobody_else_is_named(name: str, seed: int) -> None:
    """Some are lost, some have lost their entries, and they are read in any order."""
    chance = random.Random(seed)
    documents = incident(name)
    left = chance.sample(range(16), chance.randint(1, 16))
    verdict = of({rank: chance.choice([without_entries, dict])(documents[rank]) for rank in left})

    assert set(verdict.culprit_ranks) <= INCIDENTS[name][0] & set(left), told(verdict)


@pytest.mark.parametrize("name", INCIDENTS)
def test_ranks_in_another_order_are_named_as_they_stand(name: str) -> None:
    """The numbers of ranks mean nothing: a job whose ranks were dealt otherwise has the same verdict, renumbered."""
    order = list(range(16))
    random.Random(7).shuffle(order)
    documents = {}
    for rank, document in incident(name).items():
        config = {
            group: {**about, "ranks": str([order[int(member)] for member in about["ranks"].strip("[]").split(",")])}
            for group, about in document["pg_config"].items()
        }
        documents[order[rank]] = {**document, "pg_config": config}

    verdict = of(documents)
    assert set(verdict.culprit_ranks) == {order[rank] for rank in INCIDENTS[name][0]}, told(verdict)


# ------------------------------------------------------------------------------------- ranks on fake GPUs

EXPECTED = {
    "nccl-late": ("SL301", (1,), "medium", "the host of rank 1 never entered all_reduce #7; 3 peers wait for it"),
    "nccl-subgroup": ("SL301", (1,), "medium", "the host of rank 1 never entered all_reduce #6 of group 1"),
    "nccl-kernel": ("SL310", (), "low", "does not say whose GPU has begun it"),
    "nccl2-late": ("SL301", (1,), "low", "rank 1 left no dump, and 3 peers wait for it in all_reduce #7"),
    "nccl2-subgroup": ("SL301", (1,), "low", "rank 1 left no dump"),
    "nccl2-subgroup-of-default": ("SL399", (), "low", "ranks 0 and 1 left no dump: one of them at least is late"),
    "nccl2-pipeline": ("SL301", (1,), "low", "rank 1 left no dump"),
    "nccl2-size": ("SL410", (1,), "medium", "rank 1 brought 3 x float32 to all_reduce #7"),
    "nccl2-order": ("SL311", (0,), "medium", "rank 0 waits in all_reduce #2 of group 2"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_dumps_of_ranks_on_fake_gpus(name: str) -> None:
    code, culprits, confidence, mention = EXPECTED[name]
    verdict = judged(RECORDED / name)

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == (code, culprits, confidence), told(verdict)
    assert mention in told(verdict)


def test_a_rank_without_a_dump_of_nccl2_is_late_or_its_file_was_not_copied() -> None:
    assert "others are late, or have ended, or their files were not copied" in told(judged(RECORDED / "nccl2-late"))


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("nccl2")])
def test_of_two_ranks_without_a_dump_of_nccl2_nobody_is_named(name: str, tmp_path: Path) -> None:
    ranks = sorted((RECORDED / name).glob("comm_lib_trace_rank_*"))
    absent = 4 - len(ranks)
    for lost in ranks:
        folder = tmp_path / lost.name
        folder.mkdir()
        for path in ranks:
            if path != lost:
                shutil.copy(path, folder)
        verdict = judged(folder)
        # A file that was not copied looks like one that was never written: the verdict says so, and is a guess.
        right = verdict.culprit_ranks in ((), EXPECTED[name][1])
        assert not verdict.culprit_ranks if absent else right or verdict.confidence == "low", told(verdict)


# ------------------------------------------------------------------------------------------------- by hand


def jobs(backend: str, size: int = 4) -> list[Recorder]:
    return [Recorder(rank, world(size), backend=backend, counters=True).calls(3) for rank in range(size)]


BACKENDS = pytest.mark.parametrize("backend", ["nccl", "nccl2"])
HOLDS = pytest.mark.parametrize("holds", ["all", "active", "counters"])


def verdict_on(everybody: list[Recorder], holds: str = "all") -> Verdict:
    return of({recorder.rank: recorder.document(holds) for recorder in everybody})


@BACKENDS
@HOLDS
def test_an_idle_rank_among_those_that_wait_is_a_late_host(backend: str, holds: str) -> None:
    everybody = jobs(backend)
    for recorder in everybody[:3]:
        recorder.calls(9, state="scheduled")
    verdict = verdict_on(everybody, holds)

    assert (verdict.code, verdict.culprit_ranks, verdict.seq) == ("SL301", (3,), 4), told(verdict)
    assert verdict.summary.startswith("the host of rank 3 never entered")


@BACKENDS
@pytest.mark.parametrize("holds", ["all", "active"])
def test_what_peers_have_completed_is_a_matter_of_the_gpu(backend: str, holds: str) -> None:
    everybody = jobs(backend)
    for recorder in everybody:
        recorder.calls(2, state="scheduled" if recorder.rank == 1 else "completed", line=90)
        recorder.calls(3, state="scheduled")
    verdict = verdict_on(everybody, holds)

    assert (verdict.code, verdict.culprit_ranks, verdict.seq) == ("SL318", (1,), 4), told(verdict)
    assert verdict.summary.startswith("the GPU of rank 1 has not completed all_reduce #4, and its peers have")
    assert verdict.location is not None
    assert (verdict.location.file, verdict.location.line) == (TRAIN, 90)


@BACKENDS
def test_who_waits_for_a_late_host_is_not_blamed_for_what_stands_behind(backend: str) -> None:
    """Rank 0 waits in its pair for rank 1; a broadcast that its root has completed stands behind that wait."""
    groups = {**world(4), "1": (0, 1)}
    everybody = [Recorder(rank, groups, backend=backend, counters=True).calls(3) for rank in range(4)]
    everybody[0].call(group="1", state="scheduled").call("broadcast", state="scheduled")
    everybody[2].call("broadcast")
    everybody[3].call("broadcast", state="scheduled")
    verdict = verdict_on(everybody)

    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (1,)), told(verdict)


def test_a_broadcast_that_its_root_has_left_blames_nobody_that_still_waits() -> None:
    everybody = jobs("nccl")
    everybody[0].call("broadcast")
    for recorder in everybody[2:]:
        recorder.call("broadcast", state="scheduled")
    verdict = verdict_on(everybody)

    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (1,)), told(verdict)


@BACKENDS
@pytest.mark.parametrize(("holds", "culprits"), [("active", (1,)), ("all", ())])
def test_an_exchange_that_some_have_left_blames_who_has_not_come(
    backend: str, holds: str, culprits: tuple[int, ...]
) -> None:
    """Ranks that have nothing for one another do not wait for one another: rank 1 had nothing for rank 0. Where its
    entries show that it came no further, its dump may also be an earlier one."""
    everybody = jobs(backend)
    everybody[0].call("all_to_all")
    for recorder in everybody[2:]:
        recorder.call("all_to_all", state="scheduled")
    verdict = verdict_on(everybody, holds)

    assert verdict.culprit_ranks == culprits, told(verdict)


@HOLDS
def test_numbers_of_a_group_with_messages_are_not_compared(holds: str) -> None:
    """Rank 0 sent once, long ago: nccl2 counts that, so its number is higher than its peers'."""
    everybody = [Recorder(rank, world(4), backend="nccl2", counters=True) for rank in range(4)]
    everybody[0].call("send 0->1", message=True)
    everybody[1].call("recv 1<-0", message=True)
    for recorder in everybody:
        recorder.calls(3).call(state="scheduled")
    verdict = verdict_on(everybody, holds)

    assert not verdict.culprit_ranks, told(verdict)


@pytest.mark.parametrize(("age_s", "culprits"), [(0.5, ()), (60.0, (3,))])
def test_active_calls_of_a_moment_ago_are_no_hang(tmp_path: Path, age_s: float, culprits: tuple[int, ...]) -> None:
    everybody = jobs("nccl")
    for recorder in everybody[:3]:
        recorder.call(state="scheduled")
    for recorder in everybody:
        path = tmp_path / f"trace_{recorder.rank}"
        path.write_bytes(pickle.dumps(recorder.document("active"), protocol=2))
        written = everybody[0].clock_ns / 1e9 + age_s
        os.utime(path, (written, written))
    verdict = judged(tmp_path)

    assert verdict.culprit_ranks == culprits, told(verdict)


def test_counters_alone_do_not_tell_a_hang_from_a_job_that_runs() -> None:
    assert "do not tell a hang from a job that runs" in told(of(incident("nccl-gpu-error", "counters")))


def test_all_have_started_and_none_completes() -> None:
    everybody = jobs("nccl")
    for recorder in everybody:
        recorder.entries[-1]["time_discovered_started_ns"] = 1
        recorder.call(state="started")
    verdict = verdict_on(everybody)

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL310", (), "medium")
    assert "does not say whose GPU" not in told(verdict)


def test_a_rank_that_left_no_dump_of_the_old_backend_is_not_named(tmp_path: Path) -> None:
    """Its watchdog asks all ranks for one, so that none says that the rank had ended, or its file is not here."""
    everybody = jobs("nccl")
    for recorder in everybody:
        recorder.call(state="scheduled")
    verdict = judged(write_all(tmp_path, everybody[:3]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())


def test_dumps_of_two_backends_are_not_compared(tmp_path: Path) -> None:
    """Each backend has a recorder of its own: gloo's of all ranks lie beside nccl2's, and are younger."""
    (tmp_path / "gloo").mkdir()
    (tmp_path / "nccl").mkdir()
    everybody = jobs("nccl2")
    for recorder in everybody[:3]:
        recorder.call(state="scheduled")
    gloo = [Recorder(rank, world(4), backend="gloo", clock_ns=everybody[0].clock_ns).calls(1) for rank in range(4)]
    write_all(tmp_path / "nccl", everybody)
    write_all(tmp_path / "gloo", gloo)
    verdict = judged(tmp_path)
    assert (verdict.culprit_ranks, verdict.seq) == ((3,), 4), told(verdict)

    (tmp_path / "nccl" / "nccl_trace_rank_3").unlink()
    (tmp_path / "gloo" / "nccl_trace_rank_0").unlink()
    verdict = judged(tmp_path)
    assert "which numbers calls for itself" in told(verdict)
    assert not verdict.culprit_ranks or verdict.confidence == "low"


def test_entries_of_nccl2_never_start_until_they_end() -> None:
    """The time of the end stands in both fields: that is no sign that calls are timed."""
    recorder = Recorder(0, world(2), backend="nccl2").calls(2).call(state="scheduled")
    for entry in recorder.entries[:2]:
        entry["time_discovered_started_ns"] = entry["time_discovered_completed_ns"]
    read = dump.read(recorder.document(), 0, "comm_lib_trace_rank_0")

    assert [(call.seq, call.done, call.issued, call.state) for call in read.calls][-1] == (3, False, False, "enqueued")

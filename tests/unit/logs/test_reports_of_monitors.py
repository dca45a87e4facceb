# ruff: noqa: E501 - lines of logs are as long as they are
"""Reports of monitors and analysers are conclusions: they are told in words, with GPUs, ranks and counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, rank, traceback
from test_no_false_all_clear import judged

XID = "[Sun Jan  4 10:00:0{} 2026] NVRM: Xid (PCI:0000:{}:00): {}, pid=7, name=python\n"
RECORDER = "Collective 3 at entry 3 errors\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\ninput sizes: [[8]]\n"
REPORTS = {
    "kernel": (
        "[Sun Jan  4 09:00:00 2026] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  1.2.3\n"
        + "".join(XID.format(i, "db", 31) for i in range(3)) + XID.format(5, "3d", 43),
        "SL427", ("Xid 31", "0000:db:00 (3 times)", "Xid 43", "0000:3d:00"), ("Kernel Module",),
    ),
    "recorder, sizes": (
        RECORDER + "error msg: Culprit rank 5; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[8]]' does not match found input sizes: '[[9]]'\n",
        "SL410", ("rank 5", "all_reduce", "#3", "[[9]]"), (),
    ),
    "recorder, absent": ("Not all ranks joining collective 7 at entry 1\ncollective: nccl:all_gather\nmissing ranks: {5}\n", "SL301", ("rank 5 never joined all_gather #7",), ()),
    "RAS": (
        "Group     Comms     Nodes     Ranks    Status  Errors\n#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  6 ranks have launched up to operation 10\n  2 ranks have launched up to operation 11\n"
        "  Rank 2 -- GPU 2 managed by process 33 on node 10.0.0.7\n  Rank 3 -- GPU 3 managed by process 34 on node 10.0.0.7\n",
        "SL399", ("AllReduce", "ranks 2 and 3", "10.0.0.7", "ahead"), ("`Group",),
    ),
    "HCCL": (
        "[ERROR] HCCL(7,):2026-01-04-10:00:00.1.2 [task.cc:41] [9][TaskExecStage][Timeout]Task run failed, groupRank information is group:[g], user define information[tp], rankSize[4], rankId[3 7], tag[AllGather_g]\n"
        "[ERROR] HCCL(7,):2026-01-04-10:00:00.1.3 [task.cc:61] [9][TaskExecStage][HeartbeatAbnormal]Cluster Exception Location[IP/ID]:[10.0.0.5/6], ExceptionType:[Stuck Occurred]\n",
        "SL499", ("AllGather of group tp", "rank 3", "10.0.0.5, device 6"), (),
    ),
    "native": (
        "frame #7: c10d::PrefixStore::get(std::string const&) + 0x30 (0x7f in /x/libtorch_cpu.so)\n"
        "frame #8: c10d::ProcessGroupNCCL::broadcastUniqueNCCLID(ncclUniqueId*, bool) + 0x5 (0x7f in /x/libtorch_cuda.so)\nframe #9: <unknown function> + 0x5 (0x7f in /x/libtorch_cpu.so)\n",
        "SL499", ("c10d::PrefixStore::get", "broadcastUniqueNCCLID", "waited at the store"), ("no failure is shown",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_read(tmp_path: Path, name: str) -> None:
    text, code, told, untold = REPORTS[name]

    verdict = judged(tmp_path, text)

    assert verdict.code == code, verdict.summary
    assert all(part in verdict.summary for part in told), verdict.summary
    assert not any(part in verdict.summary for part in untold)


def test_the_reason_of_a_library_leads_and_its_way_out_is_the_advice(tmp_path: Path) -> None:
    text = (
        "RuntimeError: [ERROR] HCCL error in: a/b/ProcessGroupHCCL.cpp:64\n"
        "[ERROR] 2026-01-04-10:00:00 (PID:9, Device:3, RankID:3) ERR02200 DIST call hccl api failed.\n"
        "EJ0001: 2026-01-04-10:00:00.1.2 Failed to start the helper. Reason: an earlier one runs.\n        Solution: Wait for 10s and try again.\n"
    )

    verdict = judged(tmp_path, text)

    assert verdict.summary.startswith("rank 3: EJ0001: Failed to start the helper. Reason: an earlier one runs.")
    assert "Wait for 10s and try again" in verdict.remedy


def test_a_rank_that_lines_before_a_failure_name_is_told_and_not_blamed(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        'My rank: 4\nTraceback (most recent call last):\n  File "/w/a.py", line 1, in f\n    g()\nValueError: odd\n',
    )

    assert "the lines there name rank 4" in verdict.summary
    assert verdict.culprit_ranks == ()


def test_all_that_report_one_failure_are_named(tmp_path: Path) -> None:
    text = "".join(
        f"node-a:{100 + gpu}:{100 + gpu} [{gpu}] init.cu:1 NCCL WARN Mismatched collective detected, please check\n"
        for gpu in (3, 7, 1)
    )

    assert "3 processes on node-a (GPUs 1, 3 and 7)" in judged(tmp_path, text).summary


def test_a_full_gpu_while_buckets_are_made_is_not_cured_by_a_smaller_batch(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n    self.reducer = dist.Reducer(\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 25.10 GiB.\n'

    assert "smaller batch does not help" in judged(tmp_path, text).remedy


def test_a_silence_before_ctrl_c_is_told(tmp_path: Path) -> None:
    text = "[2026-01-04 10:00:00,000] [INFO] [RANK:0] Starting trainer...\n^C[2026-01-04 10:25:00,000] torch.distributed.elastic.agent.server.api: [WARNING] Received Signals.SIGINT death signal, shutting down workers\n"

    assert "after 25m" in judged(tmp_path, text).summary


TASK = (
    "RuntimeError: ACL stream synchronize failed.\nEI9999: Inner Error!\n"
    "EI9999: 2026-01-04-10:00:00.1 The error from device(chipId:6), an hccl task timeout occurred, timeout:20min.\n"
)


def test_a_task_of_hccl_that_timed_out_is_a_hang_of_the_rank_above_its_traceback(tmp_path: Path) -> None:
    frames = ("/x/torch/distributed/distributed_c10d.py", 26, "broadcast")
    verdict = judged(tmp_path, "engine.py:489 - Rank[5] failed.\n" + traceback(TASK.rstrip(), MAIN, frames))

    assert (verdict.kind, verdict.culprit_ranks, verdict.secondary) == ("hang", (), (5,))
    assert verdict.summary.startswith("a task timed out after 20min on rank 5 (device 6), in broadcast")


def test_a_line_right_above_a_traceback_gives_it_its_rank(tmp_path: Path) -> None:
    raised = traceback("ValueError: bad shard 7", MAIN)
    verdict = judged(tmp_path, f"ERROR: Rank 3 failed:\n{raised}")

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (3,))
    assert judged(tmp_path, f"ERROR: Rank 3 got batch 12\n{raised}").culprit_ranks == ()
    assert judged(tmp_path, f"ERROR: Rank 3 failed to pass the barrier\n{raised}").culprit_ranks == ()
    assert judged(tmp_path, f"ERROR: Rank 3 failed:\nsaving\n{raised}").culprit_ranks == ()
    assert judged(tmp_path, "ERROR: Rank 3 failed:\n" + rank(1, raised)).culprit_ranks == (1,)

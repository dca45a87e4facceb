# ruff: noqa: E501 - lines of logs are as long as they are
"""Logs of which it is not said that nothing is wrong, and those of which it may be; and the exit codes that tell them apart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from log_pieces import MAIN, traceback

from safelaunch.cli.main import main
from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence import logs
from safelaunch.model import Verdict

STEPS = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(80))
PG = "[rank1]:[{}515 18:36:47.341808597 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Something is odd."

ALARMS = [
    "node1:123:456 [0] transport/net.cc:345 NCCL WARN something odd happened",
    PG.format("E"),
    PG.format("W"),
    PG.format("F"),
    "[W1123 10:00:00.123456 TorchCommNCCL.cpp:99] [TC][rank=1][name=0] Something is odd",
    "train.py FAILED",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "Root Cause (first observed failure):",
    "the call to the storage timed out",
    "Connection to 10.0.0.3:29500 failed",
    "connect() to 10.0.0.3:29500: Connection refused",
    "terminate called after throwing an instance of 'c10::Error'",
    "terminate called without an active exception",
    "write failed: broken pipe",
    "ibv_open_device: No such device",
    "[ 12.5] pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    "[ 12.5] pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
    "Unable to determine the device handle for GPU3: 0000:C4:00.0: Unknown Error",
    "[ 12.5] NVRM: Xid (PCI:0000:44:00): 31, pid=77, name=python, MMU Fault",
    "[ 12.5] INFO: task python:77 blocked for more than 120 seconds.",
    "slurmstepd: error: something is odd",
    "./run.sh: line 3:  4711 Segmentation fault      (core dumped) python train.py",
    "Warning  BackOff  2s  kubelet  Back-off restarting failed container",
    "command terminated with exit code 137",
]


def judged(folder: Path, text: str) -> Verdict:
    (folder / "job.log").write_text(text)
    return diagnose(logs.read([str(folder / "job.log")], logs.load([], {"HOME": "/nonexistent"})))


@pytest.mark.parametrize("behind", ["", STEPS], ids=["at the end", "among steps"])
@pytest.mark.parametrize("line", ALARMS)
def test_a_line_that_speaks_of_a_failure_is_quoted_and_not_passed_over(tmp_path: Path, line: str, behind: str) -> None:
    verdict = judged(tmp_path, f"{STEPS}{line}\n{behind}")

    assert verdict.code != "SL498"
    assert any("job.log:81" in reason or "job.log:82" in reason for reason in verdict.because), verdict.because


@pytest.mark.parametrize("line", ALARMS[:4])
def test_a_job_that_says_later_that_it_ended_well_overcame_a_warning(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, f"{line}\n{STEPS}Training completed in 3 h\n")

    assert verdict.code == "SL498"
    told = ("it said as well, and went on: ", "a warning: ", "the log also says: ")
    assert any(reason.startswith(told) for reason in verdict.because)


def test_the_end_of_one_ranks_log_says_nothing_of_another_rank(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(f"{STEPS}Training completed in 3 h\n")
    (tmp_path / "rank_1.log").write_text(f"{STEPS}{ALARMS[0]}\n")

    assert diagnose(logs.read([str(tmp_path)])).code == "SL499"


WELL = {
    "steps": STEPS,
    "a progress bar": "".join(f"\r{i}%|##   | {i}/100 [00:01<00:10, 3.00it/s]" for i in range(100)),
    "records": "".join(f"{{'loss': {2 - i / 99}, 'epoch': {i / 9}}}\n" for i in range(50)),
    "megatron": "".join(f" iteration {i:8d}/  500000 | consumed samples: {i * 64:12d} | lm loss: 2.1E+00 |\n" for i in range(50)),
    "a server": 'INFO 05-15 10:00:00 ready\nINFO: 10.0.0.1:80 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 3,
    "an end": "loading\nTraining completed in 3 h\n",
    "a warning that every job gives": f"[W515 10:00:00.123 socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported by protocol).\n{STEPS}",
}  # fmt: skip


@pytest.mark.parametrize("name", WELL)
def test_steps_or_an_end_show_that_a_job_ran(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, WELL[name]).code == "SL498"


def test_what_shows_neither_a_step_nor_an_end_is_not_all_right(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "Loading checkpoint shards\nlr: 0.001\nbatch_size: 32\nepochs: 3\n")

    assert (verdict.code, verdict.confidence) == ("SL499", "low")
    assert "no failure is shown in these lines, and they end with: epochs: 3" in verdict.summary
    assert "no line shows a step of the job, or its end" in verdict.because


def test_noise_is_no_log(tmp_path: Path) -> None:
    letters = random.Random(3)
    noise = "".join("".join(letters.choices("abcdefghij ,.", k=80)) + "\n" for _ in range(30_000))

    assert "this is no log that can be read" in judged(tmp_path, noise).summary


@pytest.mark.parametrize(
    ("text", "code"),
    [(STEPS, 4), (f"{STEPS}{ALARMS[0]}\n", 3), (f"{STEPS}[rank1]: {traceback('ValueError: x', MAIN)}", 0)],
    ids=["nothing wrong", "cannot tell", "a verdict"],
)
def test_the_exit_code_tells_a_verdict_from_none(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "job.log").write_text(text)

    assert main(["diagnose", str(tmp_path / "job.log")]) == code


AT_THE_END = [  # words that no signature knows
    "the reactor was terminated by the operator",
    "worker 3 died",
    "cannot reach the metadata service",
    "lost the lease",
    "received SIGTERM",
    "the quota of this project is exceeded",
]


@pytest.mark.parametrize("line", AT_THE_END)
def test_words_of_trouble_at_the_end_are_no_end_that_is_well(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"{STEPS}{line}\n").code == "SL499"


@pytest.mark.parametrize(
    "line", ["error rate 0.01", "0 failed, 12 passed", "val_error: 0.2", "errors: 0", "no error so far", "timeout=600"]
)
def test_words_of_trouble_that_count_something_are_none(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"{STEPS}{line}\n").code == "SL498"


KERNEL = {
    "[ 99.1] traps: python[77] general protection fault ip:7f sp:7f error:0 in libtorch.so": "SL405",
    "mpirun noticed that process rank 3 with PID 77 on node node1 exited on signal 9 (Killed).": "SL403",
    "srun: error: Node failure on node3": "SL603",
}


@pytest.mark.parametrize("line", KERNEL)
def test_what_kernels_and_launchers_say_of_an_end_is_a_class(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, f"{STEPS}{line}\n")

    assert verdict.code == KERNEL[line]
    assert verdict.culprit_ranks == ((3,) if "rank 3" in line else ())


@pytest.mark.parametrize(
    "line",
    [
        "node1:100:200 [0] NCCL INFO Failed to open libibverbs.so[.1]",
        "/usr/lib/python3/x.py:12: FutureWarning: `x` will raise an error in future.",
        "[rank0]:[W515 18:36:47.34 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
        "[W515 18:36:47.34 socket.cpp:752] [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    ],
)
def test_what_jobs_say_that_end_well_is_no_alarm(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"{line}\n{STEPS}{line}\n").code == "SL498"


def test_a_job_that_somebody_ended_at_the_terminal_did_not_end_well(tmp_path: Path) -> None:
    assert judged(tmp_path, f"{STEPS}^C\n").code == "SL499"

"""A log whose last lines tell of a failure in anybody's words is not one in which nothing wrong was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read

STEPS = "".join(f"step {at} loss 0.{at}\n" for at in range(40))
ENDS = (
    "Segmentation fault (core dumped)",
    "Bus error",
    "run.sh: line 7:  4711 Killed                  python train.py",
    "free(): invalid pointer",
    "*** stack smashing detected ***: terminated",
    "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data",
    "bash: torchrun: command not found",
    "/usr/bin/python3: No module named train",
    "python3: can't open file '/srv/train.py': [Errno 2] No such file or directory",
    "srun: error: Unable to create step for job 4: Invalid generic resource (gres) specification",
    "Error: Process completed with exit code 1.",
    "Command terminated by signal 9",
    "2026-11-21 10:00:00 ERROR trainer: no sample is left",
    "CRITICAL:root:giving up",
    "thread 'main' panicked at src/main.rs:3:5: index out of bounds",
    "[n1:00123] *** Process received signal ***\n[n1:00123] Signal: Segmentation fault (11)",
    "mpirun noticed that process rank 3 with PID 1 on node n1 exited on signal 9 (Killed).",
    "AssertionError",
    "Exception: boom",
    "Loss is nan, stopping training",
    "Assertion `t >= 0 && t < n_classes` failed.",
    "Error executing job with overrides: []",
    "run.sh: Zeile 7:  4711 Getötet                  python train.py",
    "Speicherzugriffsfehler (Speicherabzug geschrieben)",
    "Erreur de segmentation",
    "Violación de segmento",
    "段错误 (核心已转储)",
    "已杀死",
    "训练失败: 显存不足",
    "Ошибка сегментирования",
    "Fehler: Die Daten sind nicht da",
    "make: *** [Makefile:3: train] Error 1",
    "train.service: Main process exited, code=killed, status=9/KILL",
    "JobState=TIMEOUT Reason=TimeLimit",
    "exit_code=1",
    "rc=137",
    '{"step": 40, "exit_status": 1}',
    '{"ts": 1, "level": "fatal", "exc": "boom"}',
    'time=1 level=error msg="the worker has ended"',
    "Memory access fault by GPU node-1 (Agent handle: 0x55d) on address 0x7f00. Reason: Unknown.",
    "GPU has fallen off the bus",
    "write: No space left on device",
    "cp: Stale file handle",
    "INFO: job failed, shutting down",
    "WARNING: rank 3 crashed, the others go with it",
    "Something went wrong, see above",
    "SystemExit: 1",
    "RuntimeError('boom')",
    "ray.exceptions.RayTaskError(ValueError): boom",
)
FINE = (
    "val error: 0.031 best 0.029",
    "top-1 error 3.2 top-5 error 0.4",
    "error rate 0.01\ndone",
    "passed: 12, 0 failed",
    "exit code 0",
    "srun: job 4 has been allocated resources\nexited with code 0",
    "[rank0]:[W1121 10:00:00.1 ProcessGroupNCCL.cpp:1538] Warning: destroy_process_group() was not called",
    "INFO upload failed once, trying again\nuploaded",
    "job 4711: error: the cache is cold\nstep 9 loss 1.2\nTraining finished. Saved model",
    "saved to /data/killed_by_error/model.pt",
    "mean error: tensor(0.0312)",
    "exit_code=0",
    "rc=0",
    '{"level": "info", "exit_status": 0}',
    "JobState=COMPLETED ExitCode=0:0",
    "训练完成",
    "Übertragung beendet",
    "Fehlerrate 0,02",
)


def verdict_of(folder: Path, end: str) -> str:
    (folder / "train.log").write_text(f"{STEPS}{end}\n")
    return diagnose(read([str(folder / "train.log")])).code


@pytest.mark.parametrize("end", ENDS)
def test_last_words_of_a_failure_are_no_all_clear(end: str, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, end) != "SL498"


@pytest.mark.parametrize("end", FINE)
def test_what_healthy_jobs_say_at_their_end_is_none(end: str, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, end) == "SL498"


def test_the_line_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"{STEPS}Bus error (core dumped)\n")
    verdict = diagnose(read([str(tmp_path / "train.log")]))

    assert any("train.log:41" in line and "Bus error" in line for line in verdict.because)


def test_what_a_job_went_on_after_is_none(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, f"ERROR trainer: a sample was torn\n{STEPS}") == "SL498"


# What a script says when a job is over comes whatever happened: `echo "Job finished"`.
SCRIPTS = ("Job finished at Wed Nov 25", "Training finished", "job done", "Run completed successfully")
FATAL = {
    "an exception": ('Traceback (most recent call last):\n  File "/w/t.py", line 3\nValueError: bad', "SL401"),
    "a signal": ("slurm_script: line 12: 4711 Killed                  python train.py", "SL499"),
    "a core dump": ("job.sh: line 3: 81 Segmentation fault      (core dumped) python train.py", "SL499"),
    "our own verdict": ("error[SL301]: rank 3 never entered all_reduce #21; 7 peers wait for it", "SL499"),
}  # fmt: skip


@pytest.mark.parametrize("said", SCRIPTS)
@pytest.mark.parametrize("failure", FATAL)
def test_what_a_script_says_at_its_end_overcomes_nothing_fatal(failure: str, said: str, tmp_path: Path) -> None:
    text, code = FATAL[failure]

    assert verdict_of(tmp_path, f"{text}\n{said}") == code


def test_the_good_end_of_one_rank_is_none_of_another(tmp_path: Path) -> None:
    lines = ("Traceback (most recent call last):", '  File "/w/t.py", line 3, in <module>', "ValueError: bad")
    failed = "".join(f"[rank3]: {line}\n" for line in lines)

    assert verdict_of(tmp_path, f"{failed}[rank0]: Training complete") == "SL401"


TAKEN_BACK = (
    "training not completed", "The job has not finished", "Training completed: False", "Run completed unsuccessfully",
    "Job done, rc=137", "Job finished (exit 1)", "Training finished early due to NaN loss", "job finished abnormally",
    "training finished 0 of 10 epochs", "Training could not be completed",
)  # fmt: skip


@pytest.mark.parametrize("end", TAKEN_BACK)
def test_an_end_that_is_taken_back_is_none(end: str, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, end) == "SL499"


@pytest.mark.parametrize("end", ["Training completed, 0 errors", "Training complete!", "Job finished (exit code 0)"])
def test_a_plain_end_is_one(end: str, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, end) == "SL498"


@pytest.mark.parametrize(
    "said", ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module 575.51", "NVRM: GPU Board Serial Number: 16502"]
)
def test_what_a_driver_says_of_itself_is_no_fault(said: str, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, said) == "SL498"


def test_a_lost_peer_is_no_cause_where_its_address_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(
        f"{STEPS}RuntimeError: [/build/gloo/transport/tcp/pair.cc:534] Connection closed by\n"
    )

    assert diagnose(read([str(tmp_path)])).code == "SL412"

"""`srun safelaunch train.py` on a real Slurm of three nodes: no option says anything of nodes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm
from harness import FAULTS, REPOSITORY

pytestmark = [pytest.mark.rig, pytest.mark.timeout(200)]

SAFELAUNCH = (sys.executable, "-m", "safelaunch")
JOB = (*SAFELAUNCH, "--preflight", "off", "--nproc-per-node", 2)  # the rig's nodes have no GPUs, which say it otherwise
SCRIPT = """
import os, socket, time, torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, fault = dist.get_rank(), os.environ.get("FAULT", "")
print(f"rank {rank} of {dist.get_world_size()} on {socket.gethostname()}", flush=True)
stop = torch.zeros(1)
for step in range(int(os.environ.get("STEPS", 20))):
    if fault == f"raise@{rank}" and step == 10:
        raise ValueError("a bad sample")
    dist.all_reduce(stop)
    if step == 10 and fault == "wait":
        open(f"ready-{rank}", "w").close()
    time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    if why := slurm.why_not():
        pytest.skip(why)
    made = slurm.Slurm(3, tmp_path_factory.mktemp("slurm") / "state")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def batch(job: Path, *lines: object) -> str:
    """The name of a script for sbatch, which appends to the file `said`."""
    head = ("#!/bin/sh", "#SBATCH --requeue", "#SBATCH --open-mode=append", f"#SBATCH --output={job}/said")
    (job / "job.sh").write_text("\n".join((*head, "export GLOO_SOCKET_IFNAME=eth0", *map(str, lines), "")))
    return "job.sh"


def test_all_nodes_are_one_job_and_rank_0_is_on_the_first(cluster: slurm.Slurm, job: Path) -> None:
    code, said = cluster.run("srun", "-N2", *JOB, "train.py", cwd=job)

    assert code == 0, said
    first, second = cluster.name(1), cluster.name(2)
    for rank, node in enumerate((first, first, second, second)):
        assert f"rank {rank} of 4 on {node}" in said


def test_an_exception_on_the_second_node_is_the_verdict_of_both(cluster: slurm.Slurm, job: Path) -> None:
    told = 'on_verdict = "hostname >>told; cat >>told"'
    (job / "ours.toml").write_text(f"[notify]\n{told}\n")
    flags = ("--profile", "./ours.toml", "train.py")
    code, said = cluster.run("srun", "-N2", *JOB, *flags, cwd=job, environ={"FAULT": "raise@3"})

    assert code == 1, said
    assert said.count("error[SL401]: rank 3 raised ValueError: a bad sample") == 2
    assert (job / "told").read_text().partition("\n")[0] == cluster.name(1)  # one node speaks for the job
    assert (job / "told").read_text().count('"event": "on_verdict"') == 1
    assert f"(host {cluster.name(2)}" in said


def test_the_check_of_new_nodes_compares_them_with_each_other(cluster: slurm.Slurm, job: Path) -> None:
    code, said = cluster.run("srun", "-N2", *SAFELAUNCH, "check", "--only", "nodes", "-v", cwd=job)

    assert code == 0, said
    assert said.count("all 2 nodes came and answered") == 2


def test_a_node_that_dies_is_named_to_leave_it_out(cluster: slurm.Slurm, job: Path) -> None:
    environ = {"FAULT": "wait", "STEPS": "100000"}
    running = cluster.start("srun", "-N2", *JOB, "train.py", cwd=job, environ=environ)
    while len(list(job.glob("ready-*"))) < 4:
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.1)

    cluster.kill_node(2)
    try:
        # srun itself stays until the controller has noticed, after SlurmdTimeout.
        said = running.communicate(timeout=120)[0]
    finally:
        cluster.start_node(2)

    assert f"error[SL604]: {cluster.name(2)} " in said, said
    assert f"--exclude={cluster.name(2)}" in said
    assert "exit 75" in said


@pytest.mark.parametrize(
    ("start", "remedy"),
    [
        (("srun", "-N2", "--ntasks-per-node=2"), "srun --ntasks-per-node=1 safelaunch"),
        (("salloc", "-N2"), "srun --ntasks-per-node=1 safelaunch"),
        (("srun", "-N2", "env", "LOCAL_RANK=0"), "take `export LOCAL_RANK="),
    ],
    ids=["a task for each GPU", "no srun", "started as a rank"],
)
@pytest.mark.timeout(60)
def test_a_start_that_cannot_work_is_refused_at_once(
    start: tuple[str, ...], remedy: str, cluster: slurm.Slurm, job: Path
) -> None:
    code, said = cluster.run(*start, *JOB, "train.py", cwd=job)

    assert code == 2, said
    assert said.count("error[SL009]") == 1  # of all tasks
    assert remedy in said
    assert not (job / "safelaunch_runs").exists()


def test_a_node_rank_that_the_batch_script_has_expanded_is_seen(cluster: slurm.Slurm, job: Path) -> None:
    static = ("--nnodes", 2, "--node-rank", "$SLURM_PROCID", "--master-addr", cluster.name(1), "--master-port", 29600)
    script = " ".join(map(str, ("srun", "-N2", "-t1", *JOB, *static, "train.py")))
    (job / "job.sh").write_text(f"#!/bin/sh\n{script}\n")

    _, said = cluster.run("sbatch", "-N2", "--wait", "-o", "said", "job.sh", cwd=job)

    text = (job / "said").read_text()
    assert "error[SL009]: --node-rank 0 on node 1 of 2" in text, said
    assert f"error[SL009]: {cluster.name(2)} refuses to start, and the others would wait for it" in text


@pytest.mark.parametrize(
    ("words", "code", "remedy"),
    [
        ("--rdzv-backend c10d --rdzv-endpoint FIRST:29400 --rdzv-id $RANDOM", "SL170", "leave out --rdzv-id"),
        ("--rdzv-backend c10d --rdzv-endpoint localhost:29400", "SL009", "leave out the rendezvous"),
    ],
    ids=["an id for each node", "a loopback address"],
)
def test_nodes_that_would_never_meet_are_told_so(
    words: str, code: str, remedy: str, cluster: slurm.Slurm, job: Path
) -> None:
    command = " ".join((*SAFELAUNCH, "--nproc-per-node 2 --nnodes 2", words.replace("FIRST", cluster.name(1))))

    ended, said = cluster.run("srun", "-N2", "bash", "-c", f"{command} train.py", cwd=job)

    assert ended == 2, said
    assert said.count(f"error[{code}]") == 1
    assert remedy in said


def test_a_node_that_was_lost_is_left_out_of_the_next_attempt(cluster: slurm.Slurm, job: Path) -> None:
    """Slurm lets a requeued job begin two minutes later; here it is told not to wait."""
    words = " ".join(map(str, ("srun", "--ntasks-per-node=1", *JOB, "--requeue", "train.py")))
    steps = 'if [ -z "$SLURM_RESTART_COUNT" ]; then export FAULT=wait STEPS=100000; fi'
    script = batch(job, steps, words, "echo ended with $?")
    _, said = cluster.run("sbatch", "--parsable", "--comment=ours", "-N2", script, cwd=job)
    number = said.strip()
    log = job / "said"
    wait_until(lambda: len(list(job.glob("ready-*"))) == 4, log)

    cluster.kill_node(2)
    try:
        wait_until(lambda: "the job is requeued without" in log.read_text(), log)
    finally:
        cluster.start_node(2)

    # Until then its srun, which nothing holds together with its job here (no cgroups), would end the next one's step.
    wait_until(lambda: "Timed out waiting for job step" in log.read_text(), log)

    def has_ended() -> bool:  # the time is set anew when the last process of the first attempt has gone
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now", cwd=job)
        return "ended with 0" in log.read_text()

    wait_until(has_ended, log)

    text, shown = log.read_text(), cluster.run("scontrol", "show", "job", number, cwd=job)[1]
    assert f"the job is requeued without {cluster.name(2)}" in text
    second = text.rpartition("the job is requeued")[2]
    assert f"on {cluster.name(3)}" in second
    assert f"on {cluster.name(2)}" not in second
    (comment,) = [line.strip() for line in shown.splitlines() if "Comment=" in line] or [shown]
    assert comment.startswith(f"Comment=ours | safelaunch: SL604: {cluster.name(2)} ")
    assert len([path for path in (job / "safelaunch_runs").iterdir() if path.is_dir()]) == 2


def test_three_attempts_of_an_array_keep_three_logs(cluster: slurm.Slurm, job: Path) -> None:
    words = " ".join(map(str, ("srun", *JOB, "-r", "3", "train.py")))
    script = batch(job, "export FAULT=raise@1", words)

    cluster.run("sbatch", "--wait", "-N1", "--array=0-2%1", script, cwd=job)

    runs = sorted((job / "safelaunch_runs").iterdir())
    assert len(runs) == 3
    for run in runs:
        assert "a bad sample" in (run / "attempt_0" / "rank_001" / "stderr.log").read_text()
        assert (run / "incident-0" / "verdict.json").exists()
    assert (job / "said").read_text().count("error[SL401]: rank 1 raised ValueError: a bad sample") == 3


@pytest.mark.parametrize(("name", "logs"), [("train", 1), ("array", 5)])
def test_the_examples_run_as_they_are(name: str, logs: int, cluster: slurm.Slurm, job: Path) -> None:
    """But for the GPUs and CPUs, of which the rig has none and few."""
    script = (REPOSITORY / "examples" / "slurm" / f"{name}.sbatch").read_text()
    kept = [line for line in script.splitlines() if "--gpus-per-node" not in line and "--cpus-per-task" not in line]
    (job / "job.sbatch").write_text("\n".join([*kept, ""]))
    (job / "safelaunch").write_text(f'#!/bin/sh\nexec {" ".join(map(str, JOB))} "$@"\n')
    (job / "safelaunch").chmod(0o755)
    environ = {"PATH": f"{job}:{os.environ['PATH']}"}

    code, said = cluster.run("sbatch", "--wait", "job.sbatch", cwd=job, environ=environ)

    written = sorted(job.glob("train-*.log"))
    assert code == 0, said + "".join(log.read_text() for log in written)
    assert len(written) == logs
    assert f"rank 3 of 4 on {cluster.name(2)}" in written[0].read_text()


def wait_until(happens: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "nothing was said"
        time.sleep(0.2)


def save_of_all(job: Path) -> str:
    """The call at which all four ranks of two nodes have saved."""
    (call,) = {(job / f"saved-{rank}").read_text() for rank in range(4)}
    return call


def stopping_job(job: Path) -> None:
    """A batch script in whose place srun runs, which passes signals on to the step."""
    words = " ".join(map(str, ("exec", "srun", *JOB, FAULTS / "stopping.py")))
    (job / "job.sh").write_text(f"#!/bin/sh\n{words}\n")


@pytest.mark.parametrize("cancel", [("--batch", "--signal=USR1"), ()], ids=["USR1 to the batch script", "scancel"])
def test_ranks_of_all_nodes_save_at_the_same_step(cancel: tuple[str, ...], cluster: slurm.Slurm, job: Path) -> None:
    stopping_job(job)
    running = cluster.start("sbatch", "-N2", "--wait", "-J", job.name, "-o", "said", "job.sh", cwd=job)
    while not (job / "said").exists() or (job / "said").read_text().count("ready") < 4:
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.1)

    cluster.run("scancel", *cancel, "-n", job.name, cwd=job)
    running.communicate(timeout=60)  # of a job that was cancelled sbatch does not wait for the processes
    wait_until(lambda: len(list(job.glob("safelaunch_runs/*/*/result.json"))) == 2, job / "said")

    said = (job / "said").read_text()
    assert said.count(f"stopped at call {save_of_all(job)} of should_stop() on all ranks") == 2, said
    results = [json.loads(path.read_text()) for path in job.glob("safelaunch_runs/*/*/result.json")]
    assert [(one["exit_code"], one["preempted"]["stopped"]) for one in results] == [(75, True)] * 2


@pytest.mark.long
def test_a_save_comes_before_the_end_of_the_time(cluster: slurm.Slurm, job: Path) -> None:
    stopping_job(job)

    code, _ = cluster.run("sbatch", "-N2", "-t1", "--wait", "-o", "said", "job.sh", cwd=job)

    assert code == 75
    assert f"stopped at call {save_of_all(job)} of should_stop() on all ranks" in (job / "said").read_text()
    assert "TIME LIMIT" not in (job / "said").read_text()

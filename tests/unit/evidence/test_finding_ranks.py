"""Which processes are ranks, told from their environment and descent."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from safelaunch import procfs
from safelaunch.evidence import ranks
from safelaunch.evidence.ranks import Seen, groups, identity, of_job, of_process
from safelaunch.procfs import Process

ELASTIC = {"TORCHELASTIC_RUN_ID": "a", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "GROUP_RANK": "0"}


def seen(
    pid: int,
    parent: int,
    environ: Mapping[str, str] | None = None,
    python: bool = True,
    state: str = "S",
    unread: str = "",
) -> Seen:
    return Seen(
        Process(pid, parent, pid, pid, state, 1),
        "train.py",
        python,
        None if unread else environ or {},
        "net:[1]",
        unread,
    )


def elastic(rank: int, size: int, local: int | None = None, **more: str) -> dict[str, str]:
    local = rank if local is None else local
    names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": size}
    return {**ELASTIC, **{name: str(value) for name, value in names.items()}, **more}


def job(size: int = 3) -> list[Seen]:
    """A shell, torchrun below it, ranks 11, 12, ... and a loader worker (pid x9) below each."""
    ranks_ = [seen(11 + rank, 10, elastic(rank, size)) for rank in range(size)]
    loaders = [seen(one.pid * 10 + 9, one.pid, one.environ) for one in ranks_]
    return [seen(5, 1, python=False), seen(10, 5), *ranks_, *loaders]


def pids(group: ranks.Group) -> list[int]:
    return [one.seen.pid for one in group.ranks]


@pytest.mark.parametrize("pid", [5, 10, 12, 129], ids=["shell", "torchrun", "rank", "loader-worker"])
def test_any_process_of_the_job_leads_to_all_its_ranks(pid: int) -> None:
    (found,) = of_process(pid, job())

    assert pids(found) == [11, 12, 13]
    assert found.world_size == 3
    assert found.ended == ()


def test_a_process_outside_of_the_job_leads_to_nothing() -> None:
    assert of_process(77, [*job(), seen(77, 1)]) == []


def test_a_wrapper_in_shell_is_no_rank() -> None:
    wrapped = [seen(10, 1), *(seen(11 + r, 10, elastic(r, 2), python=False) for r in range(2))]
    wrapped += [seen(21 + r, 11 + r, elastic(r, 2)) for r in range(2)]

    assert pids(of_process(11, wrapped)[0] if of_process(11, wrapped) else of_process(10, wrapped)[0]) == [21, 22]


def test_an_agent_that_srun_started_is_no_rank() -> None:
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "4711"}
    found = of_job("4711", [seen(10, 1, slurm), *(seen(11 + r, 10, {**elastic(r, 2), **slurm}) for r in range(2))])

    assert [pids(group) for group in found] == [[11, 12]]


def test_an_agent_with_the_rank_of_its_pod_is_no_rank() -> None:
    pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    found = of_process(10, [seen(10, 1, pod), *(seen(11 + r, 10, elastic(r + 2, 4, r)) for r in range(2))])

    assert [[one.rank for one in group.ranks] for group in found] == [[2, 3]]


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"},
        {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    ],
    ids=["srun", "mpirun", "mpich", "deepspeed"],
)
def test_all_launchers_are_understood(environ: dict[str, str]) -> None:
    found = identity(environ)

    assert found is not None
    assert (found.rank, found.world_size, found.local_rank) == (1, 4, 1)


@pytest.mark.parametrize(
    "environ", [{}, {"RANK": "1"}, {"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "x", "WORLD_SIZE": "4"}]
)
def test_what_makes_no_sense_is_no_rank(environ: dict[str, str]) -> None:
    assert identity(environ) is None


def test_two_jobs_stay_apart() -> None:
    other = [seen(20, 5), *(seen(21 + r, 20, {**elastic(r, 2), "MASTER_PORT": "29501"}) for r in range(2))]

    assert [pids(group) for group in of_process(5, [*job(), *other])] == [[11, 12, 13], [21, 22]]
    assert [pids(group) for group in of_process(21, [*job(), *other])] == [[21, 22]]


def test_a_rank_without_a_process_has_ended() -> None:
    (found,) = of_process(10, [one for one in job() if one.pid not in (12, 129)])

    assert found.ended == ((1, 1),)


def test_nothing_has_ended_where_a_process_could_not_be_looked_at() -> None:
    processes = [one for one in job() if one.pid not in (12, 129)]
    (found,) = of_process(10, [*processes, seen(12, 10, unread="the kernel holds its memory")])

    assert found.ended == ()
    assert [one.pid for one in found.unread] == [12]


def test_a_zombie_is_no_rank() -> None:
    processes = [one for one in job() if one.pid not in (12, 129)]
    (found,) = groups([*processes, seen(12, 10, elastic(1, 3), state="Z")])

    assert pids(found) == [11, 13]


def test_an_array_job_is_named_by_its_own_id_too() -> None:
    environ = {"SLURM_JOB_ID": "4799", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"}

    assert ranks.in_job("4799", environ)
    assert ranks.in_job("4711_3", environ)
    assert not ranks.in_job("4711_4", environ)


# ---------------------------------------------------------------------------- what a stranger's process can say


@pytest.mark.parametrize(("name", "value"), [("LOCAL_WORLD_SIZE", "3" * 9), ("RANK", "9" * 5000), ("RANK", "²")])
def test_a_number_that_no_launcher_gives_takes_neither_memory_nor_the_answer(name: str, value: str) -> None:
    """Each user of a node may have a process with any environment, and root attaches to all of them."""
    processes = [*job(), seen(21, 20, elastic(0, 2, **{"TORCHELASTIC_RUN_ID": "b", name: value})), seen(20, 1)]

    (found,) = of_process(10, processes)

    assert pids(found) == [11, 12, 13]
    assert all(len(group.ended) <= 3 for group in groups(processes))


def started(command: list[str], variables: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.PIPE, **options)


def test_an_environment_is_read_as_far_as_a_program_can_be_given_one() -> None:
    """A process can make the kernel show any amount; with a larger stack than the usual one, 6 MiB are enough."""

    def large_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    variables = {**elastic(1, 2), **{f"SLURM_{number}": "x" * 100_000 for number in range(30)}}
    with started(["cat"], variables, preexec_fn=large_stack) as process:
        assert len(procfs.environ(process.pid)) == procfs.STARTED_WITH < 3_000_000
        running = procfs.read(process.pid)
        assert running is not None
        seen_ = ranks.see(running)
        assert seen_.environ is not None
        assert sum(map(len, seen_.environ.values())) <= ranks.KEPT
        process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a setuid program")
def test_who_starts_a_setuid_program_does_not_speak_for_its_owner() -> None:
    """It runs as root with the environment of whoever started it: what that names is nothing of root's."""
    with tempfile.TemporaryDirectory() as folder:  # `tmp_path` is closed to other users
        Path(folder).chmod(0o755)
        program = shutil.copy(shutil.which("cat") or "", Path(folder, "python3"))
        Path(program).chmod(0o4755)
        with started([str(program)], elastic(0, 2), user=65534, group=65534) as process:
            users = Path(f"/proc/{process.pid}/status").read_text().partition("Uid:")[2].split()[:3]
            assert users == ["65534", "0", "0"]
            assert procfs.owner(process.pid) == -1
            process.communicate()
    with started(["cat"], elastic(0, 2)) as process:
        assert procfs.owner(process.pid) == 0
        process.communicate()

"""A command line under a scheduler: what it leaves open comes from there, and what it says stands."""

from __future__ import annotations

import pytest

from safelaunch.model import SafelaunchError, Settings
from safelaunch.settings import from_scheduler, torchrun
from safelaunch.settings.resolve import resolve

STEP = {
    "SLURM_JOB_ID": "812",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[9-10]",
    "SLURM_NODEID": "1",
    "SLURM_GPUS_ON_NODE": "4",
}
SHAPE = ("nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")


def settled(*flags: str, **environ: str) -> Settings:
    return resolve([*flags, "train.py"], STEP | environ)


def shape(settings: Settings) -> dict[str, object]:
    return {name: settings[name] for name in SHAPE if settings.options[name].origin.source != "default"}


def test_a_command_without_options_is_one_job_over_all_nodes() -> None:
    settings = settled()

    endpoint = f"gpu9:{from_scheduler.port('812.0')}"
    assert shape(settings) == {
        "nnodes": "2", "nproc_per_node": "4", "rdzv_backend": "c10d", "rdzv_endpoint": endpoint,
        "rdzv_id": "slurm-812.0", "rdzv_conf": "is_host=false",
    }  # fmt: skip
    assert str(settings.options["nnodes"].origin) == "scheduler SLURM_STEP_NUM_NODES"
    assert settings.allocation is not None
    assert settings.allocation.hosts == ("gpu9", "gpu10")
    assert f"--rdzv-endpoint {endpoint}" in " ".join(torchrun.arguments(settings))


def test_all_nodes_of_a_job_meet_at_one_place_and_one_of_them_keeps_the_store() -> None:
    first, second = settled(SLURM_NODEID="0"), settled()

    assert first["rdzv_endpoint"] == second["rdzv_endpoint"]
    assert [one["rdzv_conf"] for one in (first, second)] == ["is_host=true", "is_host=false"]


def test_a_requeued_job_does_not_meet_what_is_left_of_its_first_attempt() -> None:
    assert settled()["rdzv_id"] != settled(SLURM_RESTART_COUNT="1")["rdzv_id"]
    assert settled()["rdzv_endpoint"] != settled(SLURM_RESTART_COUNT="1")["rdzv_endpoint"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--standalone",),
        ("--rdzv-backend", "c10d", "--rdzv-endpoint", "other:1"),
        ("--nnodes", "2", "--node-rank", "1", "--master-addr", "gpu9"),
    ],
)
def test_a_command_with_a_rendezvous_of_its_own_is_what_torchrun_makes_of_it(flags: tuple[str, ...]) -> None:
    with_slurm, without = settled(*flags), resolve([*flags, "train.py"], {})

    assert torchrun.arguments(with_slurm) == torchrun.arguments(without)


def test_flags_and_torchruns_variables_beat_the_scheduler_one_by_one() -> None:
    settings = settled("--nproc-per-node", "2", "--rdzv-id", "mine", PET_NNODES="1:2")

    assert (settings["nproc_per_node"], settings["rdzv_id"], settings["nnodes"]) == ("2", "mine", "1:2")
    assert settings["rdzv_backend"] == "c10d"


def test_spare_nodes_are_taken_from_those_of_the_scheduler() -> None:
    settings = settled("--spare-nodes", "1", SLURM_STEP_NUM_NODES="4", SLURM_STEP_NUM_TASKS="4")
    assert settings["nnodes"] == "3"

    with pytest.raises(SafelaunchError, match="leaves no node for the job: there are 2"):
        settled("--spare-nodes", "2")


def test_one_node_of_a_job_with_spares_meets_them_all_the_same() -> None:
    settings = settled("--spare-nodes", "1")

    assert (settings["nnodes"], settings["rdzv_backend"]) == ("1", "c10d")


def test_a_job_of_one_node_needs_no_meeting() -> None:
    settings = settled(SLURM_STEP_NUM_NODES="1", SLURM_STEP_NUM_TASKS="1", SLURM_NODEID="0")

    assert shape(settings) == {"nnodes": "1", "nproc_per_node": "4"}


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        (("--nnodes", "1", "--node-rank", "0", "--master-addr", "localhost"), {}),
        (("--standalone", "--node-rank", "0"), {}),
        (("--nnodes", "1"), {"LOCAL_RANK": "0"}),
        (("--nnodes", "1"), {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "4"}),
        (("--nnodes", "1"), {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}),
        ((), {"PET_NNODES": "1:1", "LOCAL_RANK": "0"}),
        (("--nnodes", "2", "--node-rank", "0", "--master-addr", "gpu9"), {"SLURM_STEP_NUM_NODES": "4"}),
    ],
)
def test_who_asks_for_a_job_of_one_node_gets_it_whatever_the_step_is(
    flags: tuple[str, ...], environ: dict[str, str]
) -> None:
    """Many jobs of one node in one step are a sweep, and two of two nodes may share one of four."""
    shell = {name: text for name, text in environ.items() if name.startswith("PET_")}

    assert torchrun.arguments(settled(*flags, **environ)) == torchrun.arguments(resolve([*flags, "train.py"], shell))


def test_bytes_that_are_no_text_are_a_name_like_any_other() -> None:
    assert settled(SLURM_JOB_ID="\udcff")["rdzv_backend"] == "c10d"


def test_one_node_of_several_may_be_asked_for() -> None:
    batch = {"SLURM_JOB_ID": "812", "SLURM_JOB_NUM_NODES": "4"}
    with pytest.raises(SafelaunchError, match="allocated 4 nodes"):
        resolve(["train.py"], batch)

    assert resolve(["--nnodes", "1", "train.py"], batch)["rdzv_backend"] == "static"


@pytest.mark.parametrize(
    ("flags", "environ", "summary"),
    [
        ((), {"LOCAL_RANK": "0"}, "LOCAL_RANK=0 is set"),
        (("--nnodes", "2", "--node-rank", "0", "--master-addr", "gpu9"), {}, "--node-rank 0 on node 1 of 2"),
    ],
)
def test_what_contradicts_the_scheduler_is_refused(
    flags: tuple[str, ...], environ: dict[str, str], summary: str
) -> None:
    with pytest.raises(SafelaunchError) as refused:
        settled(*flags, **environ)

    assert refused.value.diagnostic.code == "SL009"
    assert summary in refused.value.diagnostic.summary


def test_a_pod_that_does_not_know_its_job_says_what_to_add() -> None:
    with pytest.raises(SafelaunchError) as refused:
        resolve(["--nnodes", "3", "train.py"], {"JOB_COMPLETION_INDEX": "1"})

    assert "--rdzv-endpoint HOST:PORT" in refused.value.diagnostic.remedy


def test_outside_of_a_scheduler_nothing_changes() -> None:
    assert shape(resolve(["train.py"], {"RANK": "1", "WORLD_SIZE": "2"})) == {}

"""Environments of all schedulers, nested ones too: each becomes the right job, or a refusal that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import main
from safelaunch.model import SafelaunchError
from safelaunch.settings.resolve import resolve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORDED: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("recorded.toml").read_text())
MADE = [name for name, scene in RECORDED.items() if "refused" not in scene]
REFUSED = [name for name, scene in RECORDED.items() if "refused" in scene]


@pytest.mark.parametrize("name", MADE)
def test_the_job_has_its_shape(name: str) -> None:
    scene = RECORDED[name]

    settings = resolve(["train.py"], scene["environ"])

    assert (str(settings["nnodes"]), str(settings["nproc_per_node"])) == (scene["nnodes"], scene["nproc"])
    assert str(settings["rdzv_endpoint"]).rpartition(":")[0] == scene.get("endpoint", "")
    assert settings["rdzv_id"] == scene.get("id", "none")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_become_one_job_is_refused_with_the_line_to_write(name: str) -> None:
    scene = RECORDED[name]

    with pytest.raises(SafelaunchError) as refused:
        resolve(["train.py"], scene["environ"])

    assert (refused.value.diagnostic.code, refused.value.exit_code) == ("SL009", 2)
    assert scene["refused"] in refused.value.diagnostic.remedy
    assert refused.value.said_by_all is scene.get("by_all", False)


@pytest.mark.parametrize("name", REFUSED)
def test_who_means_it_says_so(name: str) -> None:
    environ = {key: value for key, value in RECORDED[name]["environ"].items() if key != "LOCAL_RANK"}
    assert resolve(["--standalone", "train.py"], environ)["standalone"]


@pytest.mark.parametrize(("task", "messages"), [("0", 1), ("1", 0), ("7", 0)])
def test_one_message_of_all_tasks(
    task: str, messages: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in {**RECORDED["slurm-a-task-for-each-gpu"]["environ"], "SLURM_PROCID": task}.items():
        monkeypatch.setenv(key, value)

    code = main.main(["train.py"])

    assert code == 2
    assert capsys.readouterr().err.count("error[SL009]") == messages


STEP = RECORDED["slurm-step"]["environ"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29500"),
        ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1"),
        ("--master-addr", "localhost", "--node-rank", "1"),
    ],
)
def test_nodes_that_wait_at_their_own_loopback_address_are_told(flags: tuple[str, ...]) -> None:
    with pytest.raises(SafelaunchError) as refused:
        resolve(["--nnodes", "2", *flags, "train.py"], STEP)

    assert "leave out the rendezvous" in refused.value.diagnostic.remedy


def test_two_agents_of_one_machine_may_meet_there() -> None:
    flags = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29500", "train.py")
    assert resolve(flags, {})["nnodes"] == "2"
    assert resolve(flags, STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"})["nnodes"] == "2"

"""What a run tells those outside of it at its end: its pod, its Slurm job, and the list of bad nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safelaunch import bad_nodes
from safelaunch.model import Finding, Origin, PreflightReport, Settings, Value, Verdict
from safelaunch.run import exit_codes, slurm_job
from safelaunch.run.outside import Outside, pod_message

LOST = Verdict(code="SL604", slug="node-lost", kind="infra", summary="gpu9 is silent", host="gpu9", exit_code=75)
BROKEN = Verdict(
    code="SL428", slug="gpu-fault", kind="crash", summary="GPU 3 failed: Xid 79", host="gpu9", exit_code=75
)
CRASHED = Verdict(code="SL401", slug="exception", kind="crash", summary="rank 2 raised", host="gpu9")
JOB = {"SLURM_JOB_ID": "812", "SLURM_JOB_NODELIST": "gpu[8-10]"}
SCONTROL = """#!/bin/sh
cat <<END
JobId=812 JobName=train
   Requeue=REQUEUE Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   JobState=RUNNING Reason=None Dependency=(null)
   ReqNodeList=(null) ExcNodeList=EXCLUDED
   NodeList=gpu[8-10]
   Comment=COMMENT
END
echo "$@" >>LOG
"""


def refused(*findings: tuple[str, str]) -> PreflightReport:
    made = [Finding(code=code, severity="error", summary="bad", where=where) for code, where in findings]
    return PreflightReport(tuple(made), "gpu8", 0.1)


def settings(**tables: Any) -> Settings:
    options = {"requeue": True, "verbose": 0} | tables.pop("options", {})
    values = {name: Value(value, Origin("flag")) for name, value in options.items()}
    return Settings(
        values, {}, **{name: {k: Value(v, Origin("profile")) for k, v in t.items()} for name, t in tables.items()}
    )


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a scontrol on PATH; returns what it was asked."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def install(requeue: str = "1", excluded: str = "(null)", comment: str = "") -> Any:
        text = SCONTROL.replace("REQUEUE", requeue).replace("EXCLUDED", excluded).replace("COMMENT", comment)
        (tmp_path / "scontrol").write_text(text.replace("LOG", str(log)))
        (tmp_path / "scontrol").chmod(0o755)
        return lambda: log.read_text().splitlines() if log.exists() else []

    return install


def requeued(verdict: Verdict | None, report: PreflightReport | None = None, code: int = 75) -> list[str]:
    said: list[str] = []
    Outside(settings(), JOB, "gpu8", said.append).requeue(verdict, report, code)
    return said


def test_a_job_is_requeued_without_the_node_that_was_lost(scontrol: Any) -> None:
    asked = scontrol(excluded="gpu2")

    said = requeued(LOST)

    assert asked()[1:] == ["requeue 812", "update JobId=812 ExcNodeList=gpu2,gpu9"]
    assert said == ["the job is requeued without gpu9"]


def test_a_node_that_was_refused_leaves_itself_out(scontrol: Any) -> None:
    asked = scontrol()

    requeued(None, refused(("SL150", "")), 69)

    assert asked()[-1] == "update JobId=812 ExcNodeList=gpu8"


def test_the_first_node_leaves_out_the_one_that_was_refused(scontrol: Any) -> None:
    asked = scontrol()

    requeued(None, refused(("SL169", "node gpu10.cluster (rank 2)")), 69)

    assert asked()[-1] == "update JobId=812 ExcNodeList=gpu10"


@pytest.mark.parametrize(("code", "verdict"), [(1, CRASHED), (124, CRASHED), (143, None), (0, None)])
def test_nothing_else_is_requeued(code: int, verdict: Verdict | None, scontrol: Any) -> None:
    asked = scontrol()
    assert requeued(verdict, None, code) == []
    assert asked() == []


def test_a_job_that_cannot_be_requeued_is_told_the_line_to_write(scontrol: Any) -> None:
    asked = scontrol(requeue="0")

    assert requeued(LOST) == ["--requeue: write `#SBATCH --requeue` into the script, which Slurm wants for that"]
    assert asked() == ["show job 812"]


def test_the_second_of_two_nodes_that_want_it_says_nothing(scontrol: Any, tmp_path: Path) -> None:
    asked = scontrol()
    fake = (tmp_path / "scontrol").read_text()
    refuses = 'case $1 in requeue) echo "Job is pending execution for job 812" >&2; exit 1;; esac'
    (tmp_path / "scontrol").write_text(f"{fake}{refuses}\n")
    assert requeued(LOST) == []
    (tmp_path / "scontrol").write_text(fake.replace("RUNNING", "PENDING"))
    assert requeued(LOST) == []
    assert not any("ExcNodeList" in words for words in asked())


def test_without_scontrol_it_is_said_and_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert requeued(LOST) == ["--requeue: there is no scontrol here, as in most containers"]


def test_the_task_of_an_array_does_not_speak_for_all_of_them() -> None:
    task = {"SLURM_JOB_ID": "815", "SLURM_ARRAY_JOB_ID": "812", "SLURM_ARRAY_TASK_ID": "3"}
    assert slurm_job.job_id(task) == "812_3"
    assert slurm_job.job_id(JOB) == "812"
    assert slurm_job.job_id({"SLURM_JOB_ID": "812; reboot"}) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "Comment=safelaunch: SL604: gpu9 is silent"),
        ("project 7", "Comment=project 7 | safelaunch: SL604: gpu9 is silent"),
        ("project 7 | safelaunch: SL401: rank 2", "Comment=project 7 | safelaunch: SL604: gpu9 is silent"),
    ],
)
def test_the_headline_stands_behind_the_owners_comment(before: str, after: str, scontrol: Any) -> None:
    asked = scontrol(comment=before)
    outside = Outside(settings(), JOB, "gpu8", print)

    outside.begin(LOST, None, 75, speaks=True)
    outside.finish(interrupted=False)

    assert asked()[-1] == f"update JobId=812 {after}"


def test_only_the_node_that_speaks_asks_the_controller(scontrol: Any) -> None:
    asked = scontrol()
    outside = Outside(settings(), JOB, "gpu8", print)

    outside.begin(LOST, None, 75, speaks=False)
    outside.finish(interrupted=False)

    assert asked() == []


@pytest.mark.parametrize(("verdict", "written"), [(BROKEN, ["gpu9"]), (LOST, []), (CRASHED, [])])
def test_a_node_is_listed_on_proof_only(verdict: Verdict, written: list[str], tmp_path: Path) -> None:
    path, said = str(tmp_path / "bad"), list[str]()
    outside = Outside(settings(nodes={"bad": path}), {}, "gpu8", said.append)

    outside.begin(verdict, None, 75, speaks=True)
    outside.finish(interrupted=False)

    assert [one.host for one in bad_nodes.read(path)] == written
    assert said == [f"{host} is on the list of bad nodes now: {path}" for host in written]


def test_a_node_that_has_left_the_job_lists_itself(tmp_path: Path) -> None:
    path = str(tmp_path / "bad")
    outside = Outside(settings(nodes={"bad": path}), {"NODE_NAME": "node-b"}, "gpu9", print)

    outside.begin(LOST, None, 75, speaks=False, left=True)
    outside.finish(interrupted=False)

    assert [one.host for one in bad_nodes.read(path)] == ["node-b"]


def test_a_refused_node_lists_itself_as_its_scheduler_calls_it(tmp_path: Path) -> None:
    path = str(tmp_path / "bad")
    outside = Outside(settings(nodes={"bad": path}), {"NODE_NAME": "node-b"}, "train-0-x", print)

    outside.begin(None, refused(("SL112", "GPU 3"), ("SL105", "/data")), 69, speaks=False)
    outside.finish(interrupted=False)

    (one,) = bad_nodes.read(path)
    assert one.host == "node-b"
    assert "SL112: bad" in one.why


def test_a_list_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    outside = Outside(settings(nodes={"bad": str(tmp_path / "none" / "bad")}), {}, "gpu8", said.append)

    outside.begin(BROKEN, None, 75, speaks=True)
    outside.finish(interrupted=False)

    assert said == [f"gpu9 cannot be written on the list of bad nodes: {tmp_path}/none/bad: No such file or directory"]


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def test_the_pod_gets_the_head_within_what_the_kubelet_reads(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("")

    assert pod_message(["\x1b[31merror[SL401]\x1b[0m: rank 2 raised", "é" * 5000], IN_A_POD, str(path))

    assert path.read_text().startswith("error[SL401]: rank 2 raised\né")
    assert len(path.read_bytes()) <= 4096


def test_elsewhere_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    assert not pod_message(["x"], IN_A_POD, str(path))
    assert not path.exists()
    path.write_text("")
    assert not pod_message(["x"], {}, str(path))
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("code", "ends"), [(0, 0), (1, 1), (2, 2), (69, 138), (75, 138), (78, 78), (124, 124), (143, 143)]
)
def test_kubeflow_is_told_to_try_again_in_its_own_codes(code: int, ends: int) -> None:
    assert exit_codes.wanted(code, settings(launch={"exit_codes": "signal"})) == ends
    assert exit_codes.wanted(code, settings()) == code

"""`safelaunch clean`: what it says of runs that are named, and of processes that it cannot look into."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.cli import clean
from safelaunch.model import SafelaunchError
from safelaunch.preflight.machine.processes import Process
from safelaunch.preflight.node.leftovers import Leftover

PROCESS = Process(4711, 0, "train.py", 1, 9.0)
MUTE = Process(4712, 0, "ssh-agent", 1, 9.0)


def run_dir(folder: Path, run_id: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run_id": run_id or folder.name}))
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on one node and the part of a job on two, each with a process, and a run without one. The last process is
    of a run whose folder is gone."""
    base = tmp_path / "safelaunch_runs"
    folders = [run_dir(base / "r1"), run_dir(base / "job" / "node-a", "job"), base / "gone"]
    run_dir(base / "r2")
    found = [Leftover(PROCESS, str(folder), False) for folder in folders]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAFELAUNCH_RUN_DIR", raising=False)
    monkeypatch.setattr(clean, "leftovers", lambda _host: iter(found))
    monkeypatch.setattr(clean, "_unseen", lambda _host: iter(()))
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    return base


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("name", ["run1typo", "safelaunch_runs", "/nowhere/run1"])
def test_a_name_that_is_none_of_a_run_is_not_answered_with_all_is_well(name: str) -> None:
    with pytest.raises(SafelaunchError, match=f"there is no run {name}, and no process of one") as caught:
        clean.run([name])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["r1", "job", "job/node-a", "gone"])
def test_what_is_left_of_a_run_is_found_by_its_name(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clean.run([str(runs / name) if "/" in name else name]) == 1

    said = capsys.readouterr().out
    assert f"of {runs / ('job/node-a' if name == 'job' else name)}, whose launcher is gone:" in said
    assert "nothing was ended: --yes ends 1 process" in said


@pytest.mark.usefixtures("runs")
def test_what_nothing_is_left_of_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert clean.run(["r2"]) == 0
    assert capsys.readouterr().out == "nothing is left of r2\n"


@pytest.mark.usefixtures("runs")
def test_what_cannot_be_looked_into_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clean, "_unseen", lambda _host: iter([MUTE] * 10))

    assert clean.run(["r2"]) == 0

    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("nothing is left of r2, as far as can be seen: ")
    assert (said[1], said[-1]) == (f"  {MUTE}", "  and 2 more")


@pytest.fixture
def mute() -> Iterator[int]:
    """A process of another user that must not be dumped: whoever is not root cannot read its environment."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(12345)
        os.setuid(12345)  # from root to somebody: the kernel takes that as a reason
        os.write(told, b".")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ready)
    os.close(told)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_processes_that_must_not_be_dumped_are_seen_as_such(mute: int) -> None:
    looker = os.fork()
    if looker == 0:
        os.setgid(12345)
        os.setuid(12345)
        from safelaunch.model import Job
        from safelaunch.preflight.machine.host import Host

        pids = [process.pid for process in clean._unseen(Host(Job(nproc=1)))]
        os._exit(0 if pids == [mute] else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(looker, 0)[1]) == 0

"""`safelaunch trace`: real ranks, the same steps of all of them in one file, and a run that does not notice."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, SAFELAUNCH, environment, newest_run, start, wait_for_lines

SCRIPT = FAULTS / "traced.py"


def running(folder: Path, *words: str, ranks: int = 2, options: tuple[object, ...] = ()) -> subprocess.Popen[str]:
    """Ranks in the middle of their training."""
    process = start("--preflight", "off", "--nproc-per-node", ranks, *options, SCRIPT, *words, cwd=folder)
    wait_for_lines(process, "ready", ranks)
    return process


def traced(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*SAFELAUNCH, "trace", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, str]:
    """Exit code and stderr of a run that is told to end."""
    (folder / "end").touch()
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def events(folder: Path) -> list[dict[str, Any]]:
    run_dir = newest_run(folder)
    assert run_dir is not None
    found: list[dict[str, Any]] = json.loads(gzip.decompress((run_dir / "traces/1/trace.json.gz").read_bytes()))[
        "traceEvents"
    ]
    return found


def steps(found: list[dict[str, Any]], kind: str = "step") -> dict[str, list[str]]:
    """By the name of each process: its steps."""
    names = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    return {
        name: [one["name"] for one in found if one.get("cat") == kind and one["pid"] == pid]
        for pid, name in names.items()
    }


@pytest.mark.parametrize("how", ["--warm-start", "--no-warm-start"])
def test_the_same_steps_of_all_ranks_are_in_one_file(how: str, tmp_path: Path) -> None:
    process = running(tmp_path, "late", ranks=4, options=(how,))

    done = traced(tmp_path, "--steps", "3")

    assert done.returncode == 0, done.stderr
    assert "rank 1 starts last in " in done.stdout
    assert " after the first (median), most at traced.py:" in done.stdout
    found = events(tmp_path)
    of = steps(found)
    assert sorted(of) == [f"rank {rank}" for rank in range(4)]
    first = int(of["rank 0"][0].split()[1])
    assert all(each == [f"step {first + i}" for i in range(3)] for each in of.values())
    for pid in {one["pid"] for one in found}:  # torch's own events and ours are on one clock
        mine = [one for one in found if one["pid"] == pid and one["ph"] == "X"]
        own, begun = (
            [one["ts"] for one in mine if one.get("cat") == kind and "c10d" in one["name"] + "c10d" * (kind == "step")]
            for kind in ("cpu_op", "step")
        )
        assert min(begun) <= min(own) <= max(one["ts"] + one["dur"] for one in mine if one.get("cat") == "step")
    code, said = ended(process, tmp_path)
    assert code == 0, said
    assert [line for line in said.splitlines() if "profiler" in line] == []  # torch's own words among the ranks'


def test_without_an_optimizer_heartbeats_are_counted(tmp_path: Path) -> None:
    process = running(tmp_path, "beats")

    done = traced(tmp_path, "--steps", "2")

    assert done.returncode == 0, done.stderr
    assert "heartbeats " in done.stdout.splitlines()[0]
    assert {len(each) for each in steps(events(tmp_path)).values()} == {2}
    assert ended(process, tmp_path)[0] == 0


def test_a_run_in_which_nothing_counts_is_told_what_to_do(tmp_path: Path) -> None:
    process = running(tmp_path, "idle")

    done = traced(tmp_path)

    assert done.returncode == 2
    assert "calls safelaunch.heartbeat() once a turn" in done.stderr
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert not (run_dir / "trace").exists()
    assert ended(process, tmp_path)[0] == 0


def test_a_rank_that_hangs_meanwhile_is_still_told(tmp_path: Path) -> None:
    process = running(tmp_path, "hangs", options=("--on-hang", "abort", "--hang-abort-after", "3s"))
    (tmp_path / "hang").touch()

    done = traced(tmp_path, "--steps", "1000")

    assert done.returncode != 0
    _, said = process.communicate(timeout=60)
    assert process.returncode == 124, said
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    verdict = json.loads((run_dir / "incident-0/verdict.json").read_text())
    assert verdict["culprit_ranks"] == [1]


def recording(folder: Path, count: int) -> tuple[subprocess.Popen[str], Path]:
    """`safelaunch trace` of so many steps, once the first is being recorded, and the run directory."""
    asked = subprocess.Popen(
        [*SAFELAUNCH, "trace", "--steps", str(count)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run_dir = newest_run(folder)
    assert run_dir is not None
    while '"recording"' not in _text(run_dir / "tracing.json"):
        assert asked.poll() is None
    return asked, run_dir


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_rank_that_hangs_while_it_is_recorded_is_still_told(tmp_path: Path) -> None:
    process = running(tmp_path, "hangs", options=("--on-hang", "abort", "--hang-abort-after", "3s"))
    asked, run_dir = recording(tmp_path, 1000)
    (tmp_path / "hang").touch()

    out, err = asked.communicate(timeout=60)
    assert asked.returncode == 1, err
    assert "missing: rank 0: it has ended, at step " in out
    _, said = process.communicate(timeout=60)
    assert process.returncode == 124, said
    verdict = json.loads((run_dir / "incident-0/verdict.json").read_text())
    assert (verdict["culprit_ranks"], verdict["location"]["function"]) == ([1], "evaluate")


def test_a_rank_that_never_comes_to_the_step_is_named(tmp_path: Path) -> None:
    process = running(tmp_path, "alone")
    (tmp_path / "hang").touch()

    done = traced(tmp_path, "--wait", "4")

    assert done.returncode == 1, done.stderr
    assert "missing: rank 1: it has not come to step " in done.stdout
    assert list(steps(events(tmp_path))) == ["rank 0"]
    assert ended(process, tmp_path)[0] == 0


def test_a_profiler_of_the_scripts_own_is_not_disturbed(tmp_path: Path) -> None:
    process = running(tmp_path, "profiles")
    asked, _ = recording(tmp_path, 60)
    (tmp_path / "profile").touch()

    out, err = asked.communicate(timeout=60)
    assert asked.returncode == 0, out + err
    assert "rank 0 ended early: the script has begun a profiler of its own" in out
    assert int((tmp_path / "profiled").read_text()) > 0
    assert ended(process, tmp_path)[0] == 0


def test_the_ranks_of_two_nodes_are_on_the_clock_of_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
    options = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", endpoint)
    nodes = [
        start("--preflight", "off", "--nproc-per-node", 1, *options, "--node-rank", node, SCRIPT, "late", cwd=tmp_path)
        for node in (0, 1)
    ]
    for node in nodes:
        wait_for_lines(node, "ready", 1)

    done = traced(tmp_path)

    assert done.returncode == 0, done.stderr
    assert "rank 1 starts last in " in done.stdout
    (tmp_path / "end").touch()
    assert [(node.communicate(timeout=60), node.returncode)[1] for node in nodes] == [0, 0]
    written = tmp_path / "safelaunch_runs/job/traces/1/trace.json.gz"
    found = [one for one in json.loads(gzip.decompress(written.read_bytes()))["traceEvents"] if one["ph"] == "X"]
    calls = {pid: [one["ts"] + one["dur"] for one in found if one["pid"] == pid and one["cat"] == "collective"]
             for pid in {one["pid"] for one in found}}  # fmt: skip
    first, second = calls.values()
    assert all(abs(a - b) < 50_000 for a, b in zip(first, second, strict=True))  # an all_reduce ends on both at once


def test_chosen_ranks_alone_are_recorded(tmp_path: Path) -> None:
    process = running(tmp_path)

    done = traced(tmp_path, "--ranks", "1", "--json")

    document = json.loads(done.stdout)
    assert (done.returncode, document["missing"], document["count"]) == (0, {}, 3)
    assert list(steps(events(tmp_path))) == ["rank 1"]
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    left = {path.name: path.stat().st_mode & 0o777 for path in (run_dir / "traces/1").iterdir()}
    assert left == {"request.json": 0o600, "summary.txt": 0o600, "trace.json.gz": 0o600}
    assert ended(process, tmp_path)[0] == 0

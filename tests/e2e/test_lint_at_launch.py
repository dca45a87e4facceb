"""What a launch says of its environment: a line for what does nothing, and not a word where all is well."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import SAFELAUNCH, Ended, environment, launch

DONE = "print('done')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "done.py").write_text(DONE)
    return tmp_path


def run(folder: Path, *arguments: object, script: str = "done.py", **changes: str | None) -> Ended:
    return launch("--preflight", "off", *arguments, script, cwd=folder, HOME=str(folder), **changes)


def about_the_environment(ended: Ended) -> list[str]:
    return [line for line in ended.err.splitlines() if "[SL21" in line]


def test_a_clean_environment_is_not_worth_a_word(folder: Path) -> None:
    ended = run(folder, NCCL_DEBUG="INFO", NCCL_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")
    assert ended.code == 0
    assert about_the_environment(ended) == []


def test_what_nothing_reads_is_told_in_a_line_and_the_run_goes_on(folder: Path) -> None:
    ended = run(folder, NCCL_TIMEOUT="3600", NCCL_IB_TIMEOUT="1000")
    assert ended.code == 0
    assert "done" in ended.out
    lines = about_the_environment(ended)
    assert len(lines) == 2
    assert all(line.startswith("safelaunch: warning[SL21") for line in lines)
    assert any("; use 1 to 31" in line for line in lines), "a line says what to do as well"
    codes = {finding["code"] for finding in ended.read("result.json")["findings"]}
    assert {"SL211", "SL213"} <= codes


def test_a_name_that_the_script_reads_itself_is_its_own_matter(folder: Path) -> None:
    (folder / "reads.py").write_text("import os\nprint(os.environ.get('NCCL_TIMEOUT'))\n")
    assert about_the_environment(run(folder, script="reads.py", NCCL_TIMEOUT="3600")) == []


def test_what_the_script_sets_is_looked_at_as_well(folder: Path) -> None:
    (folder / "sets.py").write_text("import os\n\nos.environ['NCCL_IB_TIMEOUT'] = '1000'\n")
    [line] = about_the_environment(run(folder, script="sets.py"))
    assert "NCCL_IB_TIMEOUT=1000" in line
    assert line.endswith("(sets.py:3)")


@pytest.mark.long
def test_many_findings_do_not_bury_the_run(folder: Path) -> None:
    nonsense = {f"NCCL_NO_SUCH_{number}": "1" for number in range(12)}
    ended = run(folder, **nonsense)
    assert len(about_the_environment(ended)) == 8
    assert "4 more about the environment: -v or --dry-run shows them" in ended.err
    verbose = run(folder, "-v", **nonsense)
    assert len(about_the_environment(verbose)) == 12
    assert verbose.err.count("= help: unset NCCL_NO_SUCH_") == 12
    assert run(folder, "--dry-run", **nonsense).out.count("warning[SL210]") == 12
    assert about_the_environment(run(folder, "-q", **nonsense)) == []


def test_a_profile_may_refuse_what_it_calls_an_error(folder: Path) -> None:
    (folder / "strict.toml").write_text("[lint.severity]\nSL211 = 'error'\n")
    ended = run(folder, "--profile", "./strict.toml", NCCL_TIMEOUT="3600")
    assert ended.code == 78
    assert "error[SL211]: NCCL_TIMEOUT=3600" in ended.err
    assert "done" not in ended.out


def test_a_dry_run_tells_as_well(folder: Path) -> None:
    ended = run(folder, "--dry-run", NCCL_TIMEOUT="3600")
    assert ended.code == 0
    (line,) = [line.strip() for line in ended.out.splitlines() if "warning[SL211]: NCCL_TIMEOUT=3600" in line]
    assert f"safelaunch: {line}" in run(folder, NCCL_TIMEOUT="3600").err.splitlines()
    assert "= help: " in run(folder, "--dry-run", "-v", NCCL_TIMEOUT="3600").out


def test_a_script_that_comes_through_a_pipe_runs(folder: Path) -> None:
    ended = run(folder, "--nproc-per-node", "1", script="/dev/stdin", stdin=DONE)
    assert (ended.code, ended.out) == (0, "done\n")


def test_a_script_that_is_a_fifo_runs(folder: Path) -> None:
    os.mkfifo(folder / "fifo.py")
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit((folder / "fifo.py").write_text, DONE)
        ended = run(folder, "--nproc-per-node", "1", script="fifo.py")
        assert (ended.code, ended.out, written.result()) == (0, "done\n", len(DONE))


def test_a_profile_may_come_through_a_pipe(folder: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"[env]\nNCCL_TIMEOUT = 3600\n")
    os.close(writer)
    command = [*SAFELAUNCH, "lint", "--exit-zero", f"/dev/fd/{reader}"]
    done = subprocess.run(command, cwd=folder, env=environment(), pass_fds=[reader], stdout=subprocess.PIPE, check=True)
    os.close(reader)
    assert b"warning[SL211]: NCCL_TIMEOUT=3600" in done.stdout


@pytest.mark.long
def test_a_timeout_that_torch_does_not_read_is_told(folder: Path) -> None:
    (folder / "sets.py").write_text("class c10d: pass\nc10d._DEFAULT_PG_TIMEOUT = 3600\n")
    (line,) = about_the_environment(run(folder, script="sets.py"))
    assert "_DEFAULT_PG_TIMEOUT" in line
    assert line.endswith("(sets.py:2)")

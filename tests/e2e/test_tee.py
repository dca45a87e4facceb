"""`--tee`: what ranks write reaches the console and the log files as under torchrun, whatever it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from harness import SAFELAUNCH, TORCHRUN, environment

# Each stream in one piece: torch takes a line for two where it meets its first half alone.
LOUD = """
import os, sys
rank = os.environ["RANK"].encode()
for stream, kind in (1, b"out"), (2, b"err"):
    data = b"".join(b"%s %s line %d\\n" % (kind, rank, number) for number in range(50)) + (
        b"\\rstep 1\\rstep 2\\r\\n\\n"
        + "é €".encode()
        + b"\\xff\\x0b\\x1c after\\n"
        + b"w" * 1000
        + b"\\nkeep this\\nlast without end " + rank
    )
    assert os.write(stream, data) == len(data)
"""


def tee(launcher: tuple[str, ...], folder: Path, *options: str) -> tuple[list[bytes], list[bytes]]:
    """Lines on stdout, and those of the ranks on stderr, sorted: ranks write at the same time."""
    (folder / "loud.py").write_text(LOUD)
    ended = subprocess.run(
        [*launcher, "--nproc-per-node", "2", "--tee", "3", "--log-dir", str(folder / "logs"), *options, "loud.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        timeout=90,
        check=True,
    )
    ours = [line for line in ended.stderr.split(b"\n") if line.startswith((b"[", b"default"))]
    return _lines(ended.stdout), _lines(b"\n".join(ours))


def _lines(said: bytes) -> list[bytes]:
    for end in b"without end 0", b"without end 1":  # the next line follows at once
        said = said.replace(end, end + b"\n")
    return sorted(said.split(b"\n"))


@pytest.mark.parametrize("options", [(), ("--local-ranks-filter", "1")], ids=["all ranks", "one rank"])
def test_the_console_shows_what_it_shows_under_torchrun(options: tuple[str, ...], tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()

    expected = tee(TORCHRUN, theirs, *options)
    assert sum(b" line " in line for line in expected[0]) == 50 * (1 if options else 2)

    assert tee(SAFELAUNCH, ours, *options) == expected
    assert logs(ours) == logs(theirs)


def test_filtered_copies_hold_what_they_hold_under_torchrun(tmp_path: Path) -> None:
    options = ("--duplicate-stdout-filters", "keep,step", "--duplicate-stderr-filters", "line 7")
    help_text = subprocess.run([*TORCHRUN, "--help"], env=environment(), capture_output=True, check=True).stdout
    if b"--duplicate-stdout-filters" not in help_text:
        pytest.skip("this torch has no filtered copies")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()

    assert tee(SAFELAUNCH, ours, *options) == tee(TORCHRUN, theirs, *options)

    expected = logs(theirs)
    assert expected["attempt_0/filtered_stdout.log"].count(b"keep this") == 2
    assert logs(ours) == expected


def logs(folder: Path) -> dict[str, bytes]:
    """What lies in the one run below the log directory, without what two ranks wrote in turns being in any order."""
    (run,) = (folder / "logs").glob("*")
    return {
        os.path.relpath(path, run): b"\n".join(sorted(path.read_bytes().split(b"\n")))
        for path in sorted(run.rglob("*.log"))
    }

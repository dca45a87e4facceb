"""`--log merge` and `--log prefix`: what several ranks print is shown once, and their files stay as they were."""

from __future__ import annotations

import collections
import os
import re
import subprocess
from pathlib import Path

import pytest
from harness import SAFELAUNCH, Ended, environment, launch

PRINTS = """
import os, sys
rank = int(os.environ["RANK"])
print("all of us begin")
print(f"rank {rank} has a loss of {2 + rank / 100:.2f}")
if rank == 1:
    print("rank 1 alone", file=sys.stderr)
"""


def train(folder: Path, text: str, *options: object, ranks: int = 3) -> Ended:
    (folder / "train.py").write_text(text)
    return launch("--preflight", "off", "--nproc-per-node", ranks, *options, "train.py", cwd=folder)


@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
def test_what_ranks_print_alike_is_shown_once(way: str, tmp_path: Path) -> None:
    ended = train(tmp_path, PRINTS, way, "--log", "merge")

    assert ended.code == 0
    assert ended.out == "[0-2] all of us begin\n[0-2] rank 0…2 has a loss of 2.00…2.02\n"
    assert "[1] rank 1 alone\n" in ended.err
    assert ended.run_dir is not None
    files = [ended.run_dir / f"attempt_0/rank_00{rank}/stdout.log" for rank in range(3)]
    assert [file.read_text() for file in files] == [
        f"all of us begin\nrank {rank} has a loss of {2 + rank / 100:.2f}\n" for rank in range(3)
    ]


def test_a_prefix_of_a_profile_goes_before_each_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[log]\nprefix = "{host}:{rank} {time}"\n')
    ended = train(tmp_path, PRINTS, "--profile", "./mine.toml", ranks=2)

    assert ended.code == 0
    found = [re.fullmatch(r"(\S+):([01]) \d\d:\d\d:\d\d\.\d{3} (.*)", line) for line in ended.out.splitlines()]
    assert sorted((one[2], one[3]) for one in found if one) == [
        ("0", "all of us begin"),
        ("0", "rank 0 has a loss of 2.00"),
        ("1", "all of us begin"),
        ("1", "rank 1 has a loss of 2.01"),
    ]


def test_a_prefix_with_a_field_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[log]\nprefix = "{node} "\n')
    ended = train(tmp_path, PRINTS, "--profile", "./mine.toml", ranks=1)

    assert ended.code == 78
    assert "{rank}, {host}, {time} and {date}" in ended.err


NULL_BYTE = """
import os
print("loss \\0" if os.environ["RANK"] == "0" else "loss 5", flush=True)
print("after it", flush=True)
"""


def test_a_null_byte_in_a_line_ends_no_output(tmp_path: Path) -> None:
    ended = train(tmp_path, NULL_BYTE, "--log", "merge", ranks=2)

    assert ended.code == 0
    each = ended.out.replace("[0-1] after it", "[0] after it\n[1] after it")  # as one, where they came together
    assert sorted(each.splitlines()) == ["[0] after it", "[0] loss \0", "[1] after it", "[1] loss 5"]


FAILS = """
import os, time
print("before it", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("no")
time.sleep(60)
"""


def test_a_traceback_comes_before_the_verdict(tmp_path: Path) -> None:
    ended = train(tmp_path, FAILS, "--log", "merge", ranks=2)

    assert ended.code == 1
    assert 0 <= ended.err.index("[1] ValueError: no\n") < ended.err.index("error[SL401]: rank 1 raised ValueError: no")


FLOODS = """
import os, sys
rank = int(os.environ["RANK"])
for number in range(20_000):
    sys.stdout.write(f"line {number} of {'each' if number % 3 else rank}\\n")
"""


def test_no_line_of_many_is_lost_or_torn(tmp_path: Path) -> None:
    ended = train(tmp_path, FLOODS, "--log", "merge")

    seen: collections.Counter[str] = collections.Counter()
    for line in ended.out.splitlines():
        found = re.fullmatch(r"\[([\d,-]+)\] line (\S+) of (\S+)", line)
        assert found, line
        for part in found[1].split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                seen[str(rank)] += 1
    assert seen == {"0": 20_000, "1": 20_000, "2": 20_000}


DRAWS = """
import os, sys, time
rank = int(os.environ["RANK"])
for number in range(1, 5):
    if rank == 0:
        sys.stderr.write(f"\\r{number}/4 {'#' * 200}")
        sys.stderr.flush()
    print("a line of all", flush=True)
    open(f"{rank}-{number}", "w")
    while not all(os.path.exists(f"{other}-{number}") for other in (0, 1)):
        time.sleep(0.01)
    time.sleep(0.15)  # a round of the console is 50 ms: each state of the bar is drawn
if rank == 0:
    sys.stderr.write("\\n")
"""


def on_a_terminal(folder: Path, *options: str) -> bytes:
    """What a run writes to a terminal of 80 columns."""
    ours, theirs = os.openpty()
    command = [*SAFELAUNCH, "--preflight", "off", "--nproc-per-node", "2", *options, "train.py"]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 1 << 16):
            said += data
    except OSError:  # the terminal of a program that has ended
        pass
    assert process.wait(60) == 0
    os.close(ours)
    return said


def test_a_bar_stays_below_the_lines_of_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DRAWS)

    said = on_a_terminal(tmp_path, "--log", "merge").decode()

    assert said.count("[0-1] a line of all\r\n") == 4
    assert "\r\x1b[K[0] 2/4 ###" in said  # drawn where the state before it stood
    assert re.search(r"\r\x1b\[K\[0-1\] a line of all\r\n\[0\] \d/4 #", said)  # a line, and the bar again below it
    last = said[said.rindex("[0] 4/4") :]
    assert last.startswith(f"[0] 4/4 {'#' * 200}\r\n")  # in the end it is a line, and whole

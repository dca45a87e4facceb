"""What stands around a line of the user's program; the files are read by a real child process."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from safelaunch.evidence import source_lines
from safelaunch.model import Case, Condition, Exit, ExitCall, Incident, Location, RankFacts, SourceLine, Stack

PROGRAM = """\
import torch.distributed as dist

def main(rank, loader, steps):
    for epoch in range(3):
        for batch in loader:
            loss = step(batch)
            if rank == 0:
                print(loss)
            elif rank == 1:
                dist.all_reduce(
                    loss,
                )
            else:
                dist.barrier()
        else:
            dist.barrier()
    while steps > 0:
        steps -= 1
    else:
        done()

def outer():
    for item in things:
        @decorated(
            item)
        def inner(): return item
        def other():
            if item:
                return 1
        items = [
            work(x)
            for x in item
        ]

async def with_all():
    try:
        with lock:
            async for x in source:
                match x:
                    case 1 if x:
                        value = (
                            first() if rank == 0
                            else second()
                        )
    except ValueError:
        if (a and
                b):
            dist.barrier()
    finally:
        x = one() if quick else two()
        wait(0 if quick else 1)
        y = three() if quick else 0
"""

DIFFICULT = "# " + "x" * 200 + "\x0c\x1c\n\nif True:\n    work()\n"


def describe(file: Path | str, *lines: int, seconds: float = 30) -> list[SourceLine]:
    frames = tuple(Location(str(file), line, "f") for line in lines)
    return list(source_lines.describe([Stack(frames, "py-spy")], seconds))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


EPOCHS, BATCHES = (4, 16), (5, 14)


def written(condition: Condition) -> tuple[int, str]:
    return condition.line, condition.text if condition.holds else f"else: {condition.text}"


@pytest.mark.parametrize(
    ("text", "loops", "conditions"),
    [
        ("for epoch in", [(4, 16)], []),  # the head of a loop is where it fetches
        ("for batch in", [(4, 16), (5, 14)], []),
        ("loss = step", [(4, 16), (5, 14)], []),
        ("if rank == 0:", [(4, 16), (5, 14)], []),
        ("print(loss)", [(4, 16), (5, 14)], [(7, "rank == 0")]),
        ("elif rank == 1", [(4, 16), (5, 14)], [(7, "else: rank == 0")]),
        ("loss,", [(4, 16), (5, 14)], [(7, "else: rank == 0"), (9, "rank == 1")]),
        ("dist.barrier()", [(4, 16), (5, 14)], [(7, "else: rank == 0"), (9, "else: rank == 1")]),
        ("    dist.barrier()\n    while", [(4, 16)], []),
        ("while steps", [(17, 18)], []),
        ("steps -= 1", [(17, 18)], [(17, "steps > 0")]),
        ("done()", [], [(17, "else: steps > 0")]),
        ("item)", [(23, 33)], []),  # a decorator runs where the function is defined
        ("def inner", [], []),
        ("return 1", [], [(28, "item")]),
        ("work(x)", [(23, 33)], []),
        ("first()", [(38, 44)], [(42, "rank == 0")]),
        ("else second()", [(38, 44)], [(42, "else: rank == 0")]),
        ("dist.barrier()\n    finally", [], [(46, "a and b")]),
        ("x = one()", [], [(50, "quick")]),  # on one line: which branch runs cannot be seen
        ("wait(0", [], []),  # what is called there is called in any case
        ("y = three()", [], [(52, "quick")]),
        ("import torch", [], []),
    ],
)
def test_loops_and_conditions_around_a_line(
    program: Path, text: str, loops: list[tuple[int, int]], conditions: list[tuple[int, str]]
) -> None:
    line = PROGRAM[: PROGRAM.index(text) + len(text) - len(text.lstrip())].count("\n") + 1

    (found,) = describe(program, line)
    assert (found.file, found.line) == (str(program), line)
    assert found.text == PROGRAM.splitlines()[line - 1].strip()
    assert (list(found.loops), list(map(written, found.conditions))) == (loops, conditions)


HELPERS = """
def gather(f):
    dist.all_gather(out, f)

def handed_on():
    dist.barrier()

class Run:
    def epoch(self):
        for x in self.data:
            loss = contrast(x, gather(x))
        self.report()

    def report(self):
        dist.all_reduce(self.seen)
        twice()

def twice():
    dist.barrier()

def main():
    register(handed_on)
    twice()
    Run().epoch()
"""


@pytest.mark.parametrize(
    ("line", "callers"),
    [
        (3, [(11, "epoch"), (24, "main"), None]),  # main() itself is called by nobody here
        (15, [(12, "epoch"), (24, "main"), None]),
        (6, [None]),  # it is handed on: who calls it nobody knows
        (19, [None]),  # two lines call it
    ],
)
def test_a_call_to_which_no_stack_leads_has_its_callers_by_the_source(
    tmp_path: Path, line: int, callers: list[tuple[int, str] | None]
) -> None:
    (tmp_path / "run.py").write_text(HELPERS)
    recorded = Stack((Location(str(tmp_path / "run.py"), line, "f"),), source_lines.RECORD)

    found = source_lines.describe([recorded], 30)
    assert [one.caller for one in found] == callers
    assert [one.caller for one in describe(tmp_path / "run.py", line)] == [None]


BRANCHES = """
def main():
    if rank == 0:
        export(model)
    else:
        while not os.path.exists(path):
            time.sleep(0.2)
        load(path)
    if rank:
        return
    first(path)
    last()
"""


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("export", [(3, "export")]),
        ("time.sleep", [(3, "load"), (3, "os.path.exists"), (3, "time.sleep"), (6, "time.sleep")]),
        ("load", [(3, "load")]),
        ("last", [(9, "last")]),
    ],
)
def test_what_a_branch_still_calls(tmp_path: Path, text: str, ahead: list[tuple[int, str]]) -> None:
    (tmp_path / "train.py").write_text(BRANCHES)
    line = BRANCHES[: BRANCHES.index(text)].count("\n") + 1

    (found,) = describe(tmp_path / "train.py", line)
    assert list(found.ahead) == ahead


LOCKS = """
def fill(self):
    with self.lock, open(path) as file:
        self.cache = file.read()
        with (
            self.log
        ):
            write()
    with self.first, self.second:
        pass
"""


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        (3, [(3, "self.lock")]),  # in the head: what comes last is not held yet
        (4, [(3, "self.lock"), (3, "open(path)")]),
        (8, [(3, "self.lock"), (3, "open(path)"), (5, "self.log")]),
        (9, [(9, "self.first")]),
        (2, []),
    ],
)
def test_what_with_statements_hold(tmp_path: Path, line: int, holds: list[tuple[int, str]]) -> None:
    (tmp_path / "locks.py").write_text(LOCKS)
    (found,) = describe(tmp_path / "locks.py", line)
    assert list(found.holds) == holds


def test_nothing_is_told_of_a_file_that_is_no_python(tmp_path: Path) -> None:
    """A process says itself where its code is from; root may be the one who reads it."""
    file = tmp_path / "shadow"
    file.write_text("root:$6$c2FsdA$aGFzaA:19000:0:99999:7:::\n")

    assert describe(file, 1) == []


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """A root with a program; beside it, on the host, is what nobody in the container can see."""
    (tmp_path / "host.py").write_text("secret = 'of the host'\n")
    (tmp_path / "root" / "opt" / "app").mkdir(parents=True)
    (tmp_path / "root" / "opt" / "app" / "train.py").write_text("step()\n")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("target", "path", "text"),
    [
        ("/opt/app", "/app/train.py", ["step()"]),
        ("opt/./app", "/app/train.py", ["step()"]),
        ("/", "/app/opt/app/train.py", ["step()"]),
        ("../../../../../../..{host}", "/app", []),
        ("{host}", "/app", []),
        ("/opt/app", "/app/../../../../../..{host}", []),
        ("/app", "/app", []),
    ],
)
def test_links_of_a_container_lead_to_its_own_files(container: Path, target: str, path: str, text: list[str]) -> None:
    host = str(container.parent / "host.py")
    (container / "app").symlink_to(target.format(host=host))
    stack = Stack((Location(path.format(host=host), 1),), "py-spy")

    assert [found.text for found in source_lines.describe([stack], 30, str(container))] == text


def test_files_of_a_container_keep_their_names(container: Path) -> None:
    stack = Stack((Location("/opt/app/train.py", 1),), "py-spy")
    assert source_lines.describe([stack], 30, str(container)) == (SourceLine("/opt/app/train.py", 1, "step()"),)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone has the rights of others")


@needs_root
def test_root_shows_of_a_file_what_the_user_may_read_who_has_named_it(container: Path) -> None:
    """A process says itself which files its code is from: it may name those of root, or of anybody."""
    (container / "opt" / "app" / "key.py").write_text("key = 'of somebody else'\n")
    (container / "opt" / "app" / "key.py").chmod(0o600)
    (container / "opt" / "app" / "link.py").symlink_to("key.py")
    files = [f"/opt/app/{name}.py" for name in ("train", "key", "link")]
    stack = Stack(tuple(Location(file, 1) for file in files), "py-spy")

    assert [found.file for found in source_lines.describe([stack], 30, str(container))] == files
    assert [found.file for found in source_lines.describe([stack], 30, str(container), "65534:65534:")] == files[:1]


@needs_root
def test_root_reads_with_the_rights_of_the_user_of_a_rank() -> None:
    assert source_lines.rights_of(os.getpid()) == ""
    with subprocess.Popen(["sleep", "60"], user=65534, group=65533, extra_groups=[65532]) as rank:
        try:
            assert source_lines.rights_of(rank.pid) == "65534:65533:65532"
        finally:
            rank.kill()
            rank.wait()
            assert source_lines.rights_of(rank.pid) is None


def test_lines_are_counted_as_python_does(tmp_path: Path) -> None:
    file = tmp_path / "difficult.py"
    file.write_text(DIFFICULT)
    first, last = describe(file, 1, 4)

    assert len(first.text) == 120
    assert (last.text, last.conditions) == ("work()", (Condition(3, "True"),))


def test_what_cannot_be_read_is_left_out(program: Path, tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00" * 100)
    missing = [Stack((Location(str(tmp_path / name), 1),), "py-spy") for name in ("gone.py", "binary.py")]
    beyond = Stack((Location(str(program), 999), Location(str(program), 4), Location(str(program), 0)), "py-spy")

    assert [found.line for found in source_lines.describe([*missing, beyond], 30)] == [4]


def test_only_the_users_own_code_is_read() -> None:
    stack = Stack(
        (
            Location("<string>", 1),
            Location(os.__file__, 1),
            Location(sysconfig.get_path("purelib") + "/torch/nn/module.py", 1),
            Location("/usr/lib/python3/dist-packages/yaml/__init__.py", 1),
            Location("/opt/safelaunch/worker/collectives.py", 1),
        ),
        "py-spy",
    )
    assert source_lines.describe([stack], 30) == ()


def test_each_line_is_asked_once_and_not_too_many(program: Path) -> None:
    lines = [min(line, 50) for line in range(1, 200)]

    assert [found.line for found in describe(program, *lines, *lines)] == list(range(1, 51))


def test_what_is_no_regular_file_is_not_opened(program: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dead.py")
    stacks = [Stack((Location(str(file), 1),), "py-spy") for file in (tmp_path / "dead.py", program)]

    assert [found.file for found in source_lines.describe(stacks, 30.0)] == [str(program)]


def test_a_file_that_hangs_costs_its_own_lines(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = tmp_path / "probe.py"
    line = json.dumps({"file": str(program), "line": 1, "text": "x", "loops": [], "conditions": [], "holds": []})
    probe.write_text(f"import time\nprint({line!r}, flush=True)\ntime.sleep(3600)\n")
    monkeypatch.setattr(source_lines, "PROBE", str(probe))

    assert [found.file for found in describe(program, 1, 2, seconds=5.0)] == [str(program)]


LEAVES = """
import sys

def check(path):
    if not path:
        raise SystemExit("no such data")
    if path == "x":
        raise SystemExit(3)
    raise SystemExit(f"bad {path}")

def main():
    raise SystemExit(run())
"""


def left_by(program: Path, code: int) -> ExitCall | None:
    facts = RankFacts(0, 0, 4100, exit=Exit(code, 1.0), program=str(program), shut_down=0.9)
    case = Case(Incident("exit", 0, (0,), 1.0), "node-a", 1, (facts,))
    return source_lines.with_raised_exits(case, 30).ranks[0].exit_call


@pytest.mark.parametrize(
    ("source", "code", "line", "told"),
    [
        (LEAVES.partition("def main")[0], 3, 8, "3"),
        (LEAVES.partition("def main")[0], 1, None, ""),  # at two lines, with two texts
        (LEAVES.replace("3)", "259)").partition("def main")[0], 3, 8, "3"),
        (LEAVES, 3, None, ""),  # or what `run` has returned
        ("def main(): ...\n\nraise SystemExit(main())", 4, 3, "4"),
        ("raise SystemExit('no such data')", 1, 1, "no such data"),
        ("raise SystemExit", 4, None, ""),  # a library's, then: that would be 0
        ("raise ValueError", 4, None, ""),
    ],
)
def test_the_only_line_that_raises_the_end_of_a_program(
    tmp_path: Path, source: str, code: int, line: int | None, told: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(source)

    found = left_by(program, code)

    assert (found.location.line, found.code, found.raised) == (line, told, True) if found else line is None


def test_a_program_that_cannot_be_read_has_no_such_line(tmp_path: Path) -> None:
    assert left_by(tmp_path / "gone.py", 3) is None
    assert left_by(Path(), 3) is None

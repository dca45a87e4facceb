"""Heartbeats, phases, and what shows progress: of scripts that know of safelaunch, and of scripts that do not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import environment
from torch_ranks import GLOO, run

import safelaunch
from safelaunch.pulse import PHASES

# ---------------------------------------------------------------------------------------- safelaunch's own calls


def test_outside_a_run_the_calls_do_nothing() -> None:
    safelaunch.heartbeat()
    safelaunch.heartbeat(3, total=10)
    with safelaunch.phase("evaluate", expect="10m"):
        pass
    with pytest.raises(KeyError), safelaunch.phase("evaluate"):
        raise KeyError

    assert safelaunch._pulse is None


@pytest.mark.parametrize("expect", ["soon", "-1", "10 parsecs", float("nan")])
def test_a_duration_that_is_none_is_told_everywhere(expect: object) -> None:
    with pytest.raises(ValueError), safelaunch.phase("evaluate", expect=expect):  # type: ignore[arg-type]  # noqa: PT011
        pass


CALLS = """
import safelaunch
safelaunch.heartbeat()
safelaunch.heartbeat(7, total=100)
marks = slot().pulse.marks
with safelaunch.phase("evaluate", expect="10m"):
    with safelaunch.phase("inner", expect=90):
        inner = slot().pulse.phases
    outer = slot().pulse.phases
try:
    with safelaunch.phase("fails"):
        raise KeyError
except KeyError:
    pass
closed = slot().pulse.phases
with safelaunch.phase("ü" * 100):
    wide = slot().pulse.phases
open_ = [safelaunch.phase("phase %d" % number) for number in range(12)]
for phase in open_:
    phase.__enter__()
many = len(slot().pulse.phases)
for phase in reversed(open_):
    phase.__exit__(None, None, None)
with safelaunch.phase("afterwards"):
    again = slot().pulse.phases
say(marks=marks, inner=inner, outer=outer, closed=closed, wide=wide, many=many, again=again, left=slot().pulse.phases,
    thread=threading.get_native_id())
"""


def test_phases_and_heartbeats_of_a_rank(tmp_path: Path) -> None:
    begun = time.monotonic()
    (rank,) = run(tmp_path, CALLS)
    said = rank.said

    assert (rank.code, rank.err, said["marks"]) == (0, "", 2)
    assert [(name, expect) for name, _, expect, _ in said["inner"]] == [("evaluate", 600.0), ("inner", 90.0)]
    assert [(name, expect) for name, _, expect, _ in said["outer"]] == [("evaluate", 600.0)]
    assert begun < said["outer"][0][1] < time.monotonic()
    assert said["outer"][0][3] == said["thread"]
    assert said["closed"] == said["left"] == []
    assert set(said["wide"][0][0].rstrip("\ufffd")) == {"ü"}
    assert said["many"] == PHASES - 1  # the first is that of the main thread's loader
    assert [name for name, *_ in said["again"]] == ["afterwards"]


# ---------------------------------------------------------------------------------------------- torch's own words

TRAINING = """
import torch, torch.utils.data
def counts():
    pulse = slot().pulse
    return [pulse.steps, pulse.batches, bool(pulse.exhausted)]
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if not torch.utils.data.get_worker_info():
            SEEN.append([phase[0] for phase in slot().pulse.phases])
        return index
class Saved:
    def __reduce__(self):
        SEEN.append([phase[0] for phase in slot().pulse.phases])
        return int, ()
class Fails:
    def __reduce__(self):
        raise KeyError("mine")
if __name__ == "__main__":
    SEEN = []
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizers = [torch.optim.SGD([parameter], lr=0.1), torch.optim.AdamW([parameter])]
    start = counts()
    for optimizer in optimizers:
        optimizer.step()
    stepped = counts()
    loaded = [int(item) for item in torch.utils.data.DataLoader(Items(), batch_size=1)]
    fed, loading = counts(), SEEN[:]
    forked = [int(item) for item in torch.utils.data.DataLoader(Items(), batch_size=1, num_workers=2)]
    twice = counts()
    SEEN.clear()
    torch.save(Saved(), "checkpoint.pt")
    torch.load("checkpoint.pt", weights_only=False)
    try:
        torch.save(Fails(), "fails.pt")
    except KeyError as error:
        failed = repr(error)
    say(start=start, stepped=stepped, loaded=loaded, fed=fed, loading=loading, forked=forked, twice=twice, saving=SEEN,
        failed=failed, left=slot().pulse.phases, names=[torch.save.__name__, torch.load.__module__])
"""


def test_steps_batches_and_checkpoints_are_seen(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, TRAINING)
    said = rank.said

    assert (rank.code, rank.err) == (0, "")
    assert said["start"] == [0, 0, False]
    assert said["stepped"] == [2, 0, False]
    assert said["loaded"] == said["forked"] == [0, 1, 2, 3]
    assert said["fed"] == [2, 4, True]
    assert said["twice"] == [2, 8, True]
    assert said["loading"] == [["loader"]] * 4
    assert said["saving"] == [["checkpoint save"]]
    assert said["failed"] == "KeyError('mine')"
    assert said["left"] == []
    assert said["names"] == ["save", "torch.serialization"]


# What the compiler makes of a program, with us and without.
COMPILED = """
import torch, torch._dynamo
from torch._dynamo.utils import counters
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.Adam([parameter], lr=torch.tensor(0.1), foreach=False)
@torch.compile(backend="eager")
def step():
    optimizer.step()
@torch.compile(backend="eager", fullgraph=True)
def forward(x):
    return (parameter * x).sum()
for number in range(4):
    parameter.grad = torch.ones(3) * number
    step()
    forward(torch.ones(3))
print([round(value, 4) for value in parameter.tolist()])
print(dict(counters["graph_break"]), counters["stats"]["unique_graphs"])
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_compiled_step_is_compiled_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(COMPILED)
    bare = subprocess.run(
        [sys.executable, "bare.py"], env=environment(PYTHONPATH=None), capture_output=True, text=True, cwd=tmp_path,
        timeout=110, check=True,
    )  # fmt: skip
    (rank,) = run(tmp_path, COMPILED + "\nsay(left=slot().pulse.phases, phases=slot().pulse.progress)")

    assert rank.code == 0, rank.err
    assert rank.out == bare.stdout
    assert "safelaunch" not in rank.err
    assert rank.said["left"] == []
    assert rank.said["phases"] > 0


COMPILED_COLLECTIVE = """
@torch.compile(backend="eager", fullgraph=True)
def reduce(x):
    dist.all_reduce(x)
    return x + 1
print(reduce(torch.ones(2)).tolist())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_collective_in_a_compiled_graph_is_no_break_of_it(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, GLOO + COMPILED_COLLECTIVE)

    assert (rank.code, rank.out) == (0, "[2.0, 2.0]\n"), rank.err


# ---------------------------------------------------------------------------------------------- when a hook fails

HOOKS = """
from safelaunch.worker import after_import
def patch(module):
    raise AttributeError("not in this version")
after_import.call_after_import("plain", patch)
after_import.call_after_import("plain", lambda module: setattr(module, "patched", True))
after_import.call_after_import("a.part", patch)
import plain
import a.part
import plain
print(plain.ANSWER, plain.patched, a.part.ANSWER)
after_import.call_after_import("plain", lambda module: print("at once"))
try:
    import broken
except ValueError as error:
    print(error)
after_import.call_after_import("missing", patch)
try:
    import missing
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_a_hook_that_fails_is_off_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("ANSWER = 42\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("")
    (tmp_path / "a" / "part.py").write_text("ANSWER = 43\n")
    (tmp_path / "broken.py").write_text("raise ValueError('theirs')\n")
    (rank,) = run(tmp_path, HOOKS)

    assert (rank.code, rank.out) == (0, "42 True 43\nat once\ntheirs\nmissing\n"), rank.err
    assert rank.err == "safelaunch: warning[SL902]: patch is off in this rank: AttributeError('not in this version')\n"


OLD_TORCH = """
import torch.optim.optimizer as module
import torch, safelaunch.worker.progress as progress
del module.register_optimizer_step_post_hook
from safelaunch.worker.after_import import call_after_import
import functools
call_after_import("torch.optim.optimizer", functools.partial(progress.count_steps, pulse=None))
print("went on")
"""


def test_an_older_torch_without_a_hook_is_told_of_once(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, OLD_TORCH)

    assert (rank.code, rank.out) == (0, "went on\n")
    assert rank.err.count("warning[SL902]: count_steps is off in this rank") == 1
    assert rank.err.count("\n") == 1


IMPORTS = """
open("first.py", "w").write("from __main__ import beats; beats()")  # no import is seen that is over at once
open("second.py", "w").close()
open("broken.py", "w").write("raise ImportError")
sys.path.insert(0, os.getcwd())
def progress():
    return slot().pulse.progress
def grown(since):
    until(lambda: progress() > since)
    return True
def beats():
    beat = slot().pulse.beat
    until(lambda: slot().pulse.beat > beat)
beats()
beats()
start = progress()
import first
say(counted=grown(start))
counted = progress()
beats()
for _ in range(3):
    try:
        import broken
    except ImportError:
        pass
    beats()
once = progress()
for _ in range(3):
    try:
        import broken
    except ImportError:
        pass
    beats()
say(tried=progress() - once)
if os.fork() == 0:
    import second
    os._exit(0)
os.wait()
beats()
say(below=progress() - once)
"""


@pytest.mark.parametrize("before", ["", GLOO])
def test_imports_are_progress_as_long_as_there_are_more_modules(before: str, tmp_path: Path) -> None:
    source = IMPORTS if before else IMPORTS.replace("until(lambda: slot().pulse.beat > beat)", "pass")
    (rank,) = run(tmp_path, before + source)

    assert rank.code == 0, rank.err
    assert (rank.said["counted"], rank.said["tried"], rank.said["below"]) == (True, 0.0, 0.0)

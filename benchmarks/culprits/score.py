"""Whom launchers name as the culprit: each runs programs that fail, and a few that only look so, and what it says is
compared with the truth that lies beside each program. `README.md` says how programs and launchers are added.

    python benchmarks/culprits/score.py [--launchers safelaunch torchrun] [--programs NAME ...] [--seconds 120]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launchers import LAUNCHERS, Launcher

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RIG = REPOSITORY / "tests" / "rigs" / "fake_gpus" / "with-fake-gpus"
PROGRAM = "train.py"
PLACE = re.compile(r'\btrain\.py(?:", line |:| line )(\d+)')
LEAVE_S = 30.0  # for what a launcher says, and its ranks do, when it is told to end
SCORES = ("right", "nobody named", "wrong", "let it run", "ended it")


@dataclass(frozen=True)
class Truth:
    """What is wrong with a program.

    Args:
        backend: "gloo", or "nccl", which needs a GPU for each rank, or the rig of fake ones.
        ranks: to start.
        culprits: any of them may be named, and nobody else; empty for a program that is healthy.
        lines: of `train.py` that lead to the cause.
        cause: in words.
        nccl2: which of torch's two backends of NCCL is asked for.
    """

    backend: str
    ranks: int
    culprits: Sequence[int]
    lines: Sequence[int]
    cause: str
    nccl2: bool = False


@dataclass(frozen=True)
class Score:
    """What a launcher made of a program.

    Args:
        score: one of `SCORES`; the last two are of healthy programs.
        line: whether it printed a line of the program that leads to the cause.
        seconds: from the start to its end, or until it was told to end.
        printed: lines of output.
        headline: what it said.
    """

    launcher: str
    program: str
    score: str
    line: bool
    seconds: float
    printed: int
    headline: str


def truths(names: Sequence[str] = ()) -> dict[str, Truth]:
    """The programs, by name; all where none is given."""
    found = {path.parent.name: path for path in sorted((HERE / "programs").glob("*/truth.toml"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit(f"there is no program {', '.join(unknown)}; there are {', '.join(found)}")
    return {
        name: Truth(**tomllib.loads(path.read_text())) for name, path in found.items() if name in names or not names
    }


def score(name: str, launcher: Launcher, program: str, truth: Truth, seconds: float) -> Score:
    """Run one program under one launcher.

    Args:
        name: of the launcher.
        launcher: to be judged.
        program: the name of its folder.
        truth: about it.
        seconds: after which the launcher is told to end, as by somebody who loses patience.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / program
        shutil.copytree(HERE / "programs" / program, folder)
        wrapper, python, environment = surroundings(truth, Path(made))
        filled = [word.format(python=python, ranks=truth.ranks) for word in launcher.command]
        begun = time.monotonic()
        code, output = _run([*wrapper, *filled, PROGRAM], folder, environment, seconds)
        took = time.monotonic() - begun
        named = launcher.named(output, folder)
    lines = {int(line) for line in PLACE.findall(output)}
    if not truth.culprits:
        what = "let it run" if code == 0 else "ended it"
    elif not named.ranks:
        what = "nobody named"
    else:
        what = "right" if named.ranks <= {*truth.culprits} else "wrong"
    return Score(
        name, program, what, bool(lines & {*truth.lines}), round(took, 1), output.count("\n"), named.headline[:200]
    )


def surroundings(truth: Truth, folder: Path) -> tuple[list[str], str, dict[str, str]]:
    """What stands before the command, the Python that runs it, and its environment."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "SAFELAUNCH_HISTORY": "0"}
    if truth.backend == "gloo":
        return [], sys.executable, environment
    environment["TORCH_DIST_USE_NCCL2"] = "1" if truth.nccl2 else "0"
    venv = os.environ.get("FAKE_GPUS_VENV")
    if not venv:
        return [], sys.executable, environment
    environment |= {"FAKE_GPUS": str(truth.ranks), "FAKE_GPU_STATE": str(folder / "gpus")}
    return [str(RIG)], str(Path(venv) / "bin" / "python"), environment


def _run(command: Sequence[str], folder: Path, environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """The exit code, None where it was told to end, and all that it printed."""
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read()


def table(scores: Sequence[Score]) -> Iterator[str]:
    """The scores of each launcher, as a table in Markdown."""
    by_launcher: dict[str, list[Score]] = {}
    for one in scores:
        by_launcher.setdefault(one.launcher, []).append(one)
    yield "| | named the right rank | named nobody | named a wrong one | a line that leads there | healthy, let run |"
    yield "|---|---|---|---|---|---|"
    for launcher, of_one in by_launcher.items():
        count = Counter(one.score for one in of_one)
        faults = sum(count[score] for score in SCORES[:3])
        lines = sum(one.line for one in of_one if one.score in SCORES[:3])
        healthy = f"{count['let it run']} of {count['let it run'] + count['ended it']}"
        yield (
            f"| {launcher} | {count['right']} of {faults} | {count['nobody named']} | {count['wrong']} "
            f"| {lines} of {faults} | {healthy} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--launchers", nargs="+", default=["safelaunch", "torchrun"], choices=[*LAUNCHERS])
    parser.add_argument("--programs", nargs="+", default=[], metavar="NAME", help="all, unless some are named")
    parser.add_argument("--seconds", type=float, default=120.0, help="before a launcher is told to end")
    parser.add_argument("--json", type=Path, help="also write all scores to this file")
    chosen = parser.parse_args()
    scores: list[Score] = []
    for name in chosen.launchers:
        package = LAUNCHERS[name].package
        if package and importlib.util.find_spec(package) is None:
            sys.exit(f"{name} needs the package {package}")
    for program, truth in truths(chosen.programs).items():
        if truth.backend == "nccl" and not _has_gpus(truth.ranks):
            print(f"{program}: left out, it needs {truth.ranks} GPUs, or FAKE_GPUS_VENV", flush=True)
            continue
        for name in chosen.launchers:
            found = score(name, LAUNCHERS[name], program, truth, chosen.seconds)
            scores.append(found)
            print(f"{program}: {name}: {found.score}, {found.seconds:g} s: {found.headline}", flush=True)
    print("\n" + "\n".join(table(scores)))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in scores], indent=1) + "\n")


def _has_gpus(count: int) -> bool:
    if os.environ.get("FAKE_GPUS_VENV"):
        return True
    import torch

    found: Any = torch.cuda.device_count()
    return bool(found >= count)


if __name__ == "__main__":
    main()

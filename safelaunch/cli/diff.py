"""`safelaunch diff RUN RUN`: what differs between two runs, by what each of them has written down."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from safelaunch import regular
from safelaunch.cli import output, running
from safelaunch.printable import Line, line
from safelaunch.settings.commandline import misuse
from safelaunch.top.folder import Event, events

MOST = 16 << 20  # bytes of a file of a run directory
ABSENT = "(none)"
EXIT_ALIKE, EXIT_DIFFERENT = 0, 1  # as of diff(1)

# Variables that differ from run to run: of a login, a directory, a job. They are shown with -v.
PASSING = (
    "OLDPWD", "PWD", "SHLVL", "_", "WINDOW", "WINDOWID", "TMUX", "TMUX_PANE", "STY", "TERM_SESSION_ID",
    "XDG_SESSION_ID",
)  # fmt: skip
PASSING_PREFIXES = ("SSH_", "SLURM_", "BEAKER_JOB", "KUBERNETES_", "VSCODE_", "DBUS_")
# What changes how a job computes, or communicates, comes first.
TELLING = ("NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_", "PYTHON", "HF_", "LD_")


class Difference(NamedTuple):
    """One thing that differs, with what it is in each of the two runs."""

    topic: str
    name: str
    first: str
    second: str


def run(argv: list[str]) -> int:
    """Compare two runs; returns the exit code: 0 where they are alike, 1 where they differ.

    Raises:
        SafelaunchError: SL001, where there is no such run, or it cannot be read.
    """
    arguments = parser().parse_args(argv)
    first, second = (facts(running.named(name, os.environ)[0]) for name in arguments.runs)
    found = list(differences(first, second, everything=arguments.verbose))
    if arguments.json:
        output.show_json([one._asdict() for one in found])
    else:
        output.show(_shown(found))
    return EXIT_DIFFERENT if found else EXIT_ALIKE


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch diff", description=__doc__)
    made.add_argument("runs", nargs=2, metavar="RUN", help="a run directory, or the name of one")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("-v", "--verbose", action="store_true", help="show also variables of logins and of jobs")
    return made


def facts(folder: str) -> dict[str, dict[str, str]]:
    """What is known of a run, by topic and name, in the order in which it is to be shown.

    Raises:
        SafelaunchError: SL001, where run.json cannot be read.
    """
    started = regular.document(os.path.join(folder, "run.json"), MOST)
    if not started:
        raise misuse(f"{folder}/run.json cannot be read", "name the directory of a run")
    result = regular.document(os.path.join(folder, "result.json"), MOST)
    hello = next((event.fields for event in _events(folder) if event.name == "hello"), {})
    told = result.get("verdicts")
    verdicts = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    attempts = result.get("attempts")
    options = _part(started, "settings", "options")
    return {
        "result": {
            "exit code": _text(result.get("exit_code")) if result else "(it goes on, or was killed)",
            "verdict": f"{verdicts[-1].get('code')}: {verdicts[-1].get('summary')}" if verdicts else ABSENT,
            "optimizer steps": _text(result.get("steps")),
            "attempts": str(len(attempts)) if isinstance(attempts, list) else ABSENT,
        },
        "program": {
            "script": _text(_part(started, "plan").get("script")),
            "arguments": " ".join(map(str, _part(started, "plan").get("script_args") or ())),
            "working directory": _text(started.get("cwd")),
            "script's content": _text(started.get("script_sha256"))[:12],
            "commit": _text(started.get("commit"))[:12],
        },
        "versions": {
            "torch": _text(hello.get("torch")),
            "CUDA": _text(hello.get("cuda")),
            "python": _text(started.get("python")),
            "safelaunch": _text(started.get("safelaunch")),
        },
        "options": {name: _text(value.get("value")) for name, value in options.items() if isinstance(value, dict)},
        "environment": dict(_variables(folder, _text(_part(started, "plan").get("run_dir")))),
        "ranks": {f"rank {rank}": place for rank, place in _places(started)},
    }


def differences(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]], *, everything: bool = False
) -> Iterator[Difference]:
    """What differs, the telling before the rest."""
    for topic, known in first.items():
        names = [*known, *(name for name in second[topic] if name not in known)]
        if topic == "environment":
            names = sorted((name for name in names if everything or not _is_passing(name)), key=_weight)
        for name in names:
            values = known.get(name, ABSENT), second[topic].get(name, ABSENT)
            if values[0] != values[1]:
                yield Difference(topic, name, *values)


def _is_passing(name: str) -> bool:
    return name in PASSING or name.startswith(PASSING_PREFIXES)


def _weight(name: str) -> tuple[bool, str]:
    return not name.startswith(TELLING), name


def _shown(found: list[Difference]) -> Iterator[Line]:
    if not found:
        yield line("the runs are alike in all that is written down of them")
    width = min(max((len(one.name) for one in found), default=0), 40)
    topic = ""
    for one in found:
        if one.topic != topic:
            topic = one.topic
            yield line(topic)
        yield line(f"  {one.name:<{width}}  ", one.first, "  ->  ", one.second)


def _events(folder: str) -> Iterator[Event]:
    """The first ones: what torch it is stands there."""
    try:
        return events(regular.beginning(os.path.join(folder, "agent.jsonl"), 1 << 16).split(b"\n"))
    except OSError:
        return iter(())


def _variables(folder: str, run_dir: str) -> Iterator[tuple[str, str]]:
    """The environment of the ranks, as env.txt has it: `NAME=value  # origin`. The run's own directory is no matter."""
    try:
        text = regular.read(os.path.join(folder, "env.txt"), MOST).decode("utf-8", "replace")
    except OSError:
        return
    for row in text.split("\n"):
        name, equals, value = row.rpartition("  # ")[0].partition("=")
        if equals:
            yield name, value.replace(run_dir, "RUN")


def _places(started: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Where each rank of the last attempt ran."""
    mapping = started.get("mapping")
    last = mapping[-1] if isinstance(mapping, list) and mapping else {}
    for place in last.get("ranks") or () if isinstance(last, dict) else ():
        if isinstance(place, dict) and isinstance(place.get("rank"), int):
            device = place.get("gpu_index")
            yield place["rank"], f"{place.get('host')}{f', GPU {device}' if isinstance(device, (int, str)) else ''}"


def _part(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    found: Any = document
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return ABSENT if value in (None, "") else value if isinstance(value, str) else json.dumps(value)

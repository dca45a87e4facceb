"""`safelaunch diff RUN RUN`: what differs between two runs, by what each of them has written down. Exits with 0 where
they are alike, 1 where they differ, 2 where not all could be read."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from safelaunch import regular
from safelaunch.cli import output, running
from safelaunch.model.hosts import host_name
from safelaunch.printable import PLACE_WIDTH, Line, line, ljust, named
from safelaunch.settings.commandline import misuse
from safelaunch.top import written
from safelaunch.top.tail import events
from safelaunch.top.written import Result, Started

ABSENT = "(none)"
EXIT_ALIKE, EXIT_DIFFERENT, EXIT_UNREAD = 0, 1, 2  # as of diff(1)
FOREIGN = ("environment", "options")  # topics whose names are as the run has written them

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


Topic = dict[str, str | None]


@dataclass
class Known:
    """What is known of a run, by topic and name, in the order in which it is to be shown; and what could not be read.
    A topic, and a value, is None where that is not known."""

    topics: dict[str, Topic | None]
    unread: list[str]


def run(argv: list[str]) -> int:
    """Compare two runs; returns the exit code: 0 where they are alike, 1 where they differ, 2 where not all of them
    could be read.

    Raises:
        SafelaunchError: SL001, where there is no such run, or it cannot be read.
    """
    arguments = parser().parse_args(argv)
    first, second = (known(running.named(name, os.environ)[0]) for name in arguments.runs)
    found = list(differences(first, second, everything=arguments.verbose))
    unread = list(dict.fromkeys(first.unread + second.unread))
    if arguments.json:
        output.show_json([one._asdict() for one in found])
    else:
        output.show(_shown(found, whole=not unread))
    output.show((line("note: ", one, width=PLACE_WIDTH) for one in unread), sys.stderr)
    if unread:
        return EXIT_UNREAD
    return EXIT_DIFFERENT if found else EXIT_ALIKE


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch diff", description=__doc__)
    made.add_argument("runs", nargs=2, metavar="RUN", help="a run directory, or the name of one")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("-v", "--verbose", action="store_true", help="show also variables of logins and of jobs")
    return made


def known(folder: str) -> Known:
    """What is known of a run.

    Raises:
        SafelaunchError: SL001, where run.json cannot be read.
    """
    said, why = written.document(os.path.join(folder, "run.json"))
    if not said:
        raise misuse(f"{folder}/run.json {why or 'is empty'}", "name the directory of a run")
    started, faults = written.fitting(Started, said)
    unread = [f"{folder}/run.json: {one}" for one in faults.values()]
    plan, options = started.plan, started.settings.options

    def told(name: str, value: str | None, most: int | None = None) -> str | None:
        return None if name in faults else _text(value)[:most]

    topics: dict[str, Topic | None] = {
        "result": _result(folder, unread),
        "program": {
            "script": told("plan", plan.script),
            "arguments": told("plan", " ".join(plan.script_args)),
            "working directory": told("cwd", started.cwd),
            "script's content": told("script_sha256", started.script_sha256, 12),
            "commit": told("commit", started.commit, 12),
        },
        "versions": {
            **_versions(folder, unread),
            "python": told("python", started.python),
            "safelaunch": told("safelaunch", started.safelaunch),
        },
        "options": {name: _text(one.value) for name, one in options.items()} if "settings" not in faults else None,
        "environment": _environment(folder, plan.run_dir, unread),
        "ranks": _places(started) if "mapping" not in faults else None,
    }
    return Known(topics, unread)


def differences(first: Known, second: Known, *, everything: bool = False) -> Iterator[Difference]:
    """What differs, the telling before the rest. What is not known of one of them is no difference."""
    for topic, one in first.topics.items():
        other = second.topics[topic]
        if one is None or other is None:
            continue
        names = [*one, *(name for name in other if name not in one)]
        if topic == "environment":
            names = sorted((name for name in names if everything or not _is_passing(name)), key=_weight)
        for name in names:
            values = one.get(name, ABSENT), other.get(name, ABSENT)
            if values[0] is not None and values[1] is not None and values[0] != values[1]:
                yield Difference(topic, name, values[0], values[1])


def _is_passing(name: str) -> bool:
    return name in PASSING or name.startswith(PASSING_PREFIXES)


def _weight(name: str) -> tuple[bool, str]:
    return not name.startswith(TELLING), name


def _shown(found: list[Difference], *, whole: bool) -> Iterator[Line]:
    if not found:
        alike = "in all that is written down of them" if whole else "in what could be read of them, which is not all"
        yield line(f"the runs are alike {alike}")
    width = min(max((len(one.name) for one in found), default=0), 40)
    topic = ""
    for one in found:
        if one.topic != topic:
            topic = one.topic
            yield line(topic)
        name = named(one.name) if topic in FOREIGN else line(one.name)
        yield line("  ", ljust(name, width), "  ", one.first, "  ->  ", one.second)


def _result(folder: str, unread: list[str]) -> Topic | None:
    said, why = written.document(os.path.join(folder, "result.json"))
    if why:
        unread.append(f"{folder}/result.json {why}")
        return None
    result, faults = written.fitting(Result, said or {})
    unread += [f"{folder}/result.json: {one}" for one in faults.values()]
    if said is not None and result.exit_code is None and "exit_code" not in faults:
        unread.append(f"{folder}/result.json has no exit code")
    last = result.verdicts[-1] if result.verdicts else None
    values: Topic = {
        "exit code": "(it goes on, or was killed)" if said is None else _text(result.exit_code),
        "verdict": f"{last.code}: {last.summary}" if last is not None else ABSENT,
        "optimizer steps": _text(result.steps),
        "attempts": _text(len(result.attempts) if result.attempts is not None else None),
    }
    fields = dict(zip(("exit_code", "verdicts", "steps", "attempts"), values, strict=True))
    return values | {name: None for field, name in fields.items() if field in faults}


def _versions(folder: str, unread: list[str]) -> Topic:
    """What torch it is: agent.jsonl begins with it. A run of `safelaunch exec` has none."""
    try:
        lines = regular.beginning(os.path.join(folder, "agent.jsonl"), 1 << 16).split(b"\n")
    except FileNotFoundError:
        lines = []
    except OSError as error:
        unread.append(f"{folder}/agent.jsonl cannot be read: {error.strerror}")
        return {"torch": None, "CUDA": None}
    hello = next((event.fields for event in events(lines) if event.name == "hello"), {})
    return {"torch": _text(hello.get("torch")), "CUDA": _text(hello.get("cuda"))}


def _environment(folder: str, run_dir: str, unread: list[str]) -> Topic | None:
    """The environment of the ranks, as env.txt has it: `NAME=value  # origin`. The run's own directory is no matter."""
    try:
        text = regular.read(os.path.join(folder, "env.txt"), written.MOST).decode("utf-8", "replace")
    except OSError as error:
        unread.append(f"{folder}/env.txt cannot be read: {error.strerror}")
        return None
    found: Topic = {}
    for row in text.split("\n"):
        name, equals, value = row.rpartition("  # ")[0].partition("=")
        if equals:
            found[name] = value.replace(run_dir, "RUN") if run_dir else value
    return found


def _places(started: Started) -> Topic:
    """Where each rank of the last attempt ran."""
    found: Topic = {}
    for place in started.mapping[-1].ranks if started.mapping else ():
        device = place.gpu_index
        gpu = f", GPU {device}" if isinstance(device, (int, str)) else ""
        found[f"rank {place.rank}"] = f"{host_name(place.host)}{gpu}"
    return found


def _text(value: Any) -> str:
    return ABSENT if value in (None, "") else value if isinstance(value, str) else json.dumps(value)

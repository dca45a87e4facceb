"""`safelaunch attach`: the verdict on a job that hangs now, whoever started it, from outside."""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from safelaunch import codes, files, procfs
from safelaunch.cli import bounded, output
from safelaunch.codec import to_json
from safelaunch.diagnosis import why
from safelaunch.diagnosis.wording import names
from safelaunch.evidence import attached, case, pipes, ranks
from safelaunch.evidence.ranks import Group
from safelaunch.model import SCHEMA_VERSION, SafelaunchError, Verdict
from safelaunch.printable import line
from safelaunch.report import bundle
from safelaunch.report import verdict as terminal
from safelaunch.report.palette import Palette, for_stream
from safelaunch.run import pages
from safelaunch.run.hardware import Hardware
from safelaunch.run.judge import judged
from safelaunch.settings.commandline import Parser, misuse

if TYPE_CHECKING:
    from safelaunch.report.page import Surroundings

USAGE = """\
usage: safelaunch attach [--wait SECONDS] [--output DIR] [--list] [--json] [--color WHEN] PID|SLURM_JOBID

Tell who hangs in a job that runs now on this node, whoever started it: torchrun, srun, mpirun, accelerate, deepspeed,
safelaunch. It looks twice from outside and changes nothing: no signal, no stop, no file of the job is touched. Ranks
that keep a Flight Recorder for safelaunch, or for a pipe of torch's, are asked for it.

PID is the launcher, a rank, or any process between or below them; a Slurm job is named by its id (4711, 4711_3).

options:
  --wait SECONDS   between the two looks (default: 3); longer makes a verdict surer
  --output DIR     where the evidence goes (default: ./attach-ID-TIME); it must not exist
  --job            the number is the id of a Slurm job, also where there is a process of that number
  --list           only show the ranks that were found
  --json           print JSON
  --color WHEN     auto (the default), always or never
  -h, --help       show this text

exit codes: 0 there is a verdict, or nothing to tell; 2 misuse, no rank was found, or looking took more than it may
"""

MOST_WAIT_S = 3600.0

# Eight ranks on a busy node take 10 s beside the wait, and the records of eight full rings of 20,000 calls a GiB
# (estimates).
LIMIT_S = 120.0
ROOM = 2 << 30


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and where no rank is found."""
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    if not arguments.target:
        raise misuse("no process and no Slurm job was named", "see `safelaunch attach --help`")
    wait = _seconds(arguments.wait)
    return bounded.run(lambda: _look(arguments, wait), wait + LIMIT_S, ROOM)


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch attach")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--wait", default="3", metavar="SECONDS")
    made.add_argument("--output", default="", metavar="DIR")
    made.add_argument("--job", action="store_true")
    made.add_argument("--list", action="store_true")
    made.add_argument("--json", action="store_true")
    made.add_argument("--color", default="auto", choices=("auto", "always", "never"))
    made.add_argument("target", nargs="?", metavar="PID|SLURM_JOBID")
    return made


def _look(arguments: argparse.Namespace, wait: float) -> int:
    """Look at the ranks, and tell; returns the exit code."""
    if arguments.output and os.path.exists(arguments.output):
        raise misuse(f"--output {arguments.output} exists already", "name a folder that is not there yet")
    group = choose(arguments.target, arguments.job)
    if arguments.list:
        _list(group, arguments.json)
        return codes.EXIT_OK
    folder = arguments.output or f"attach-{arguments.target}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = look(group, wait)
    notes = [*unknown(group, taken)]
    verdict = judged(taken.case, notes.append) if taken.alive else None
    folder = keep(folder, taken, verdict, notes) if verdict is not None else ""
    _tell(group, verdict, notes, folder, arguments.json, for_stream(sys.stdout, arguments.color))
    return codes.EXIT_OK


def look(group: Group, wait: float) -> attached.Taken:
    """Two looks at the ranks, `wait` seconds apart, and at their hardware."""
    taken = attached.take(group, wait, socket.gethostname())
    hardware = Hardware(tuple(one.worker() for one in group.ranks), None, waits=True)
    taken = dataclasses.replace(taken, case=hardware.add_to(taken.case))
    return dataclasses.replace(taken, evidence=(*taken.evidence, *hardware.evidence()))


def keep(
    folder: str,
    taken: attached.Taken,
    verdict: Verdict,
    notes: list[str],
    known: Callable[[], Surroundings | None] = lambda: None,
) -> str:
    """Write the bundle and its page; returns the folder, "" where they can be kept nowhere. What goes wrong becomes a
    note. `known` gives what is known of the run."""
    folder = _made(folder, notes)
    if not folder:
        return ""
    folder, fault = bundle.write(folder, taken.case, verdict, taken.evidence, case.stack_text, why=why.lines)
    notes += filter(None, [fault])
    if folder and (fault := pages.beside(folder, taken.case, verdict, known)):
        notes.append(fault)
    return folder


def _made(folder: str, notes: list[str]) -> str:
    """The folder for the evidence, which nobody else has made; elsewhere where that one cannot be, or "" for none."""
    try:
        files.make(folder)
        return folder
    except OSError as error:
        why = f"{folder} cannot be made: {error.strerror}"
    try:
        elsewhere = tempfile.mkdtemp(prefix="safelaunch-attach-")
    except OSError:
        notes.append(f"{why}; the evidence is not kept")
        return ""
    notes.append(f"{why}; the evidence is in {elsewhere}")
    return elsewhere


def choose(target: str, job: bool = False) -> Group:
    """The ranks of the one job that is meant by a pid or the id of a Slurm job.

    Raises:
        SafelaunchError: where that is no number, no such process, a process without ranks, or more jobs than one.
    """
    number = target.replace("_", "", 1)
    if not (number.isascii() and number.isdecimal()):
        raise misuse(f"{target} is neither a pid nor the id of a Slurm job", "see `safelaunch attach --help`")
    seen = ranks.look()
    pid = int(target) if target.isdecimal() and not job else 0
    found = ranks.of_process(pid, seen) if pid else []
    what = f"process {target}"
    if not found and (in_job := ranks.of_job(target, seen)):
        found, what = in_job, f"Slurm job {target}"
    elif pid and (in_job := [group for group in ranks.of_job(target, seen) if group.ranks != found[0].ranks]):
        jobs = [f"the ranks of {what}: {_pids(found)}", f"the ranks of Slurm job {target}: {_pids(in_job)}"]
        raise misuse_of(f"{target} is a process here and also a Slurm job", "say --job, or name a rank's pid", jobs)
    if not found:
        raise no_ranks(target, pid, seen, job)
    if len(found) > 1:
        jobs = [
            f"{names(one.rank for one in group.ranks)} of {group.world_size}: pid {group.ranks[0].seen.pid}, "
            f"{group.ranks[0].seen.command[:60]}"
            for group in found
        ]
        raise misuse_of(f"{len(found)} jobs run below {what}", "name the pid of a rank of the one that is meant", jobs)
    twice = sorted({one.rank for one in found[0].ranks if [o.rank for o in found[0].ranks].count(one.rank) > 1})
    if twice:
        pids = [f"rank {one.rank} is pid {one.seen.pid}" for one in found[0].ranks if one.rank in twice]
        raise misuse_of(f"several processes say that they are {names(twice)} of one job", "end the old job", pids)
    return found[0]


def _pids(found: Sequence[Group]) -> str:
    return ", ".join(f"pid {one.seen.pid}" for group in found[:2] for one in group.ranks[:4])


def no_ranks(target: str, pid: int, seen: Sequence[ranks.Seen], job: bool = False) -> SafelaunchError:
    """No rank of a distributed job was found where `safelaunch attach` was told to look.

    A rank is a Python process with RANK and WORLD_SIZE in its environment (torchrun, deepspeed, accelerate), or with
    the variables of Open MPI, MPICH or Slurm. It is looked for above and below the process that was named, or among all
    processes of this node that run in the Slurm job that was named. Variables that a program sets for itself (such as
    those of `torch.multiprocessing.spawn`) cannot be seen from outside.

    What to do: run it on the node on which the ranks run, and inside their container or outside of all; name the
    launcher or a rank. The environment of another user's processes needs that user or root (`sudo`).
    """
    process = procfs.read(pid) if pid else None
    hidden = [one for one in seen if one.environ is None and one.unread.endswith("user")]
    own = next((one for one in seen if one.pid == pid), None)
    because: tuple[str, ...] = ()
    remedy = "name the launcher or a rank on the node on which it runs; `ps -ef` shows their pids"
    if process is None:
        summary = f"there is no process {target}, and no process of this node runs in a Slurm job {target}"
        if job or not pid:
            summary = f"no rank of a Slurm job {target} runs on this node"
        remedy = "run it on a node on which the ranks run (`squeue -j ID`, `srun --overlap --jobid ID --pty bash`)"
    elif own is not None and own.environ is None:
        summary = f"the environment of process {target} cannot be read: {own.unread}"
        remedy = "run it as the user of the job, or as root (`sudo safelaunch attach ...`)"
    else:
        summary = f"process {target} is no rank of a distributed job, and none is below it"
        because = (
            "looked for a Python process with RANK and WORLD_SIZE, or the variables of Open MPI, MPICH or Slurm",
        )
        spawned = ranks.spawned(pid, seen)
        if spawned:
            pids = ", ".join(str(one.pid) for one in spawned[:8])
            because = (
                f"pid {pids} {'was' if len(spawned) == 1 else 'were'} started by Python's multiprocessing: "
                "if the ranks are these, what they set for themselves cannot be seen from outside",
            )
            remedy = f"`py-spy dump --pid {spawned[0].pid}` shows where one is; under safelaunch all would be known"
    if hidden:
        because = (*because, f"{len(hidden)} processes of other users could not be looked at (root can)")
    return SafelaunchError("SL006", summary, remedy, because=because, exit_code=codes.EXIT_USAGE)


def misuse_of(summary: str, remedy: str, because: Sequence[str]) -> SafelaunchError:
    """A target that means more than one thing."""
    return SafelaunchError("SL006", summary, remedy, because=tuple(because[:4]), exit_code=codes.EXIT_USAGE)


def unknown(group: Group, taken: attached.Taken, there: str = "attach there as well") -> list[str]:
    """What could not be known, and what would help; `there` is what to do on the other nodes."""
    lines = list(taken.notes)
    away = group.world_size - len(taken.case.ranks)
    if away > 0:
        lines.append(f"{away} of {group.world_size} ranks are not on this node: {there}")
    denied = [facts for facts in taken.case.ranks if any("ermission" in gap.reason for gap in facts.missing)]
    if denied:
        how = "run it as root (sudo), or give the container SYS_PTRACE"
        if attached.yama() > 0:
            how += f", or set kernel.yama.ptrace_scope to 0 (it is {attached.yama()})"
        lines.append(f"the stacks of {names(facts.rank for facts in denied)} may not be read: {how}")
    others: dict[str, list[int]] = {}
    for facts in taken.case.ranks:
        for gap in facts.missing if facts not in denied else ():
            if gap.source == "stack":
                others.setdefault(gap.reason, []).append(facts.rank)
    for reason, unseen in others.items():
        advice = ": `pip install py-spy`" if "not installed" in reason else ""
        lines.append(f"no stack of {names(unseen)} ({reason}){advice}")
    if not any(facts.collectives or facts.recorded for facts in taken.case.ranks):
        why = (
            "no Flight Recorder could be asked"
            if any(pipes.stem(one) for one in group.ranks)
            else "nothing records them"
        )
        lines.append(f"groups and numbers of collectives are not known ({why}): stacks and the kernel are all there is")
    return lines


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.5 <= seconds <= MOST_WAIT_S:
        raise misuse(f"--wait {text}: a number of seconds from 0.5 to {MOST_WAIT_S:.0f} is needed")
    return seconds


def _list(group: Group, as_json: bool) -> None:
    if as_json:
        output.show_json({"schema_version": SCHEMA_VERSION, "world_size": group.world_size, "ranks": _rows(group)})
        return
    lines = [line(f"{len(group.ranks)} of {group.world_size} ranks are on this node")]
    for one in group.ranks:
        local = f"local rank {one.identity.local_rank}" if one.identity.local_rank >= 0 else "local rank unknown"
        lines.append(line(f"rank {one.rank}  {local}  pid {one.seen.pid}  ", one.seen.command))
    output.show([*lines, *(line(f"rank {rank}  local rank {index}  has ended") for rank, index in group.ended)])


def _rows(group: Group) -> list[dict[str, object]]:
    return [
        {"rank": one.rank, "local_rank": one.identity.local_rank, "pid": one.seen.pid, "command": one.seen.command}
        for one in group.ranks
    ]


def _tell(
    group: Group, verdict: Verdict | None, notes: Sequence[str], folder: str, as_json: bool, palette: Palette
) -> None:
    if as_json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "world_size": group.world_size,
            "ranks": _rows(group),
            "notes": list(notes),
            "verdict": to_json(verdict),
            "bundle": folder,
        }
        output.show_json(document)
        return
    found = f"looked at {names(one.rank for one in group.ranks)} of {group.world_size} on this node"
    lines = [line(palette.paint("dim", "note"), ": ", note) for note in (found, *notes)]
    if verdict is None:
        lines.append(line(palette.paint("dim", "note"), ": the ranks have ended meanwhile: nothing to tell"))
    else:
        shown = dataclasses.replace(verdict, detected_after_s=None)
        lines += terminal.lines(shown, folder, palette=palette)
    output.show(lines)

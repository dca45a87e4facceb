"""`safelaunch dump [RUN|PID]`: what all ranks of a run do now, whether or not anything is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence

from safelaunch import codes
from safelaunch.cli import attach, bounded, output
from safelaunch.cli.running import name_of, running
from safelaunch.cli.trace import ranks_of, seconds
from safelaunch.codec import to_json
from safelaunch.diagnosis import now
from safelaunch.evidence import case, ranks
from safelaunch.evidence.ranks import Group
from safelaunch.model import SCHEMA_VERSION, Case, SafelaunchError, Verdict
from safelaunch.model.hosts import host_name, host_names
from safelaunch.printable import line, lines, named
from safelaunch.redaction import text as without_secrets
from safelaunch.report import verdict as terminal
from safelaunch.report.page.subject import names
from safelaunch.report.palette import Palette, for_stream
from safelaunch.run import pages
from safelaunch.run.judge import judged
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.top import written
from safelaunch.top.written import Started

USAGE = """\
usage: safelaunch dump [--ranks LIST] [--wait DURATION] [--output DIR] [--json] [--color WHEN] [RUN|PID]

Show what all ranks of a run on this node do now: stacks, calls, Flight Recorders, and what the kernel says. Nothing is
stopped or ended, and it need not be one of safelaunch's: PID is a rank of any job, or its launcher. It looks twice, and
says so where something is wrong.

RUN is a run directory, or the name of one below ./safelaunch_runs; without it, the run that was started last.

options:
  --ranks LIST       only these, such as 0,5 or 0-3, with their stacks (default: all, in a line or two)
  --wait DURATION    between the two looks (default: 1s); longer makes a verdict surer
  --output DIR       where the evidence and its page go (default: dumps/N of the run directory, or ./dump-PID-TIME)
  --json             print JSON
  --color WHEN       auto (the default), always or never
  -h, --help         show this text

exit codes: 0 it was looked at; 2 misuse, no rank was found on this node, or looking took more than it may
"""

FOLDER = "dumps"
AT_WORK = "SL502"  # the ranks make progress
STRANGERS = 4  # that are named


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code.

    Raises:
        SafelaunchError: for misuse, and where no rank is found.
    """
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    wait = seconds("--wait", arguments.wait)
    if not 0.2 <= wait <= attach.MOST_WAIT_S:
        raise misuse(f"--wait {arguments.wait}: 0.2s to {attach.MOST_WAIT_S:.0f}s is needed")
    if arguments.output and os.path.exists(arguments.output):
        raise misuse(f"--output {arguments.output} exists already", "name a folder that is not there yet")
    chosen = ranks_of(arguments.ranks)
    return bounded.run(lambda: _look(arguments, chosen, wait), wait + attach.LIMIT_S, attach.ROOM)


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch dump")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--ranks", default="")
    made.add_argument("--wait", default="1s")
    made.add_argument("--output", default="", metavar="DIR")
    made.add_argument("--json", action="store_true")
    made.add_argument("--color", default="auto", choices=("auto", "always", "never"))
    made.add_argument("target", nargs="?", default="", metavar="RUN|PID")
    return made


def _look(arguments: argparse.Namespace, chosen: tuple[int, ...] | None, wait: float) -> int:
    """Look at the ranks, and tell; returns the exit code."""
    notes: list[str] = []
    group, folder, run_dir = _found(arguments.target, notes)
    if chosen is not None:
        group, away = _only(group, chosen)
        notes += [f"{names(away)}: not on this node"] if away else []
    taken = attach.look(group, wait)
    known = group if chosen is None else dataclasses.replace(group, world_size=len(taken.case.ranks))
    notes += attach.unknown(known, taken, "run it there as well")
    verdict = _said(judged(taken.case, notes.append), taken.case)
    kept = attach.keep(
        arguments.output or folder, taken, verdict, notes, lambda: pages.surroundings(run_dir) if run_dir else None
    )
    shown = taken.case.ranks if chosen is not None else ()
    if arguments.json:
        _tell_json(taken.case, verdict, notes, kept)
        return codes.EXIT_OK
    _tell(taken.case, verdict, notes, kept, for_stream(sys.stdout, arguments.color))
    for facts in shown:
        output.show([line(f"rank {facts.rank}, pid {facts.pid}")])
        output.show(lines(without_secrets(case.stack_text(facts)).removesuffix("\n")))
    return codes.EXIT_OK


def _found(target: str, notes: list[str] | None = None) -> tuple[Group, str, str]:
    """The ranks that are meant, where their evidence goes, and the run directory, "" where it is no run of ours.
    `notes` learns of those that only say that they are."""
    if target.isascii() and target.isdecimal() and not os.path.exists(target):
        return attach.choose(target), f"dump-{target}-{time.strftime('%Y%m%d-%H%M%S')}", ""
    folders = running(target, os.environ)
    groups = ranks.groups(ranks.look())
    below = [(group, one, folder) for group in groups for one in group.ranks for folder in _above(one, folders)]
    mine = [(group, one, folder) for group, one, folder in below if _may_be_ours(one, folder)]
    strangers = [_stranger(one) for group, one, folder in below if not _may_be_ours(one, folder)]
    if mine:
        group, _, folder = mine[0]
        own = os.stat(folder).st_uid == os.geteuid()  # else somebody else can lead what we write elsewhere
        place = _free(folder) if own else f"dump-{name_of(folders)}-{time.strftime('%Y%m%d-%H%M%S')}"
        if notes is not None:
            notes += strangers[:STRANGERS]
        return dataclasses.replace(group, ranks=tuple(one for of, one, _ in mine if of is group)), place, folder
    hosts = sorted({host for folder in folders for host in _hosts(folder)})
    where = f"run it on {host_names(hosts)}" if hosts else "ask again once its ranks are there"
    remedy = f"{where}, inside the container of the job if there is one; or name the pid of a rank"
    summary = f"no rank of {named(name_of(folders))} is seen on this node"
    raise SafelaunchError("SL001", summary, remedy, because=tuple(strangers[:STRANGERS]), exit_code=codes.EXIT_USAGE)


def _above(one: ranks.RankProcess, folders: Sequence[str]) -> list[str]:
    """Of these folders of runs, that of the run of which a process says that it is a rank."""
    own = os.path.realpath(one.text("SAFELAUNCH_RANK_DIR"))
    return [folder for folder in folders if own.startswith(os.path.realpath(folder) + os.sep)]


def _may_be_ours(one: ranks.RankProcess, folder: str) -> bool:
    """Whether that is to be believed: any user's process may say so. A file system may give root's folders, or all of
    them, to another user than the one who runs the job (root_squash of NFS, CIFS)."""
    return one.owner() in (0, os.geteuid(), os.stat(folder).st_uid)


def _stranger(one: ranks.RankProcess) -> str:
    return f"pid {one.seen.pid} says that it is rank {one.rank} of this run, and is another user's: it is left out"


def _hosts(folder: str) -> list[str]:
    """Where the ranks of a run are, as it has written it down: in advice, that is."""
    said, _ = written.document(os.path.join(folder, "run.json"))
    mapping = written.fitting(Started, said or {})[0].mapping
    return [name for place in (mapping[-1].ranks if mapping else ()) if (name := host_name(place.host))]


def _free(folder: str) -> str:
    """`dumps/N` of a run directory, which nobody has made yet."""
    above = os.path.join(folder, FOLDER)
    try:
        taken = [int(name) for name in os.listdir(above) if name.isdecimal()]
    except OSError:
        taken = []
    return os.path.join(above, str(max(taken, default=0) + 1))


def _only(group: Group, chosen: Sequence[int]) -> tuple[Group, list[int]]:
    """The chosen ranks of a group, and those that are not on this node."""
    here = tuple(one for one in group.ranks if one.rank in chosen)
    away = sorted(set(chosen) - {one.rank for one in here})
    if not here:
        raise misuse(f"{names(chosen)} are not on this node", f"here are {names(one.rank for one in group.ranks)}")
    return dataclasses.replace(group, ranks=here, ended=()), away


def _said(verdict: Verdict, facts: Case) -> Verdict:
    """The verdict, and in the place of one that says that all is well, what the ranks do."""
    if verdict.code != AT_WORK:
        return verdict
    found = tuple(_lines(facts))
    remedy = "`safelaunch trace` shows what its steps are spent with"
    return dataclasses.replace(
        verdict, summary=_headline(facts), because=found if len(found) > 1 else (), remedy=remedy
    )


def _headline(facts: Case) -> str:
    """What most ranks do. A phase may be called by what a program was given, its keys among it."""
    return without_secrets(now.headline(facts))


def _lines(facts: Case) -> list[str]:
    return list(map(without_secrets, now.lines(facts)))


def _tell_json(facts: Case, verdict: Verdict, notes: Sequence[str], folder: str) -> None:
    output.show_json(
        {
            "schema_version": SCHEMA_VERSION,
            "headline": _headline(facts),
            "ranks": [
                {"rank": one.rank, "pid": one.pid, "step": one.step, "does": without_secrets(now.activity(one))}
                for one in facts.ranks
            ],
            "notes": list(notes),
            "verdict": to_json(terminal.without_secrets(verdict)),
            "bundle": folder,
        }
    )


def _tell(facts: Case, verdict: Verdict, notes: Sequence[str], folder: str, palette: Palette) -> None:
    found = [line(palette.paint("dim", "note"), ": ", note) for note in notes]
    does = _lines(facts)
    found.append(line(palette.paint("strong", _headline(facts))))
    if len(does) > 1:
        found += [line("  ", one) for one in does]
    if verdict.code == AT_WORK:
        if folder:
            found.append(line("evidence: ", folder, width=4096))
            found.append(line("page: ", os.path.join(folder, pages.NAME), width=4096))
    else:
        shown = terminal.without_secrets(dataclasses.replace(verdict, detected_after_s=None))
        found += terminal.lines(shown, folder, palette=palette)
    output.show(found)

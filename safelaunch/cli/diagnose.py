"""`safelaunch diagnose`: the verdict on what a job left behind, on whichever machine, without torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch import codes, limits, redaction
from safelaunch.cli import dump_notes, output, share
from safelaunch.codec import to_json
from safelaunch.codes import Trait, has
from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis import why as how
from safelaunch.diagnosis.notice import with_notice
from safelaunch.evidence.offline import archives, bundle, dump_case, dump_files, nodes
from safelaunch.evidence.offline.bundle import Recorded
from safelaunch.model import SCHEMA_VERSION, Case, SafelaunchError, Verdict
from safelaunch.model.hosts import host_names
from safelaunch.model.logs import LogFacts
from safelaunch.output import STANDARD_OUTPUT
from safelaunch.printable import Line, line
from safelaunch.report import verdict as terminal
from safelaunch.report.palette import Palette, for_stream
from safelaunch.run import messages
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.sizes import plural

USAGE = """\
usage: safelaunch diagnose [--signatures FILE] [--profile NAME] [--json] [--color auto|always|never]
                           [--why] [--html FILE] [--open] [--bundle FILE.tar.gz] PATH...

Tell who failed, or who hangs, from what a job left behind. Nothing of it is executed, torch is not needed.

PATH is any of
  a bundle            a run directory, an incident folder, its evidence/case.json, or a bundle.tar.gz (or .zip):
                      the rules are applied again; folders of several nodes of a run give one verdict
  a folder of dumps   of torch's Flight Recorder (torch >= 2.4, NCCL or Gloo, pickle or JSON), such as
                      nccl_trace_rank_0, comm_lib_trace_rank_0, or files with any stem and a rank number
  log files           of torchrun, Slurm or Kubernetes, or a folder of them; - is the standard input

options:
  --signatures FILE   known messages beside the shipped ones, may be repeated (`safelaunch explain SL290`)
  --profile NAME      a profile, or its path, that names such files (`signatures` in [diagnosis]); may be repeated
  --json              print JSON
  --why               also tell how each verdict came about: which rules were asked, what each lacked, and which waits
                      were seen by which source
  --html FILE         also write a report: one HTML file that needs no network, with secrets left out; - is the
                      standard output, and the verdict goes to stderr then
  --open              also show that report in the browser
  --bundle FILE       also pack the evidence of one run or incident into FILE (.tar.gz), with secrets left out, for a
                      colleague: `safelaunch diagnose FILE` says the same there; - as for --html
  --color WHEN        auto (the default), always or never
  -h, --help          show this text

Reading has limits of time and memory, by the size of what is read: 9 s and 448 MiB for up to 1 MiB.

exit codes: 0 there is a verdict, or nothing to tell; 2 misuse, or nothing that can be read; of log files alone also
            3 cannot tell; 4 nothing wrong was found
"""

DEPTH = 6  # folders below a PATH that are looked at for the size of what is read
SHARE = 0.5  # of the time that is left, for each incident but the last: the others are told as well
OF_LOGS = 10  # lines that say why, of a verdict on logs
RECOVERED = "SL501"  # what is written over a notice when progress has returned
Texts = Sequence[str]


@dataclass(frozen=True)
class Conclusion:
    """One verdict and what it rests on. `notes` are told before it; `verdict` is None where there is nothing to tell.
    `recorded` is what the run itself concluded, `case` and `logs` the evidence (not in the JSON that is printed)."""

    kind: str
    paths: tuple[str, ...]
    verdict: Verdict | None = None
    shown: str = ""
    notes: tuple[str, ...] = ()
    recorded: Verdict | None = None
    case: Case | None = None
    logs: LogFacts | None = None


@dataclass(frozen=True)
class Reader:
    """One kind of thing that can be diagnosed: whether a path is such, and the verdicts on all of those together."""

    name: str
    knows: Callable[[str], bool]
    judge: Callable[[Texts, Texts, Texts], list[Conclusion]]


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse and for what cannot be read."""
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    if not arguments.paths:
        raise misuse("nothing to diagnose was named", "see `safelaunch diagnose --help`")
    subject = share.check(arguments.bundle, arguments.paths) if arguments.bundle is not None else None
    piped = [arguments.html, arguments.bundle].count(STANDARD_OUTPUT)
    if piped + arguments.json > 1:
        raise misuse("more than one result would go to the standard output", "name a file for the others")
    try:
        with limits.limited(limits.size_of(arguments.paths, DEPTH)):
            page, code = _answer(arguments, subject)
    except limits.LimitError as error:
        raise unreadable(f"{', '.join(arguments.paths[:3])}: {error}") from None
    if page:
        share.tell_of_page(page, show=arguments.open)
    return code


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch diagnose")
    made.add_argument("-h", "--help", action="store_true")
    for option, what in (("--signatures", "FILE"), ("--profile", "NAME")):
        made.add_argument(option, action="append", default=[], metavar=what)
    for switch in ("--json", "--why", "--open"):
        made.add_argument(switch, action="store_true")
    made.add_argument("--html", metavar="FILE")
    made.add_argument("--bundle", metavar="FILE")
    made.add_argument("--color", default="auto", choices=("auto", "always", "never"))
    made.add_argument("paths", nargs="*")
    return made


def _answer(arguments: argparse.Namespace, subject: share.Subject | None) -> tuple[str, int]:
    """Read, conclude and print; returns the path of the page that was written, if one was, and the exit code."""
    piped = [arguments.html, arguments.bundle].count(STANDARD_OUTPUT)
    found = conclusions(arguments.paths, arguments.signatures, _of_profiles(arguments.profile))
    if arguments.json:
        told = [_document(one, why=arguments.why) for one in found]
        output.show_json({"schema_version": SCHEMA_VERSION, "conclusions": told})
    else:
        stream = sys.stderr if piped else sys.stdout
        palette = for_stream(stream, arguments.color)
        for at, one in enumerate(found):
            reasons = _reasons(one, palette) if arguments.why else []
            output.show([*([line()] if at else []), *_lines(one, palette), *reasons], stream)
        stream.flush()
    page = share.page(arguments.html, found) if arguments.html is not None or arguments.open else ""
    if subject is not None:
        share.pack(arguments.bundle, subject)
    return page, _exit_code(found)


def _exit_code(found: Sequence[Conclusion]) -> int:
    """Of logs alone, a program that asks learns whether there is a verdict: its words are for people."""
    verdict = found[0].verdict
    if len(found) > 1 or found[0].kind != "logs" or verdict is None:
        return codes.EXIT_OK
    if has(verdict.code, Trait.UNKNOWN):
        return codes.EXIT_CANNOT_TELL
    return codes.EXIT_NOTHING_WRONG if has(verdict.code, Trait.NOTHING_WRONG) else codes.EXIT_OK


def conclusions(paths: Texts, signatures: Texts = (), further: Texts = ()) -> list[Conclusion]:
    """The verdicts on all that was named: one for each kind of thing, and one for each incident of bundles.

    `signatures` are files of known messages that come before what a run has written down, `further` those that come
    after it.
    """
    by_reader: dict[str, list[str]] = {}
    for path in paths:
        if path != "-" and not os.path.exists(path):
            raise unreadable(f"there is no file or folder {path}")
        reader = next(reader for reader in READERS if reader.knows(path))
        by_reader.setdefault(reader.name, []).append(path)
    found: list[Conclusion] = []
    faults: list[SafelaunchError] = []
    for reader in READERS:
        named = by_reader.get(reader.name, [])
        try:
            found += reader.judge(named, signatures, further) if named else []
        except SafelaunchError as error:  # what is of another kind may be whole
            faults.append(error)
            # A damaged dump, or an empty file that is called like one, lies beside logs that are whole.
            found += _beside(named, signatures, further)
    if not found:
        raise faults[0]
    said = ((fault.diagnostic.summary, *fault.diagnostic.because[:1]) for fault in faults)
    notes = tuple(": ".join(words) for words in said)
    return [replace(found[0], notes=(*notes, *found[0].notes)), *found[1:]]


def _of_profiles(names: Texts) -> tuple[str, ...]:
    """The files of signatures that profiles name: those of the command line, else those of the environment."""
    from safelaunch.settings import kinds
    from safelaunch.settings.resolve import resolve_profiles

    named = list(names) or kinds.NAMES.read(os.environ.get("SAFELAUNCH_PROFILE", ""))
    return messages.files(resolve_profiles(named, os.environ).table("diagnosis")) if named else ()


def unreadable(summary: str, because: Sequence[str] = ()) -> SafelaunchError:
    """Nothing that was named can be diagnosed: it is not there, it is damaged, or it is of a kind that is not known.

    What is known: bundles of safelaunch (a run directory, an incident folder, case.json, bundle.tar.gz), dumps of
    torch's Flight Recorder whose names end in their rank (nccl_trace_rank_3), and plain log files. Where some files of
    many are damaged, the verdict is made from the rest, and says which they were. Files are never executed.
    """
    remedy = "name a bundle, a folder of Flight Recorder dumps, or log files; see `safelaunch diagnose --help`"
    return SafelaunchError("SL005", summary, remedy, because=tuple(because), exit_code=codes.EXIT_USAGE)


# ------------------------------------------------------------------------------------------------------- bundles


def _is_bundle(path: str) -> bool:
    if not bundle.knows(path):
        return False
    if os.path.isfile(path):
        return True
    # A run that left no incident, but dumps: those tell more.
    run = bundle.read(path)
    return bool(run.incidents or run.unreadable) or (run.exit_code is not None and not _is_dumps(path))


def _bundles(paths: Texts, signatures: Texts = (), further: Texts = ()) -> list[Conclusion]:
    incidents: list[Recorded] = []
    found: list[Conclusion] = []
    damaged: list[str] = []
    for path in paths:
        try:
            run = bundle.read(path)
        except archives.UnreadableError as error:
            damaged.append(f"{path}: {error}")
            continue
        damaged += run.unreadable
        incidents += _classified(run.incidents, signatures, further)
        if not run.incidents:
            found += [Conclusion("bundle", (path,), verdict, notes=run.notes) for verdict in run.verdicts]
            unclear = run.unended or run.exit_code
            if unclear and not run.verdicts and (told := _beside([path], signatures, further)):
                found += told
            elif not run.verdicts and not run.unreadable:
                how = f"ended with exit code {run.exit_code} and " if run.exit_code is not None else ""
                found.append(Conclusion("bundle", (path,), notes=(f"{path} {how}holds no incident: nothing to tell",)))
    parts = nodes.together(incidents)
    for number, part in enumerate(parts, 1):
        try:
            with limits.share(SHARE if number < len(parts) else 1.0):
                found += _of_nodes(part)
        except limits.LimitError:
            if len(parts) == 1:
                raise
            damaged += [f"{one.path}: it takes too long, and others are to be read as well" for one in part]
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            # JSON that has the shape of a case may hold anything; ours has been through all rules.
            damaged += [f"{one.path}: it holds no case that makes sense ({str(error)[:80]})" for one in part]
    if not found:
        raise unreadable(f"nothing in {', '.join(paths)} can be read", damaged[:4])
    notes = tuple(f"left out, because it cannot be read: {line}" for line in damaged)
    return [replace(found[0], notes=(*notes, *found[0].notes)), *found[1:]]


def _classified(incidents: Sequence[Recorded], signatures: Texts, further: Texts) -> list[Recorded]:
    """Incidents with what is known of the messages of their exceptions."""
    if not any(facts.error for one in incidents for facts in one.case.ranks):
        return list(incidents)
    named = [one for one in messages.load(signatures) if one.own] if signatures else []
    known = messages.load(further)
    return [
        replace(one, case=messages.classified(messages.with_own_advice(one.case, known), known, named))
        for one in incidents
    ]


def _of_nodes(part: Sequence[Recorded]) -> list[Conclusion]:
    paths = tuple(one.path for one in part)
    if (said := nodes.concluded_over_more(part)) is not None:
        notes = (
            f"as the run concluded it over its {plural(said.nodes, 'node')}; here is what {_hosts(part)} left of it",
        )
        return [Conclusion("bundle", paths, said, paths[0], notes, said, nodes.merged(part))]
    if len(part) == 1:
        return [_of_one(part[0])]
    if any(one.case.incident.kind == "exit" for one in part) and not nodes.comparable(part):
        note = "the clocks of these nodes cannot be compared (no agent.jsonl beside): one verdict for each node"
        single = [_of_one(one) for one in part]
        return [replace(single[0], notes=(note, *single[0].notes)), *single[1:]]
    case = nodes.merged(part)
    verdict = diagnose(case)
    hosts = {facts.rank: one.case.host for one in part for facts in one.case.ranks}
    if verdict.culprit_ranks:
        verdict = replace(verdict, host=hosts[verdict.culprit_ranks[0]])
    seen = f"one verdict over {len(part)} nodes ({_hosts(part)})"
    return [Conclusion("bundle", paths, verdict, notes=(seen,), case=case)]


def _hosts(part: Sequence[Recorded]) -> str:
    return host_names([one.case.host for one in part])


def _of_one(incident: Recorded) -> Conclusion:
    """The verdict on one incident, and, where it is another one than the run itself came to, that one beside it."""
    verdict, said = with_notice(diagnose(incident.case), incident.notice), incident.verdict
    notes: tuple[str, ...] = ()
    if said is not None and said.code == RECOVERED:
        notes = (f"before progress returned it was told: {terminal.headline(verdict)}",)
        verdict = said
    elif said is not None and _gist(said) != _gist(verdict):
        notes = (f"the run itself concluded {terminal.headline(said)} (confidence {said.confidence})",)
    at = said or incident.notice
    if at is not None:
        verdict = replace(verdict, detected_after_s=at.detected_after_s, concluded_after_s=at.concluded_after_s)
    return Conclusion("bundle", (incident.path,), verdict, incident.path, notes, said or incident.notice, incident.case)


def _gist(verdict: Verdict) -> object:
    verdict = terminal.without_secrets(verdict)  # as it was written
    return (verdict.code, verdict.culprit_ranks, verdict.location, verdict.summary, verdict.confidence)


# --------------------------------------------------------------------------------------------------------- dumps


def _is_dumps(path: str) -> bool:
    return path != "-" and bool(dump_files.find([path])[0])


def _dumps(paths: Texts, signatures: Texts = (), further: Texts = ()) -> list[Conclusion]:
    files, others = dump_files.find(paths)
    dumps = dump_files.read_all(files)
    if all(dump.unreadable for dump in dumps):
        reasons = [f"{dump.path}: {dump.unreadable}" for dump in dumps]
        raise unreadable(f"none of {len(dumps)} Flight Recorder dumps can be read", reasons[:4])
    case = dump_case.build(dumps)
    notes = tuple(dump_notes.lines(case, dumps, others))
    # Why a rank did not come, the dumps do not say; logs beside them may.
    beside = _beside(paths, signatures, further, [file.path for file in files])
    why = [one for one in beside if one.verdict and one.verdict.kind != "hang"]
    return [*why, Conclusion("dumps", tuple(paths), diagnose(case), notes=notes, case=case)]


# ---------------------------------------------------------------------------------------------------------- logs


def _beside(paths: Texts, signatures: Texts, further: Texts, without: Texts = ()) -> list[Conclusion]:
    """The verdict on logs in folders in which something else was looked for, and found: where it says what failed."""
    from safelaunch.diagnosis.logs import says_why

    folders = [path for path in paths if os.path.isdir(path)]
    try:
        found = _logs(folders, signatures, further, without) if folders else []
    except SafelaunchError:
        return []
    return [one for one in found if one.verdict is not None and says_why(one.verdict)]


def _logs(paths: Texts, signatures: Texts = (), further: Texts = (), without: Texts = ()) -> list[Conclusion]:
    from safelaunch.diagnosis import logs as rules
    from safelaunch.evidence import logs

    facts = logs.read(paths, logs.load([*signatures, *further]), without)
    if not facts.files:
        raise unreadable(f"{', '.join(paths)}: no bundle, no Flight Recorder dump and no log")
    verdict = rules.diagnose(facts)
    notes = [f"{plural(file.torn, 'line')} of {file.path} could not be read" for file in facts.files if file.torn][:4]
    told = verdict.because
    unread = [one for one in facts.files if one.unreadable and not any(text.startswith(one.path) for text in told)]
    notes += [f"{file.path} could not be read as a whole: {file.unreadable}" for file in unread[:4]]
    notes += [f"{plural(len(unread) - 4, 'more file')} could not be read"] if unread[4:] else []
    return [Conclusion("logs", tuple(paths), verdict, notes=tuple(notes), logs=facts)]


# The first that knows a path reads it. Logs come last: any file may be one.
READERS = (
    Reader("bundle", _is_bundle, _bundles),
    Reader("dumps", _is_dumps, _dumps),
    Reader("logs", lambda path: True, _logs),  # noqa: ARG005
)


def _lines(one: Conclusion, palette: Palette) -> list[Line]:
    notes = [line(palette.paint("dim", "note"), ": ", note) for note in one.notes]
    most = terminal.BECAUSE if one.logs is None else OF_LOGS
    verdict = one.verdict
    return notes if verdict is None else [*notes, *terminal.lines(verdict, one.shown, palette=palette, most=most)]


def _reasons(one: Conclusion, palette: Palette) -> list[Line]:
    """How a verdict came about; of logs, that is what it says itself."""
    if one.case is None or one.verdict is None:
        return []
    first, *rest = how.lines(one.case)
    return [line(palette.paint("dim", "why"), ": ", first), *(line("     ", text) for text in rest)]


def _document(one: Conclusion, *, why: bool) -> dict[str, Any]:
    told = {key: item for key, item in vars(one).items() if key not in ("case", "logs")}
    if why and one.case is not None:
        told["why"] = how.lines(one.case)
    return dict(redaction.document(to_json(told)))

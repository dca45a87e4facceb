"""`safelaunch check`: look at this node as a launch would, and start nothing."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping

from safelaunch import codes, durations
from safelaunch.cli import others, output
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION, Finding, Job, PreflightReport, SafelaunchError, Severity
from safelaunch.preflight import CHECKS, between, node_history, runner
from safelaunch.preflight.between import Judge
from safelaunch.preflight.check import Check
from safelaunch.preflight.local_world_size import UncountedError, ranks_here, uses_gpu
from safelaunch.preflight.machine import cgroup
from safelaunch.preflight.machine.host import Host
from safelaunch.printable import line
from safelaunch.report import doctor
from safelaunch.report.palette import for_stream
from safelaunch.run.node import STATIC_PORT, Terms, terms
from safelaunch.settings.resolve import resolve_profiles
from safelaunch.settings.spelling import did_you_mean
from safelaunch.sizes import plural

# Slurm drains a node whose Prolog takes longer than MessageTimeout, by default 10 s, and kills HealthCheckProgram
# after 60 s (slurm.conf(5)).
PROLOG_DEADLINE_S = 8.0
ALL: tuple[Check | Judge, ...] = (*CHECKS, *between.JUDGES)


def run(argv: list[str]) -> int:
    """Check the node and print what was found. Returns the exit code: 0, or 69 for a node that cannot run the job.

    Raises SafelaunchError for a bad profile or a bad option.
    """
    if "--prolog" in argv:
        return _prolog(argv)
    options = parser().parse_args(argv)
    if options.list:
        output.show_text("\n".join(_listing()))
        return codes.EXIT_OK
    return _print(*_examine(options, os.environ), options)


def _examine(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[PreflightReport, str]:
    """The report on this node, and what it was checked for, in words."""
    others.settle(options, environ)
    layers = resolve_profiles(options.profile, environ)
    asked = terms(*map(layers.table, ("limits", "preflight", "nodes")))
    mode = layers.table("preflight").get("mode")
    full = options.full or (mode is not None and mode.value == "full")
    checks, judges = _selected(options, full=full)
    host = Host(Job(nproc=1), environ=environ, wanted=asked.wanted)
    begin = host.monotonic()
    deadline_s = _deadline_s(options, asked, full=full)
    host.until = begin + deadline_s
    uncounted: tuple[Finding, ...] = ()
    try:
        host = host.for_job(_job(options, host, options.nproc_per_node))
    except SafelaunchError as error:
        if error.exit_code != codes.EXIT_REFUSED:
            raise
        # The node cannot even say how many ranks it would run. All else is looked at as for one rank.
        severity: Severity = "unchecked" if isinstance(error, UncountedError) else "error"
        if severity == "unchecked" or error.diagnostic.code != "SL108":  # its own check tells that
            uncounted = (dataclasses.replace(error.diagnostic, severity=severity, check="gpu-count"),)
        host = host.for_job(_job(options, host, "1"))
    report = runner.run(
        host,
        checks=checks,
        deadline_s=deadline_s,
        severity=asked.severity,
        full=full,
        begin=begin,
    )
    report = dataclasses.replace(report, findings=(*uncounted, *report.findings))
    if node_history.is_full_pass(report):
        node_history.read(host).passed(report)
    meeting = others.meeting(options)
    if meeting is not None and judges:
        left = _deadline_s(options, asked, full=True) - (host.monotonic() - begin)
        pairs = full or any(judge.full_only for judge in judges)
        chosen = judges if options.only else [judge for judge in between.JUDGES if judge in judges or judge.full_only]
        report = between.extend(report, host, meeting, left, asked.severity, chosen, full=pairs)
    if not report.findings:
        raise SafelaunchError(
            "SL001",
            "no check was made: what was chosen is switched off, or needs several nodes",
            "`safelaunch check --list` shows the checks; those of group `nodes` need --nnodes and --rdzv-endpoint",
            exit_code=codes.EXIT_USAGE,
        )
    device = "GPUs" if host.job.uses_gpu else "CPU"
    return report, f"{plural(host.job.nproc, 'rank')} on {device}"


def _selected(options: argparse.Namespace, *, full: bool) -> tuple[tuple[Check, ...], tuple[Judge, ...]]:
    try:
        chosen = runner.select(ALL, full=full, only=options.only, skip=options.skip)
        checks = tuple(check for check in chosen if isinstance(check, Check))
        return checks, tuple(judge for judge in chosen if isinstance(judge, Judge))
    except ValueError as error:
        word = str(error)
        known = {word for check in ALL for word in (check.code, check.name, check.group)}
        raise SafelaunchError(
            "SL001",
            f"no check is called {word}",
            did_you_mean(word, known) or "`safelaunch check --list` shows the codes, names and groups",
            exit_code=codes.EXIT_USAGE,
        ) from None


def _deadline_s(options: argparse.Namespace, asked: Terms, *, full: bool) -> float:
    if options.deadline is not None:
        return float(options.deadline)
    return PROLOG_DEADLINE_S if options.prolog and not full else asked.deadline(full=full)


def _print(report: PreflightReport, job: str, options: argparse.Namespace) -> int:
    if options.json:
        document = {"schema_version": SCHEMA_VERSION, "refused": report.refused, **to_json(report)}
        output.show_json(document, 2)
    else:
        palette = for_stream(sys.stdout, options.color)
        output.show(doctor.render(report, job=job, verbose=options.verbose, palette=palette))
    return codes.EXIT_REFUSED if report.refused else codes.EXIT_OK


# ----------------------------------------------------------------------------------------------- prolog


def _prolog(argv: list[str]) -> int:
    """One line for a drain reason on stdout where the node is bad, and nothing where it is not.

    A fault of safelaunch itself, or of its options, drains no node: it is told on stderr, and the exit code is 0.
    """
    try:
        options = parser().parse_args(argv)
        environ = _prolog_environ(os.environ)
        named = "CUDA_VISIBLE_DEVICES" in environ
        of_others = () if named else ("SL109",)  # GPUs that other jobs on the node hold
        options.skip = [*options.skip, *codes.all_with(codes.Trait.OF_ONE_RUN), *of_others]
        report, _ = _examine(options, environ)
    except SystemExit:  # argparse has told what is wrong, or has printed the help
        return codes.EXIT_OK
    except Exception as error:
        summary = error.diagnostic.summary if isinstance(error, SafelaunchError) else repr(error)
        output.show([line("safelaunch: this node was not checked: ", summary)], sys.stderr)
        return codes.EXIT_OK
    code = codes.EXIT_REFUSED if report.refused else codes.EXIT_OK
    try:
        if options.json:
            _print(report, "", options)
        elif report.refused:
            output.show([doctor.reason(report)])
        sys.stdout.flush()
    except OSError:  # the reason is lost, and the node stays as bad as it is
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _prolog_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Slurm's Prolog names the GPUs of the job in a variable of its own; those of other jobs are busy by right."""
    given = environ.get("SLURM_JOB_GPUS")
    found = dict(environ)
    if given and "CUDA_VISIBLE_DEVICES" not in environ:
        found["CUDA_VISIBLE_DEVICES"] = given
    return found


# ---------------------------------------------------------------------------------------------- options


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(
        prog="safelaunch check",
        description="Check this node as a launch would, and start nothing.",
        epilog="Exit code 0: the node can run the job; 69: it cannot. `safelaunch explain CODE` tells more. Hide "
        "the GPUs (CUDA_VISIBLE_DEVICES=) to check a node that has some for a job that uses none.",
    )
    add = made.add_argument
    add("--full", action="store_true", help="also put the node to work: GPUs, memory, real collectives (seconds)")
    add("--only", type=_words, action="extend", default=[], metavar="CHECK,...", help="codes, names or groups")
    add("--skip", type=_words, action="extend", default=[], metavar="CHECK,...", help="codes, names or groups")
    add("--list", action="store_true", help="list the checks and stop")
    add("--deadline", type=duration, metavar="DURATION", help="for everything together, such as 20s")
    add("--json", action="store_true", help="print the report as JSON")
    add(
        "--prolog",
        action="store_true",
        help="for Slurm's Prolog and init containers: nothing, or one line that says why the node is bad",
    )
    add(
        "--nproc-per-node",
        "--nproc_per_node",
        default="auto",
        metavar="N|auto|gpu|cpu",
        help="ranks to check for; auto (the default): one per GPU, or per CPU where there is none",
    )
    others.add_options(made)
    add(
        "--run-dir",
        default="safelaunch_runs",
        metavar="DIR",
        help="where run directories will be made (default ./safelaunch_runs)",
    )
    add("--profile", action="append", default=[], metavar="NAME|PATH", help="settings to check by; repeatable")
    add("-v", "--verbose", action="store_true", help="list the checks that passed, too")
    add("--color", choices=("auto", "always", "never"), default="auto", help="when to colour the output")
    return made


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def duration(text: str) -> float:
    seconds = durations.seconds(text)
    if seconds == 0:
        raise ValueError(text)
    return seconds


def _listing() -> list[str]:
    names, groups = (max(len(getattr(check, field)) for check in ALL) for field in ("name", "group"))
    return [
        f"{check.code}  {check.name:<{names}}  {check.group:<{groups}}  {'full   ' if check.full_only else 'always '}"
        f"  {codes.CATALOGUE[check.code].title}"
        for check in ALL
    ]


def _job(options: argparse.Namespace, host: Host, asked: str) -> Job:
    gpus = uses_gpu(asked, host)
    nproc = ranks_here(asked, host)
    if asked == "auto" and not gpus:
        # Nobody has asked for so many ranks: a container with a part of the machine's CPUs is not to be refused for it.
        quota = cgroup.cpus(host.root)
        nproc = min(nproc, max(1, int(quota[0]))) if quota is not None else nproc
    return Job(
        nproc=nproc,
        min_nodes=options.nnodes,
        max_nodes=options.nnodes,
        master_addr=options.master_addr,
        node_rank=options.node_rank or 0,
        master_port=options.master_port if not options.node_rank else None,  # the first node listens, wherever it is
        port_shared=options.nnodes > 1 and (bool(options.rdzv_endpoint) or options.node_rank is None),
        endpoint_port=options.master_port or (STATIC_PORT if options.master_addr else None),
        uses_gpu=gpus,
        nproc_asked=asked,
        run_dir=options.run_dir,
    )

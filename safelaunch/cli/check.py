"""`safelaunch check`: look at this node as a launch would, and start nothing."""

from __future__ import annotations

import argparse
import json
import os
import sys

from safelaunch import codes
from safelaunch.cli.node import DEADLINE_S, FULL_DEADLINE_S, wanted_by
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION, Job, PreflightReport, SafelaunchError
from safelaunch.preflight import runner
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.sizes import plural
from safelaunch.preflight.shape import ranks_here, uses_gpu
from safelaunch.report import doctor
from safelaunch.report.palette import for_stream
from safelaunch.settings.resolve import resolve_profiles


def run(argv: list[str]) -> int:
    """Check the node and print what was found. Returns the exit code: 0, or 69 for a node that cannot run the job.

    Raises SafelaunchError for a bad profile or a bad option.
    """
    options = _parser().parse_args(argv)
    layers = resolve_profiles(options.profile, os.environ)
    preflight = {key: value.value for key, value in layers.table("preflight").items()}
    wanted = wanted_by(layers.table("limits"), layers.table("preflight"))
    full = options.full or preflight.get("mode") == "full"
    host = Host(Job(nproc=1), wanted=wanted)
    begin = host.monotonic()
    try:
        host = host.for_job(_job(options, host))
    except SafelaunchError as error:
        if error.exit_code != codes.EXIT_REFUSED:
            raise
        # The node cannot even say how many ranks it would run: that is the answer.
        refusal = PreflightReport((error.diagnostic,), host.name(), host.monotonic() - begin, full)
        return _print(refusal, options, "this job")
    report = runner.run(
        host,
        full=full,
        deadline_s=preflight.get("deadline") or (FULL_DEADLINE_S if full else DEADLINE_S),
        severity=preflight.get("severity", {}),
    )
    device = "GPUs" if host.job.uses_gpu else "CPU"
    return _print(report, options, f"{plural(host.job.nproc, 'rank')} on {device}")


def _print(report: PreflightReport, options: argparse.Namespace, job: str) -> int:
    if options.json:
        document = {"schema_version": SCHEMA_VERSION, "refused": report.refused, **to_json(report)}
        print(json.dumps(document, indent=2))
    else:
        palette = for_stream(sys.stdout, options.color)
        print(*doctor.render(report, job=job, verbose=options.verbose, palette=palette), sep="\n")
    return codes.EXIT_REFUSED if report.refused else codes.EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="safelaunch check",
        description="Check this node as a launch would, and start nothing.",
        epilog="Exit code 0: the node can run the job; 69: it cannot. `safelaunch explain CODE` tells more. Hide "
        "the GPUs (CUDA_VISIBLE_DEVICES=) to check a node that has some for a job that uses none.",
    )
    add = parser.add_argument
    add("--full", action="store_true", help="also run real collectives between one process per rank (seconds)")
    add("--json", action="store_true", help="print the report as JSON")
    add(
        "--nproc-per-node",
        "--nproc_per_node",
        default="auto",
        metavar="N|auto|gpu|cpu",
        help="ranks to check for; auto (the default): one per GPU, or per CPU where there is none",
    )
    add("--nnodes", type=int, default=1, metavar="N", help="nodes of the job (default 1)")
    add("--master-addr", "--master_addr", default="", metavar="ADDR", help="address of the first node")
    add("--master-port", "--master_port", type=int, metavar="PORT", help="port to be used there")
    add("--run-dir", default="runs", metavar="DIR", help="where run directories will be made (default ./runs)")
    add("--profile", action="append", default=[], metavar="NAME|PATH", help="settings to check by; repeatable")
    add("-v", "--verbose", action="store_true", help="list the checks that passed, too")
    add("--color", choices=("auto", "always", "never"), default="auto", help="when to colour the output")
    return parser


def _job(options: argparse.Namespace, host: Host) -> Job:
    asked = options.nproc_per_node
    return Job(
        nproc=ranks_here(asked, host),
        min_nodes=options.nnodes,
        max_nodes=options.nnodes,
        master_addr=options.master_addr,
        master_port=options.master_port,
        uses_gpu=uses_gpu(asked, host),
        nproc_asked=asked,
        run_dir=options.run_dir,
    )

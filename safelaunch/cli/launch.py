"""`safelaunch [options] script.py args...`: plan, check, run, report."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import sys
import time
from typing import Any, NoReturn

from safelaunch import __version__
from safelaunch.cli import output
from safelaunch.codec import to_json
from safelaunch.launch.signals import Signals
from safelaunch.model import SCHEMA_VERSION, LaunchPlan, SafelaunchError, Settings, Verdict
from safelaunch.printable import whole
from safelaunch.settings import options

MAX_SLOTS = 256  # black box slots where the number of ranks is for the agent to find out (`gpu`, `auto`)


def run(argv: list[str]) -> int:
    """Run one job; returns the exit code."""
    # First of all, so that a signal works from the first moment on, also as PID 1 of a container.
    signals = Signals()
    command_line = options.parse(argv, os.environ)
    if command_line.request != "run":
        return _answer(command_line)
    # What `--help` has no use for is loaded from here on.
    from safelaunch.launch import plan as planning
    from safelaunch.settings import resolve

    settings = resolve.settle(command_line, os.environ)
    if settings["dry_run"]:
        from safelaunch.cli.dry_run import show

        return show(settings)
    if sys.platform != "linux":
        # Death signals, subreapers and /proc carry the promises of a run; without them it would be torchrun.
        raise SafelaunchError("SL001", "safelaunch runs jobs on Linux only", "use torchrun here", exit_code=2)
    if not os.path.exists("/proc/self/stat"):
        _leave_to_torchrun(settings)
    signals.treat_as_terminating(str(settings["signals_to_handle"]).split(","))
    from safelaunch.cli import launch_facts
    from safelaunch.settings import computed, warm

    known = launch_facts.known(settings, os.environ, socket.gethostname())
    plan = planning.build(settings, os.environ)
    settings = computed.fill(settings, {**known, "run_dir": plan.run_dir, "run_id": plan.run_id})
    plan = dataclasses.replace(plan, env=planning.added(settings))
    warmth = warm.start(settings, {**os.environ, **plan.env})
    if not isinstance(warmth, str):
        plan = dataclasses.replace(plan, warm=warmth)
    return _supervise(settings, plan, signals, argv, warmth if isinstance(warmth, str) else "")


def _answer(asked: options.CommandLine) -> int:
    if asked.request == "version":
        output.show_text(f"safelaunch {__version__}")
    elif asked.request == "completion":
        from safelaunch.settings import completion

        output.show_script(completion.script(asked.shell))
    else:
        from safelaunch.settings.usage import help_text

        output.show_text(help_text())
    return 0


def _leave_to_torchrun(settings: Settings) -> NoReturn:
    """Become torchrun, with the same options and environment. Without /proc no process can be told from a later one
    with its pid: nothing could be watched or ended without the danger of hitting a stranger's."""
    from safelaunch.cli import dry_run
    from safelaunch.launch import plan as planning

    left_out = dry_run.open_values(settings)
    added = {name: value for name, value in planning.added(settings).items() if name not in left_out}
    environ = {name: value for name, value in os.environ.items() if name not in settings.unset} | added
    told = "safelaunch: warning[SL902]: there is no /proc: torchrun runs this job, without checks, watch and verdict"
    output.show([whole(told, f", and without {', '.join(left_out)}" if left_out else "")], sys.stderr)
    sys.stderr.flush()
    command = [sys.executable, "-m", "torch.distributed.run", *dry_run.arguments(settings)]
    os.execve(sys.executable, command, environ)


def _supervise(settings: Settings, plan: LaunchPlan, signals: Signals, argv: list[str], cold: str) -> int:
    from safelaunch.launch.tree import Tree

    path, missing = _black_box(settings, plan)
    tree = Tree(plan, signals)
    tree.start(path)
    # While torch is imported there.
    from safelaunch.cli.stages import Run
    from safelaunch.launch import scratch
    from safelaunch.launch.supervisor import Supervisor

    scratch.sweep_aside()
    job = Run(settings, plan, path)
    for line in (*plan.warnings, *_write_run(settings, plan, argv)):
        job.say(line)
    for note in settings.notes:
        job.finding(note)
    if missing:
        job.say(missing)
    if cold:
        job.say(f"cold start: {cold}")
    started = time.time()
    outcome = Supervisor(plan, signals, job.stages(), tree).run()
    job.start.wait()
    for group in outcome.groups[-1:]:
        job.listen(group, last=True)  # what ranks that ended soon had to say
    _clear(plan)
    result = {
        "schema_version": SCHEMA_VERSION,
        "run_id": plan.run_id,
        "run_dir": plan.run_dir,
        "exit_code": outcome.exit_code,
        "interrupted": outcome.interrupted,
        "started": started,
        "elapsed_s": round(time.time() - started, 3),
        "attempts": to_json(outcome.groups),
        "findings": to_json([*(outcome.report.findings if outcome.report else ()), *job.heard]),
        "verdicts": to_json([*job.hangs.slow, *job.slow.verdicts, *outcome.verdicts]),
        "abandoned_pids": list(outcome.abandoned),
    }
    for line in job.slow.summary():
        job.say(f"the run was slow: {line}")
    if outcome.abandoned:
        job.say(f"processes that even SIGKILL does not end (stuck in the kernel): {list(outcome.abandoned)}")
    if outcome.verdicts and not outcome.succeeded:
        folder = job.bundles.get(len(outcome.verdicts) - 1, "")
        _print_verdict(outcome.verdicts[-1], folder, outcome.exit_code, job)
    elif outcome.interrupted is not None and (told := job.hangs.last_word()) is not None:
        _print_verdict(told, job.hangs.folder, outcome.exit_code, job)  # why somebody had enough of it
    stall_s = output.STALL_S if outcome.interrupted is None else output.INTERRUPTED_STALL_S
    _write_result(result, settings, plan, job, stall_s)
    job.remember(_last_code(outcome))
    job.reports.write()
    job.finish_speaking(stall_s)
    return outcome.exit_code


def _last_code(outcome: Any) -> str:
    """The code with which a run ended; empty for success."""
    if outcome.report is not None and outcome.report.refused:
        return next(str(finding.code) for finding in outcome.report.findings if finding.severity == "error")
    return str(outcome.verdicts[-1].code) if outcome.verdicts and not outcome.succeeded else ""


def _print_verdict(verdict: Verdict, folder: str, exit_code: int, job: Any) -> None:
    from safelaunch.report import verdict as terminal

    job.print(terminal.lines(verdict, folder, exit_code=exit_code, palette=job.palette))


def _black_box(settings: Settings, plan: LaunchPlan) -> tuple[str | None, str]:
    """The file of slots, or None and why there is none."""
    from safelaunch import black_box

    asked = str(settings["nproc_per_node"])
    path = os.path.join(plan.scratch_dir, "black_box")
    try:
        black_box.create(path, int(asked) if asked.isdecimal() else MAX_SLOTS)
    except OSError as error:
        return None, f"warning[SL902]: no heartbeats and no record of collectives: {path}: {error.strerror}"
    return path, ""


def _write_run(settings: Settings, plan: LaunchPlan, argv: list[str]) -> list[str]:
    """Write down how the run was started; returns what is to be said where that is not possible."""
    from safelaunch import files, redaction
    from safelaunch.cli import redact

    document = {
        "schema_version": SCHEMA_VERSION,
        "run_id": plan.run_id,
        "safelaunch": __version__,
        "python": sys.version.split()[0],
        "argv": redaction.arguments(argv),
        "cwd": os.getcwd(),
        "started": time.time(),
        "settings": to_json(redact.without_secrets(settings)),
        "plan": to_json(redact.plan_without_secrets(plan)),
    }
    try:
        files.write_json(os.path.join(plan.run_dir, "run.json"), document)
        files.write_lines(os.path.join(plan.run_dir, "env.txt"), redact.environment(settings, os.environ))
    except OSError as error:
        return [f"warning[SL902]: how this run was started is not written down: {error.filename}: {error.strerror}"]
    return []


def _write_result(result: dict[str, Any], settings: Settings, plan: LaunchPlan, job: Any, stall_s: float) -> None:
    from safelaunch import files, redaction
    from safelaunch.output import write

    # Verdicts hold messages and tracebacks of the program.
    text = json.dumps(redaction.document(json.loads(json.dumps(result, default=str))), indent=1) + "\n"
    wanted = settings["json"]
    try:
        files.write_text(os.path.join(plan.run_dir, "result.json"), text)
    except OSError as error:
        job.say(f"warning[SL902]: the result cannot be written: {error.filename}: {error.strerror}")
    if wanted is not None:
        try:
            write(wanted, text.encode("utf-8", "backslashreplace"), stall_s)
        except OSError as error:
            job.say(f"warning[SL902]: --json {wanted}: the result cannot be written there: {error.strerror}")


def _clear(plan: LaunchPlan) -> None:
    shutil.rmtree(plan.scratch_dir, ignore_errors=True)

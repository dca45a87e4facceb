"""From settings to the plan of one launch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping

from safelaunch.codes import EXIT_USAGE
from safelaunch.launch import run_dir, spares
from safelaunch.model import LaunchMode, LaunchPlan, Log, SafelaunchError, Settings

OWN_OPTIONS = {
    "profile", "preflight", "on_hang", "hang_abort_after", "run_dir", "warm_start", "dry_run", "color", "json",
    "spare_nodes", "useful_restarts", "requeue", "history", "log", "time_limit", "verbose", "quiet", "training_script",
    "training_script_args",
}  # fmt: skip

MARGIN_S, MARGIN = 5.0, 0.2  # of a scheduler's grace, and its share at most: for the verdict, and the ends of processes


def mode(settings: Settings) -> LaunchMode:
    """How the script is to be run; `--run-path` takes precedence, as in torchrun."""
    if settings["run_path"]:
        return "run_path"
    if settings["no_python"]:
        return "no_python"
    return "module" if settings["module"] else "script"


def check_script(settings: Settings) -> str:
    """The training script must be something that can be run, before anything starts.

    A script must be a readable file; with `--no-python` a command must be found on PATH and be executable, and so must
    be the interpreter that its first line names (`#!`). A module (`-m`) is looked up by each rank's own Python. Check
    the path and the current directory; a script that has the name of a subcommand is run with `./NAME` or after `--`.
    """
    script: str = settings["training_script"]
    how = mode(settings)
    if how == "module":
        return script
    if how == "no_python":
        command = shutil.which(script)
        if command is None:
            raise _no_script(f"there is no executable command {script}", "check the spelling and PATH")
        wanted = _interpreter(command)
        if wanted and not os.path.exists(wanted):
            summary = f"the first line of {script} asks for {wanted!r}, which does not exist"
            raise _no_script(summary, "correct that line; one that ends in \\r was written on Windows: dos2unix")
        return script
    if os.path.isdir(script):
        # `python FOLDER` runs its __main__.py.
        if how == "run_path" or os.path.isfile(os.path.join(script, "__main__.py")):
            return script
        raise _no_script(f"{script} is a directory without __main__.py", "name the script inside it")
    if not os.path.exists(script):
        raise _no_script(f"there is no file {script}", f"check the path; the current directory is {os.getcwd()}")
    if not os.access(script, os.R_OK):
        raise _no_script(f"{script} cannot be read", "check its permissions")
    return script


def _interpreter(command: str) -> str:
    """What runs a command, by its first line; "" for one that runs by itself, or that we may not read. The kernel ends
    the word at a blank or a tab, and takes a carriage return for a part of it (binfmt_script)."""
    try:
        with open(command, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    found = re.match(rb"#![ \t]*([^ \t\n]*)", first)
    return os.fsdecode(found[1]) if found else ""


def _no_script(summary: str, remedy: str) -> SafelaunchError:
    return SafelaunchError("SL002", summary, remedy, exit_code=EXIT_USAGE)


def build(settings: Settings, environ: Mapping[str, str]) -> LaunchPlan:
    """The plan; creates the run directory and the scratch directory, and nothing else.

    Args:
        settings: of the launch.
        environ: of safelaunch itself.

    Raises:
        SafelaunchError: when the script cannot be run or the run directory cannot be created.
    """
    script = check_script(settings)
    spares.check(settings)
    host = os.uname().nodename or "localhost"
    chosen = settings["rdzv_id"]
    run_id = run_dir.check_run_id(chosen if chosen != "none" else run_dir.default_run_id(environ, host))
    base = run_dir.base_dir(settings["run_dir"], environ)
    made = run_dir.create(
        base, run_id, host, several_nodes=settings.several_nodes, chosen=bool(settings["run_dir"]), environ=environ
    )
    token = os.urandom(8).hex()
    of_ranks = settings.environment(environ)
    return LaunchPlan(
        run_id=run_id,
        token=token,
        run_dir=made.path,
        scratch_dir=run_dir.create_scratch(token, made.path),
        mode=mode(settings),
        script=script,
        script_args=tuple(settings["training_script_args"]),
        torchrun={name: value.value for name, value in settings.options.items() if name not in OWN_OPTIONS},
        env=settings.added,
        shutdown_timeout=float(settings["shutdown_timeout"]),
        process_group_timeout=_seconds(settings, "process_group"),
        loader_timeout=_seconds(settings, "loader"),
        grace=grace(settings),
        bind_device="bind_device" in settings.launch and bool(settings.launch["bind_device"].value),
        restart_hangs=settings["on_hang"] != "abort",
        spare_nodes=settings["spare_nodes"],
        useful_restarts=settings["useful_restarts"],
        log=_log(settings),
        unset=settings.taken_away,
        hosts=settings.allocation.hosts if settings.allocation is not None else (),
        warnings=tuple(
            filter(
                None,
                [made.warning, spares.without_restarts(settings), run_dir.file_limit(), without_recorder(of_ranks)],
            )
        ),
    )


def _log(settings: Settings) -> Log | None:
    """How the ranks' lines are shown; None where torch does it as it always has."""
    mode, wanted = settings.options["log"], settings.log.get("prefix")
    if mode.value == "raw" and (wanted is None or mode.origin.source != "default"):
        return None
    prefix = "[{rank}] " if wanted is None else str(wanted.value)
    if wanted is not None and not prefix[-1:].isspace():
        prefix += " "
    return Log("merge" if mode.value == "merge" else "prefix", prefix)


def grace(settings: Settings) -> float:
    """Seconds after SIGTERM for ranks that stop by themselves: the shutdown timeout where somebody has chosen it, else
    what the scheduler gives until SIGKILL, less what it takes to end the run; never more than a wait that is known."""
    shutdown, wait = settings.options["shutdown_timeout"], settings.timeouts.get("kill_wait")
    chosen = float(shutdown.value)
    if wait is None:
        return chosen
    given = float(wait.value) - min(MARGIN_S, float(wait.value) * MARGIN)
    if shutdown.origin.source == "default":
        return given
    return chosen if wait.origin.source == "default" else min(chosen, given)


def without_recorder(environ: Mapping[str, str]) -> str:
    """What is lost where torch's Flight Recorder has no room, or nothing: with NCCL a call returns before it is done,
    and only the recorder's counters show that it is not (torch/csrc/distributed/c10d/FlightRecorder.hpp)."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):  # of two spellings, the new one wins
        if name in environ:
            off = environ[name].strip() == "0"
            return f"warning[SL902]: {name}=0: a rank that hangs in a call of NCCL will not be noticed" if off else ""
    return ""


def _seconds(settings: Settings, timeout: str) -> float | None:
    """A timeout of the profiles that the ranks take as their default; None for torch's own."""
    value = settings.timeouts.get(timeout)
    return float(value.value) if value is not None and value.value else None

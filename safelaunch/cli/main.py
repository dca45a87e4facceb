"""Dispatch: which subcommand, one place for errors, the only place that exits."""

from __future__ import annotations

import os
import sys
import warnings

from safelaunch import injection
from safelaunch.model import Finding, SafelaunchError

# As in codes, which the way to `--help` does not load.
EXIT_USAGE, EXIT_SIGINT, EXIT_OUR_FAULT = 2, 130, 70

SUBCOMMANDS = (
    "check", "profile", "lint", "env", "diagnose", "attach", "exec", "dump", "trace", "top", "stop", "clean", "runs",
    "diff", "events", "explain", "policy", "completion",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit code.

    A first word that is a subcommand selects it. `./check`, or `--` before it, runs a script of that name.
    """
    argv = sys.argv[1:] if argv is None else argv
    # Of scripts and of conditions in bundles, which are parsed here: Python would quote what it warns of as it is.
    warnings.simplefilter("ignore", SyntaxWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        return _dispatch(argv)
    except SafelaunchError as error:
        return _refused(error)
    except KeyboardInterrupt:
        return EXIT_SIGINT
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python must not complain about it at its own end.
        _leave_output()
        return 0
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            remedy = "cd to a directory that exists"
            return _refused(SafelaunchError("SL007", "the current directory was removed", remedy, exit_code=EXIT_USAGE))
        if os.environ.get("SAFELAUNCH_DEBUG"):
            raise
        _print(internal_error(error))
        return EXIT_OUR_FAULT


def _dispatch(argv: list[str]) -> int:
    if injection.EXEC in os.environ:
        injection.step_back(os.environ)
    if argv and argv[0] in SUBCOMMANDS:
        from importlib import import_module

        run = import_module(f"safelaunch.cli.{argv[0]}").run
        code: int = run(argv[1:])
        return code
    from safelaunch.cli import launch

    return launch.run(argv)


def _refused(error: SafelaunchError) -> int:
    if error.diagnostic.code == "SL007":
        _leave_output()
    if not error.said_by_all or _speaks():
        _print(error.diagnostic)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        from safelaunch.report import text
        from safelaunch.run.outside import pod_message

        pod_message(text.diagnostic(error.diagnostic), os.environ)
    _tell_first_node(error)
    return error.exit_code


def _tell_first_node(error: SafelaunchError) -> None:
    """A node of a Slurm step that alone refuses to start lets the first one know, which would wait for it."""
    alone = error.diagnostic.code == "SL009" and not error.said_by_all
    if alone and os.environ.get("SLURM_NODEID", "0") != "0":
        from safelaunch.run.rendezvous_names import tell_refusal

        tell_refusal(os.environ, error.diagnostic)


def _speaks() -> bool:
    from safelaunch.schedulers.variables import is_first_task

    return is_first_task(os.environ)


def _leave_output() -> None:
    """Python writes what is left of the standard output at its own end, and would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _print(finding: Finding) -> None:
    from safelaunch.report import palette, text
    from safelaunch.run.output import Output

    stderr = Output(sys.stderr)
    stderr.write(text.diagnostic(finding, palette=palette.for_stream(sys.stderr)))
    stderr.finish()


def internal_error(error: Exception) -> Finding:
    """safelaunch itself failed. That is our fault, never the job's.

    Example:
        error[SL901]: safelaunch failed: KeyError: 'rank'

    How it was concluded: an exception came up to the top of safelaunch, and it is none of those with which safelaunch
    refuses something. The line that raised it is named.

    What to do: report it with the traceback that SAFELAUNCH_DEBUG=1 prints. Nothing of the run is lost: agent.jsonl and
    the incident folders are written as things happen. Meanwhile torchrun takes the same arguments.

    What it is not: a part of the watching that failed while the run went on (SL902).
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "unknown"
    return Finding(
        code="SL901",
        severity="error",
        summary=f"safelaunch failed: {type(error).__name__}: {error}",
        because=(where,),
        remedy="SAFELAUNCH_DEBUG=1 prints the traceback for a report; torchrun takes the same arguments",
    )

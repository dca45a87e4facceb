"""`safelaunch exec -- COMMAND`: a command that starts ranks in its own way, and its ranks watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from safelaunch.cli import output
from safelaunch.model import Origin, Settings, Value
from safelaunch.printable import whole
from safelaunch.settings import kinds
from safelaunch.settings.commandline import Parser, misuse

USAGE = """\
usage: safelaunch exec [options] [--] COMMAND [ARGUMENT...]

Run a command as it runs without safelaunch, and watch the ranks that it starts, by whatever launcher: torchrun,
accelerate, deepspeed, mpirun, srun, torch.multiprocessing, a shell script, pytest, vLLM, a notebook. Every Python below
it that joins a process group of torch is a rank. Ranks that hang, or that fail, are named, with the evidence in a run
directory. Nothing is ended for it, unless --hang-abort-after asks for that. Streams, signals and exit code are the
command's own.

    safelaunch exec -- vllm serve MODEL --tensor-parallel-size 2
    safelaunch exec --hang-abort-after 10m -- accelerate launch train.py
    safelaunch exec -- bash train-twice.sh

options:
  --hang-abort-after DURATION   end the command when ranks have hung for so long (90, 10m); it then exits with 124
  --run-dir DIR                 where the run directory is made (default: ./safelaunch_runs), once there is a rank
  --json FILE                   write the result to a file as well
  -v, --verbose                 say at the end what was watched, and why if nothing was
  -q, --quiet                   say nothing but a last verdict
  --color WHEN                  auto (the default), always or never
  -h, --help                    show this text

Each option can be set as SAFELAUNCH_<OPTION>, too. A Python that ignores its environment (-E, -I, -S), or one that was
started with another one (env -i), is not watched; safelaunch.join() in its program has it watched all the same.

exit codes: the command's (128+N where signal N ended it); 124 after a hang with --hang-abort-after; 127 and 126 where
there is no such command, or it cannot be executed
"""


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse."""
    if argv[:1] == ["--watch"]:
        return _watch(argv[1:])
    own, words = _split(argv)
    settings = _settings(own, os.environ)
    if settings is None:
        output.show_text(USAGE)
        return 0
    if not words:
        raise misuse("no command was named", "see `safelaunch exec --help`")
    from safelaunch.run.exec.pipeline import CannotStart, Exec

    try:
        return Exec(settings, words).run()
    except CannotStart as error:
        output.show([whole("safelaunch exec: ", str(error))], sys.stderr)
        return error.code


def parser(environ: Mapping[str, str] = os.environ) -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch exec")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--hang-abort-after", default=environ.get("SAFELAUNCH_HANG_ABORT_AFTER"))
    made.add_argument("--run-dir", default=environ.get("SAFELAUNCH_RUN_DIR"))
    made.add_argument("--json", default=environ.get("SAFELAUNCH_JSON"))
    made.add_argument("--color", default=environ.get("SAFELAUNCH_COLOR", "auto"), choices=("auto", "always", "never"))
    made.add_argument("-v", "--verbose", action="count", default=int(environ.get("SAFELAUNCH_VERBOSE") == "1"))
    made.add_argument("-q", "--quiet", action="count", default=int(environ.get("SAFELAUNCH_QUIET") == "1"))
    return made


def _watch(argv: list[str]) -> int:
    """What `safelaunch.join()` starts: a process of its own, which nobody waits for."""
    parser = Parser("safelaunch exec --watch")
    parser.add_argument("folder")
    parser.add_argument("--lock", type=int, required=True)
    arguments = parser.parse_args(argv)
    from safelaunch.run.exec import standing

    if not standing.is_of_join(arguments.folder, arguments.lock):
        raise misuse("no rank has made this folder", "ranks that call safelaunch.join() start this themselves")
    if os.fork():
        os._exit(0)
    settings = _settings([], os.environ)
    assert settings is not None
    standing.watch(settings, arguments.folder, arguments.lock)
    return 0


VALUED = ("--hang-abort-after", "--run-dir", "--json", "--color")


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own options, and the command: it begins behind `--`, or with the first word that is no option."""
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "--":
            return argv[:at], argv[at + 1 :]
        at += 2 if argv[at] in VALUED else 1
    return argv[:at], argv[at:]


def _settings(own: list[str], environ: Mapping[str, str]) -> Settings | None:
    """What our options and variables say; None where help is asked for."""
    found = vars(parser(environ).parse_args(own))
    if found.pop("help"):
        return None
    if found["json"] == "-":
        raise misuse("--json -: the standard output is the command's", "name a file")
    if found["hang_abort_after"] is not None:
        try:
            found["hang_abort_after"] = kinds.LIMIT.read(found["hang_abort_after"])
        except ValueError:
            raise misuse(f"--hang-abort-after {found['hang_abort_after']}: expected {kinds.LIMIT.expects}") from None
    return Settings({name: Value(value, Origin("flag")) for name, value in found.items()}, {})

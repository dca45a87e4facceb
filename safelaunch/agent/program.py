"""Entry of the agent process.

It imports torch while the supervisor checks the node, binds and joins nothing before `go`, and leaves by
`os._exit` once its work is done: torch's interpreter shutdown takes a quarter of a second that nobody needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback

PR_SET_PDEATHSIG = 1
RENDEZVOUS = "/torch/distributed/elastic/rendezvous/"


def main(plan_file: str, events: int, commands: int, fork_server: int | None = None) -> int:
    """Run one plan; returns the exit status for the supervisor. `fork_server` is a channel to the fork server."""
    from safelaunch.agent.channel import Channel

    channel = Channel(events, commands)
    with open(plan_file, encoding="utf-8") as file:
        document = json.load(file)

    stdout, stderr = _own_streams(document["agent_log"], document["closed"])
    phase = "import"
    try:
        import torch

        from safelaunch.agent import elastic, node_order
        from safelaunch.agent.forked import ForkServer
        from safelaunch.agent.spares import Spares
        from safelaunch.agent.workers import WorkerGroups
        from safelaunch.codec import from_json
        from safelaunch.model import LaunchPlan

        plan = from_json(LaunchPlan, document["plan"])
        channel.post("hello", torch=torch.__version__, python=sys.version.split()[0], cuda=torch.version.cuda)
        channel.wait_for_go()
        phase = "config"
        config, entrypoint, arguments = elastic.configure(plan)
        node_order.rank_by(plan.hosts)
        spare = Spares(channel) if plan.spare_nodes else None
        phase = "launch"
        # What torch elastic tees to the console is the workers' output.
        elastic.keep_words_in_log(sys.stderr)
        sys.stdout, sys.stderr = os.fdopen(stdout, "w", 1), os.fdopen(stderr, "w", 1)
        server = None if fork_server is None else ForkServer(fork_server, channel.post)
        folders = plan.run_dir, plan.scratch_dir
        streams = {
            name: None if number in document["closed"] else descriptor
            for number, name, descriptor in ((1, "stdout", stdout), (2, "stderr", stderr))
        }
        groups = WorkerGroups(channel, document["marks"], *folders, streams, plan.unset, server)
        elastic.launch(config, entrypoint, arguments, channel, groups, spare, plan.log)
    except BaseException as error:
        kind = type(error).__name__
        text = traceback.format_exc()
        os.write(2, text.encode("utf-8", "replace"))
        phase = "rendezvous" if phase == "launch" and in_rendezvous(error) else phase
        channel.post("failed", phase=phase, type=kind, message=str(error)[:2000], signal=signal_behind(error))
        return 1
    channel.post("succeeded")
    return 0


def _log(path: str) -> int:
    """The file for torch's own words; nothing keeps them where there is no room for it."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def signal_behind(error: BaseException) -> int:
    """The signal that a handler has made this error of: Python's for SIGINT, torch's for `--signals-to-handle`."""
    return int(signal.SIGINT if isinstance(error, KeyboardInterrupt) else getattr(error, "sigval", 0))


def in_rendezvous(error: BaseException) -> bool:
    """Whether torch elastic's rendezvous raised an error, and not what comes before or behind it: the start of the
    ranks (NUMA, devices, files), their end."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(RENDEZVOUS in frame.filename or frame.name in ("_rendezvous", "next_rendezvous") for frame in frames)


def _own_streams(path: str, closed: list[int]) -> tuple[int, int]:
    """Point stdout and stderr to a log, for torch's own words (its warnings, its failure table). Returns descriptors of
    the user's, which are for the workers.

    Args:
        path: of the log.
        closed: the standard streams that the user has closed. No process that is executed gets them.
    """
    stdout, stderr = os.dup(1), os.dup(2)
    log = _log(path)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    for descriptor in closed:
        os.set_inheritable(descriptor, False)
    return stdout, stderr


def run(plan_file: str, events: int, commands: int, fork_server: int | None = None) -> None:
    """Run one plan, and end this process."""
    status = main(plan_file, events, commands, fork_server)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(status)


def _bind_life(supervisor: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)


def start() -> None:
    """Run as a process of its own: PLAN EVENTS COMMANDS SUPERVISOR."""
    _bind_life(int(sys.argv[4]))
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

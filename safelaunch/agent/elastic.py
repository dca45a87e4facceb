"""Runs in: agent. One launch through torch's own `config_from_args` and `elastic_launch`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
import uuid
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, TextIO

import torch.distributed.elastic.agent.server.api as agent_api
import torch.distributed.elastic.multiprocessing.api as multiprocessing_api
import torch.distributed.run as torchrun
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from safelaunch.agent import nodes, rendezvous
from safelaunch.agent.channel import Channel
from safelaunch.agent.leaving import Leaving
from safelaunch.agent.spares import Spares
from safelaunch.agent.workers import WorkerGroups
from safelaunch.model import RUN_PATH, LaunchPlan, Log

RANK = "[${rank}] "  # the template of a prefix by which `agent.tail` learns which rank a file is of


class RunDirLogs(DefaultLogsSpecs):  # type: ignore[misc]
    """Torch's logs in our run directory: `attempt_0/rank_003/{stdout,stderr}.log`."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        self._run_log_dir = self._root_log_dir
        try:
            dest = super().reify(envs)
        except OSError as error:  # the disk is full
            self._run_log_dir = tempfile.mkdtemp(prefix="torchelastic_")  # as torchrun has it
            words = f"the logs of the ranks go to {self._run_log_dir}: {error.filename}: {error.strerror}"
            print(f"safelaunch: warning[SL902]: {words}", file=sys.stderr)
            dest = super().reify(envs)
        for local_rank, env in envs.items():
            error_file = env.get("TORCHELASTIC_ERROR_FILE")
            if not error_file:
                continue
            old = os.path.dirname(error_file)
            new = os.path.join(os.path.dirname(old), f"rank_{int(env['RANK']):03d}")
            os.rename(old, new)
            env["TORCHELASTIC_ERROR_FILE"] = os.path.join(new, "error.json")
            for paths in (dest.stdouts, dest.stderrs, dest.tee_stdouts, dest.tee_stderrs, dest.error_files):
                path = paths.get(local_rank)
                if path and path.startswith(old + os.sep):
                    paths[local_rank] = new + path[len(old) :]
        return dest


def torchrun_args(plan: LaunchPlan) -> Namespace:
    """The plan as torchrun's own parser would have returned it, with the free port of torch >= 2.12 for all."""
    args: Namespace = torchrun.get_args_parser().parse_args(["--nnodes", "1", plan.script])
    for name, value in plan.torchrun.items():
        setattr(args, name, value)
    args.training_script_args = list(plan.script_args)
    one_node = torchrun.parse_min_max_nnodes(args.nnodes)[1] == 1
    chosen = args.rdzv_endpoint or args.master_port is not None
    if args.standalone or (one_node and args.rdzv_backend == "static" and not chosen):
        args.rdzv_backend = "c10d"
        args.rdzv_endpoint = "localhost:0"
        args.rdzv_id = str(uuid.uuid4())
    if args.master_port is None:
        args.master_port = 29500
    return args


def configure(plan: LaunchPlan) -> tuple[LaunchConfig, str, list[str]]:
    """Torch's launch configuration, and the command that each worker runs.

    Raises:
        ValueError, AssertionError, RuntimeError: torchrun's own complaints about its options.
    """
    args = torchrun_args(plan)
    run_path = args.run_path
    args.run_path = False
    own_logs = args.log_dir is None and args.logs_specs is None
    if own_logs:
        args.log_dir = plan.run_dir
    if plan.log is not None and args.tee == "0":
        args.tee = "3"
    config, entrypoint, arguments = torchrun.config_from_args(args)
    template = prefix_template(args.log_line_prefix_template, config.log_line_prefix_template)
    config.log_line_prefix_template = template if plan.log is None else RANK
    if own_logs:
        logs = config.logs_specs
        config.logs_specs = RunDirLogs(logs._root_log_dir, logs._redirects, logs._tee, logs._local_ranks_filter)
    if run_path:
        # As a string entrypoint: torch's own path for this hides an exit of 0 and closes stdin.
        entrypoint = os.getenv("PYTHON_EXEC", sys.executable)
        arguments = ["-u", "-c", RUN_PATH, plan.script, *plan.script_args]
    return config, entrypoint, arguments


def prefix_template(chosen: str, otherwise: str | None) -> str | None:
    """The template of what `--tee` writes before each line, as torch 2.15 has it for its option and its variable
    (`otherwise`): older ones know no `${hostname}`. `$$`, which is a `$`, is left alone."""
    template = chosen or otherwise
    if not template:
        return otherwise
    host = socket.gethostname().replace("$", "$$")
    return re.sub(r"(\$\$)|\$(?:\{hostname\}|hostname(?!\w))", lambda match: match[1] or host, template, flags=re.ASCII)


def launch(
    config: LaunchConfig,
    entrypoint: str,
    arguments: list[str],
    channel: Channel,
    groups: WorkerGroups,
    spare: Spares | None = None,
    log: Log | None = None,
) -> None:
    """Run the worker group to its end. `spare` is there where nodes beyond those of the job may come; `log` where the
    lines of ranks are not shown as torch shows them.

    Raises:
        ChildFailedError, SignalException and whatever the rendezvous raises, as torch's `elastic_launch` does.
    """
    if hasattr(multiprocessing_api, "get_subprocess_handler"):
        multiprocessing_api.get_subprocess_handler = groups.handler
    else:
        channel.post("degraded", missing="torch has no subprocess handler to hook: workers run unwatched")
    rendezvous.use_a_fresh_store_each_round()
    rendezvous.age_heartbeats_by_our_own_clock()
    rendezvous.name_methods_at_once()
    if config.max_nodes == 1:
        rendezvous.join_at_once()
    elif channel.address is not None:
        nodes.exchange(channel, channel.address)
    if config.max_nodes > 1:
        Leaving(channel, config)
    leave_signals_to_ranks(groups)
    pass_output_on_in_blocks(log)
    look_when_there_is_something(groups)
    logging.getLogger("torchelastic-events-null").addHandler(_EventsToChannel(channel))
    channel.post("config", nproc_per_node=config.nproc_per_node, run_id=config.run_id, backend=config.rdzv_backend)
    run = elastic_launch(config=config, entrypoint=entrypoint)
    try:
        run(*arguments)
    except BaseException as error:
        if spare is not None:
            spare.tell_end(error)
        raise
    if spare is not None:
        spare.tell_end(None)


def keep_words_in_log(log: TextIO) -> None:
    """Have torch's loggers write to `log`, whatever `sys.stderr` is from here on: they follow it since torch 2.15."""
    known = (one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger))
    for logger in (logging.root, *known):
        for handler in list(logger.handlers):
            if isinstance(handler, logging.StreamHandler) or getattr(handler, "stream", None) is not sys.stderr:
                continue
            kept = logging.StreamHandler(log)
            vars(kept).update({**vars(handler), "stream": log})
            logger.removeHandler(handler)
            logger.addHandler(kept)


def leave_signals_to_ranks(groups: WorkerGroups) -> None:
    """What sends a signal to every process of a job (Slurm without cgroups, systemd) sends it to this one as well.
    SIGTERM is no reason to end ranks that stop at a step for it, and SIGUSR1 and SIGUSR2 are none to end by."""
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, lambda *_: None)  # the ranks, which are executed, do not inherit it
    terminate = getattr(multiprocessing_api, "_terminate_process_handler", None)
    if terminate is not None:

        def handler(signum: int, frame: Any) -> None:
            if signum != signal.SIGTERM or not groups.note(signum):
                terminate(signum, frame)

        multiprocessing_api._terminate_process_handler = handler


def pass_output_on_in_blocks(log: Log | None) -> None:
    """Have `--tee` and `--log` done by `agent.tail`; where this torch has no `TailLog` in that place, torch's own way
    stays."""
    try:
        from safelaunch.agent.tail import Tail
    except ImportError:
        return
    if hasattr(multiprocessing_api, "TailLog"):
        Tail.log = log
        multiprocessing_api.TailLog = Tail


def look_when_there_is_something(groups: WorkerGroups) -> None:
    """Have torch elastic look at its workers when one has ended, and not at the end of its `--monitor-interval`, which
    stays the longest time between two looks (`SimpleElasticAgent._invoke_run`, torch 2.8 to 2.13)."""
    if getattr(agent_api, "time", None) is time:
        agent_api.time = SimpleNamespace(**{**vars(time), "sleep": groups.sleep})


MAX_ERROR = 16 * 1024  # characters


class _EventsToChannel(logging.Handler):
    """Torch elastic logs each of its events as JSON to this logger; we pass them on."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event: dict[str, Any] = json.loads(record.getMessage())
        except ValueError:
            event = {"text": record.getMessage()}
        metadata = event.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("raw_error"), str):
            # What `@record` of torch has written: all of a message, however long that is.
            metadata["raw_error"] = metadata["raw_error"][:MAX_ERROR]
        self._channel.post("elastic", elastic=event)

"""torchrun's own options, as of torch 2.15, whichever torch is installed.

Source: torch/distributed/run.py, `get_args_parser`. A unit test walks that parser and fails when this table differs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from safelaunch.model import Settings
from safelaunch.settings import kinds
from safelaunch.settings.kinds import Kind
from safelaunch.settings.option import Option

SHAPE = "nodes and processes"
RENDEZVOUS = "rendezvous"
PROGRAM = "how the script runs"
RESTARTS = "restarts and shutdown"
OUTPUT = "output of the ranks"
PLUMBING = "plumbing"


def _option(
    names: str, kind: Kind, default: Any, group: str, metavar: str, text: str, variables: tuple[str, ...] = ()
) -> Option:
    option = Option(tuple(names.split()), kind, default, group, text, metavar)
    return _with_variables(option, variables)


def _flag(names: str, group: str, text: str) -> Option:
    return _with_variables(Option(tuple(names.split()), kinds.NUMBER_FLAG, False, group, text, takes="flag"))


def _with_variables(option: Option, more: tuple[str, ...] = ()) -> Option:
    # Two options of torchrun do not look at the environment.
    own = () if option.dest in ("logs_specs", "numa_binding") else (f"PET_{option.dest.upper()}",)
    return dataclasses.replace(option, variables=own + more)


OPTIONS: tuple[Option, ...] = (
    _option("--nnodes", kinds.NODES, "1:1", SHAPE, "N|MIN:MAX", "number of nodes, or a range of it"),
    _option("--nproc-per-node", kinds.PROCESSES, "1", SHAPE, "N|auto|cpu|gpu|xpu", "number of ranks on this node"),
    _option("--node-rank", kinds.integer(0), 0, SHAPE, "N", "rank of this node (static rendezvous only)"),
    _option("--rdzv-backend", kinds.TEXT, "static", RENDEZVOUS, "NAME", "static, c10d or another backend"),
    _option("--rdzv-endpoint", kinds.TEXT, "", RENDEZVOUS, "HOST:PORT", "where the nodes meet"),
    _option("--rdzv-id", kinds.TEXT, "none", RENDEZVOUS, "ID", "name of the job, the same on all nodes"),
    _option("--rdzv-conf", kinds.PAIRS, "", RENDEZVOUS, "K=V,...", "further settings of the backend"),
    _flag("--standalone", RENDEZVOUS, "one node, on a free port; the other rendezvous options are ignored"),
    _option("--master-addr", kinds.TEXT, "127.0.0.1", RENDEZVOUS, "HOST", "host of node 0 (static rendezvous only)"),
    _option(
        "--master-port",
        kinds.PORT,
        None,
        RENDEZVOUS,
        "PORT",
        "port on node 0 (static only); 29500, free on one node",
    ),
    _option("--local-addr", kinds.TEXT, None, RENDEZVOUS, "HOST", "address of this node; found out if not given"),
    _flag("-m --module", PROGRAM, "the script is a module, as in `python -m`"),
    _flag("--no-python", PROGRAM, "run the script directly, without python before it"),
    _flag("--run-path", PROGRAM, "run the script with runpy.run_path in the interpreter of the rank"),
    _option(
        "--start-method",
        kinds.choice("spawn", "fork", "forkserver"),
        "spawn",
        PROGRAM,
        "METHOD",
        "multiprocessing start method, for --run-path",
    ),
    _flag("--virtual-local-rank", PROGRAM, "LOCAL_RANK is 0 in every rank, and each sees only its own GPU"),
    _option(
        "--numa-binding",
        kinds.choice("node", "socket", "exclusive", "core-complex"),
        None,
        PROGRAM,
        "MODE",
        "bind ranks to CPUs near their GPU: node, socket, exclusive, core-complex",
    ),
    _option("--max-restarts", kinds.integer(0), 0, RESTARTS, "N", "restarts of all ranks before giving up"),
    _option("--monitor-interval", kinds.INTERVAL, 0.1, RESTARTS, "SECONDS", "how often the ranks are looked at"),
    _option(
        "--signals-to-handle",
        kinds.SIGNALS,
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        RESTARTS,
        "NAMES",
        "signals that end the run",
    ),
    _option(
        "--shutdown-timeout",
        kinds.integer(0),
        None,
        RESTARTS,
        "SECONDS",
        "from SIGTERM to SIGKILL; 30 if not given",
        # torch looks at this one later, in LaunchConfig (torch/distributed/launcher/api.py).
        ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT",),
    ),
    _option("--log-dir", kinds.PATH, None, OUTPUT, "DIR", "base directory of log files"),
    _option("-r --redirects", kinds.STREAMS, "0", OUTPUT, "N|RANK:N,...", "into files: 1 stdout, 2 stderr, 3 both"),
    _option("-t --tee", kinds.STREAMS, "0", OUTPUT, "N|RANK:N,...", "into files and to the console"),
    _option(
        "--log-line-prefix-template",
        kinds.TEXT,
        "",
        OUTPUT,
        "TEMPLATE",
        "before each line of -t: ${hostname}, ${role_name}, ${rank}, ${local_rank}",
    ),
    _option("--local-ranks-filter", kinds.RANKS, "", OUTPUT, "N,...", "show only these local ranks on the console"),
    _option(
        "--duplicate-stdout-filters",
        kinds.FILTERS,
        [],
        OUTPUT,
        "TEXT,...",
        "copy stdout lines with one of the texts",
    ),
    _option(
        "--duplicate-stderr-filters",
        kinds.FILTERS,
        [],
        OUTPUT,
        "TEXT,...",
        "copy stderr lines with one of the texts",
    ),
    _option("--role", kinds.TEXT, "default", PLUMBING, "NAME", "role of the ranks, shown in their log prefix"),
    _option("--event-log-handler", kinds.TEXT, "null", PLUMBING, "NAME", "a registered handler of elastic's events"),
    _option("--logs-specs", kinds.TEXT, None, PLUMBING, "NAME", "entry point of the group torchrun.logs_specs"),
)

LATER = {"log_line_prefix_template"}  # what the oldest torch that we know does not have; it is done for it all the same
SHELLS = ("bash", "zsh", "tcsh")  # of `--print-completion`


def arguments(settings: Settings) -> list[str]:
    """The command line of a launch as torchrun takes it."""
    words: list[str] = []
    for option in OPTIONS:
        value = settings.options[option.dest]
        if value.origin.source == "default" or value.value == option.default:
            continue
        words.append(option.spellings[0])
        if value.value is not True:
            words.append(",".join(value.value) if isinstance(value.value, (list, tuple)) else str(value.value))
    return [*words, settings["training_script"], *settings["training_script_args"]]

"""The other nodes of a job, for `safelaunch check`: the options that say where they meet."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from safelaunch import codes
from safelaunch.model import SafelaunchError
from safelaunch.preflight import between
from safelaunch.run.node import DEFAULT_PORTS
from safelaunch.schedulers import allocation
from safelaunch.settings import from_scheduler


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nnodes", type=int, metavar="N", help="nodes of the job (default: those of a Slurm step and its kin, else 1)")
    add(
        "--node-rank",
        "--node_rank",
        type=int,
        metavar="I",
        help="which of them this is, from 0 on; without it the node that owns the endpoint numbers the others",
    )
    add(
        "--rdzv-endpoint",
        "--rdzv_endpoint",
        default="",
        metavar="HOST[:PORT]",
        help="where the nodes meet; with it, run on each node, they are compared with each other",
    )
    add("--master-addr", "--master_addr", default="", metavar="ADDR", help="address of the first node")
    add("--master-port", "--master_port", type=port, metavar="PORT", help="port to be used there")


def port(text: str) -> int:
    """A TCP port. Raises ValueError."""
    if not 0 <= int(text) < 1 << 16:
        raise ValueError(text)
    return int(text)


def settle(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Take the nodes from the scheduler where no option speaks of them, and address and port from the endpoint.

    Raises:
        SafelaunchError: for an endpoint or a number that cannot be.
    """
    if not options.prolog and (options.nnodes, options.node_rank, options.rdzv_endpoint) == (None, None, ""):
        _from_scheduler(options, environ)
    if options.nnodes is None:
        options.nnodes = 1
    if options.nnodes < 1:
        raise _misuse(f"--nnodes {options.nnodes}: expected a number above 0")
    endpoint = options.rdzv_endpoint
    if endpoint:
        host, colon, port = endpoint.rpartition(":")
        if not colon or endpoint.endswith("]") or (":" in host.strip("[]") and not host.startswith("[")):
            host, port = endpoint, str(DEFAULT_PORTS["c10d"])
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise _misuse(f"--rdzv-endpoint {endpoint}: expected HOST:PORT")
        options.master_addr, options.master_port = host.strip("[]"), int(port)
    if options.node_rank is not None and not 0 <= options.node_rank < options.nnodes:
        raise _misuse(f"--node-rank {options.node_rank}: expected a number from 0 to {options.nnodes - 1} (--nnodes)")


def _from_scheduler(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """The nodes of this step; outside of one, as in a batch script, the node is looked at alone."""
    try:
        found = allocation(environ)
    except SafelaunchError:
        return
    if found is not None and found.nodes is not None and found.node_rank is not None and found.leader is not None:
        options.nnodes, options.node_rank = found.nodes.value, found.node_rank.value
        if options.nnodes > 1:
            options.rdzv_endpoint = from_scheduler.endpoint(found)


def meeting(options: argparse.Namespace) -> between.Meeting | None:
    """Where this node meets the others; None where it is to be checked alone."""
    if options.nnodes < 2 or not options.rdzv_endpoint or options.prolog:
        return None
    return between.Meeting(options.master_addr, options.master_port, options.nnodes, options.node_rank)


def _misuse(what: str) -> SafelaunchError:
    return SafelaunchError("SL001", what, "see `safelaunch check --help`", exit_code=codes.EXIT_USAGE)

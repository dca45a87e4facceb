"""The other nodes of a job, for `safelaunch check`: the options that say where they meet."""

from __future__ import annotations

import argparse

from safelaunch import codes
from safelaunch.model import SafelaunchError
from safelaunch.preflight import between
from safelaunch.run.node import DEFAULT_PORTS


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nnodes", type=int, default=1, metavar="N", help="nodes of the job (default 1)")
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


def settle(options: argparse.Namespace) -> None:
    """Take address and port from the endpoint where it is given. Raises SafelaunchError for one that cannot be."""
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


def meeting(options: argparse.Namespace) -> between.Meeting | None:
    """Where this node meets the others; None where it is to be checked alone."""
    if options.nnodes < 2 or not options.rdzv_endpoint or options.prolog:
        return None
    return between.Meeting(options.master_addr, options.master_port, options.nnodes, options.node_rank)


def _misuse(what: str) -> SafelaunchError:
    return SafelaunchError("SL001", what, "see `safelaunch check --help`", exit_code=codes.EXIT_USAGE)

"""What the command line leaves open, from the scheduler that started this process."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers import allocation
from safelaunch.schedulers.slurm import step_of_nodes
from safelaunch.schedulers.variables import misstart, number

# Who names one of these has a rendezvous of their own, and the launch is what torchrun makes of that.
RENDEZVOUS = ("node_rank", "rdzv_backend", "rdzv_endpoint", "standalone", "master_addr", "master_port")

# Ports for the rendezvous: above those at which the preflight lets nodes meet (preflight/between), below torch's own
# 29400 and 29500, which other jobs of a shared node use, and below those that Kubernetes (from 30000) and Linux (from
# 32768) hand out. All nodes of an attempt compute the same one, and a requeued job gets another.
FIRST_PORT, PORTS = 25000, 4400
END = "SLURM_JOB_END_TIME"


def completed(chosen: Mapping[str, Value], environ: Mapping[str, str]) -> tuple[dict[str, Value], Allocation | None]:
    """Options with what the scheduler says in the place of defaults, and what it has given.

    Flags, PET_<OPTION> and profiles beat it. A command line with a rendezvous of its own is left as it is, and so is
    one that asks for one node: a sweep starts many of those in one step.

    Args:
        chosen: all options by destination.
        environ: of safelaunch.

    Raises:
        SafelaunchError: SL009, where it was started in a way that cannot become one job.
    """
    options = dict(chosen)
    if any(_is_chosen(options[name]) for name in RENDEZVOUS):
        _check_node_rank(options, environ)
        _check_endpoint(options, environ)
        return options, None
    if _is_chosen(options["nnodes"]) and _most_nodes(options) == "1":
        return options, None
    found = allocation(environ)
    if found is None:
        return options, None
    if environ.get("LOCAL_RANK"):
        raise misstart(
            f"LOCAL_RANK={environ['LOCAL_RANK']} is set: safelaunch was started as a rank, and starts ranks itself",
            "start it once on each node, and take `export LOCAL_RANK=…` out of the script",
            f"{found.scheduler} has started this process",
            of_all=True,
        )
    if found.gpus is not None and found.gpus.value and not _is_chosen(options["nproc_per_node"]):
        options["nproc_per_node"] = Value(str(found.gpus.value), found.gpus.origin)
    if found.nodes is not None and not _is_chosen(options["nnodes"]):
        options["nnodes"] = Value(str(_of_the_job(found.nodes, options["spare_nodes"])), found.nodes.origin)
    if _most_nodes(options) != "1" or options["spare_nodes"].value:
        options |= _meeting(found, options)
    return options, found


def _of_the_job(nodes: Value, spare: Value) -> int:
    """How many of the nodes that are there the job has, beside those that wait for one of them to be lost."""
    left = int(nodes.value) - int(spare.value)
    if left < 1:
        raise misstart(
            f"--spare-nodes {spare.value} leaves no node for the job: there are {nodes.value}",
            f"ask for more nodes, or for {int(nodes.value) - 1} spare ones at most",
            f"{nodes.origin.where}={nodes.value}",
        )
    return left


def _meeting(found: Allocation, options: Mapping[str, Value]) -> dict[str, Value]:
    """Where the nodes meet, under which name, and which of them keeps the store."""
    if found.node_rank is None or found.leader is None:
        lacks = "which node this is" if found.node_rank is None else "the address of node 0"
        raise misstart(
            f"{found.scheduler} does not say {lacks}, and --nnodes {options['nnodes'].value} asks for several",
            "add `--rdzv-backend c10d --rdzv-endpoint HOST:PORT` with a name of one node that all can resolve",
        )
    origin = Origin("scheduler", found.scheduler)
    meeting = {
        "rdzv_backend": Value("c10d", origin),
        "rdzv_endpoint": Value(endpoint(found), found.leader.origin),
        # Names differ between nodes and containers, so that the store's own guess at who keeps it can fail.
        "rdzv_conf": _with_host(options["rdzv_conf"], found.node_rank),
    }
    if not _is_chosen(options["rdzv_id"]):
        meeting["rdzv_id"] = Value(f"{found.scheduler.lower().replace(' ', '-')}-{_name(found)}", origin)
    return meeting


def _with_host(conf: Value, node_rank: Value) -> Value:
    if "is_host" in str(conf.value):
        return conf
    pairs = [str(conf.value).strip(), f"is_host={'true' if node_rank.value == 0 else 'false'}"]
    return Value(",".join(filter(None, pairs)), conf.origin if _is_chosen(conf) else node_rank.origin)


def endpoint(found: Allocation) -> str:
    """HOST:PORT where the nodes of an allocation meet, which names its leader."""
    assert found.leader is not None
    return f"{found.leader.value}:{port(_name(found))}"


def _name(found: Allocation) -> str:
    """What the attempt is called, in characters that a folder and a store can bear."""
    name = found.job or str(found.leader.value if found.leader is not None else "")
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)


def port(job: str) -> int:
    """The port of a job's rendezvous, which all its nodes compute alike."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS


def job_end(environ: Mapping[str, str]) -> Value | None:
    """When the job's time ends, in seconds since the epoch; None where nobody says it (Slurm does from 23.02 on)."""
    found = number(environ, END)
    return Value(float(found), Origin("scheduler", END)) if found else None


def _check_node_rank(options: Mapping[str, Value], environ: Mapping[str, str]) -> None:
    """`--node-rank $SLURM_PROCID` that the batch shell has expanded is 0 on each node, and all wait for the others."""
    said, real = options["node_rank"], environ.get("SLURM_NODEID", "0")
    static = options["rdzv_backend"].value == "static" and not options["standalone"].value
    several = static and environ.get("SLURM_STEP_NUM_NODES", "1") == _most_nodes(options) != "1"
    if several and _is_chosen(said) and said.value == 0 and real != "0":
        raise misstart(
            f"--node-rank 0 on node {real} of {environ['SLURM_STEP_NUM_NODES']}: each is told that it is the first",
            "leave out --node-rank and the rendezvous, which come from Slurm; or write `\\$SLURM_NODEID`, so that the "
            "node expands it and not the batch script",
            f"SLURM_NODEID={real}",
        )


def _check_endpoint(options: Mapping[str, Value], environ: Mapping[str, str]) -> None:
    """Nodes that are each to meet the others at their own loopback address wait there for ever."""
    said = next((options[name] for name in ("rdzv_endpoint", "master_addr") if _is_chosen(options[name])), None)
    if said is None or options["standalone"].value or _most_nodes(options) == "1":
        return
    host = str(said.value)
    host = host.rpartition(":")[0].strip("[]") if ":" in host and said is options["rdzv_endpoint"] else host
    if step_of_nodes(environ, int(_most_nodes(options))) and (host in ("localhost", "::1") or host.startswith("127.")):
        raise misstart(
            f"{said.origin.where} {said.value}: each of the {_most_nodes(options)} nodes would wait for the others at "
            "its own address",
            "leave out the rendezvous, which comes from Slurm; or name the first node: "
            '`$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)` in the batch script',
            f"SLURM_STEP_NUM_NODES={environ['SLURM_STEP_NUM_NODES']}",
            of_all=True,
        )


def _most_nodes(options: Mapping[str, Value]) -> str:
    return str(options["nnodes"].value).rpartition(":")[2]


def _is_chosen(value: Value) -> bool:
    return value.origin.source != "default"

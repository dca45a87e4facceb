"""What is wrong when not a rank but the machinery around the ranks has ended."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, EXIT_OUR_FAULT, EXIT_USAGE
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import FORK_SERVER, SPARE, AgentEnd, Verdict
from safelaunch.model.hosts import MOST_NAMED, host_name, host_names
from safelaunch.model.nodes import LostNode, Node


def judge(end: AgentEnd, host: str = "") -> Verdict:
    """The verdict on an agent that ended without success and without a failed rank; `host` is its node's, where there
    are several."""
    if end.signal:
        return agent_lost(end, host)
    if end.phase == "config":
        return _verdict("SL001", f"torchrun's options: {one_line(end.message)}", "see safelaunch --help", EXIT_USAGE)
    if end.phase == SPARE:
        return spare_ended(end)
    if end.phase == "rendezvous" and not end.workers_started:
        return rendezvous_failed(end)
    return agent_lost(end, host)


def agent_lost(end: AgentEnd, host: str = "") -> Verdict:
    """The agent, torch elastic's process on this node, ended although no rank of this node had failed.

    Example:
        error[SL601]: the agent was killed by SIGKILL; its ranks ended with it

    How it was concluded: from the end of the agent itself, by one of these:
    - it got a signal: somebody has sent it to the agent, and not to safelaunch, which passes such a signal on to the
      ranks;
    - torch could not be imported;
    - it could not start the ranks (a device, NUMA, a file that is not there);
    - in logs: its own traceback tells of an option with a wrong value, or of a port that it may not use;
    - it failed while they ran (a node of the job was lost, the store's host went away);
    - it said nothing: something killed the process, and its status names the signal.

    Ranks never outlive their agent, nor, in a warm start, the fork server that they come from.

    What to do: look for who sent the signal: the kernel log (memory), the scheduler, a person. Of an exception,
    `agent.log` of the run directory has the whole text. Where torch cannot be imported, check its installation.

    What it is not: nodes that did not come together before a rank was started (SL602), or a rank that failed (SL4xx).
    """
    agent, of_host = f"the agent of {host}" if host else "the agent", f" of {host}" if host else ""
    if end.signal:
        remedy = "look for who sent it: the scheduler, a person; a job is ended by a signal to safelaunch itself"
        what = "and ended its ranks" if end.workers_started else "before it had started a rank"
        summary = f"{agent} got {signal.Signals(end.signal).name} {what}"
        return _verdict("SL601", summary, remedy, EXIT_INFRASTRUCTURE)
    if end.phase == "import":
        remedy = "check the installation of torch: python -c 'import torch'"
        return _verdict("SL601", f"torch cannot be imported: {one_line(end.message)}", remedy, EXIT_OUR_FAULT)
    if end.type:
        remedy = "agent.log in the run directory has the whole text"
        if "numa_node" in end.message:
            remedy = "this node does not say which CPUs are near its GPUs: run without --numa-binding"
        what = f"{agent} failed" if end.workers_started else "torch's agent could not start the ranks"
        summary = f"{what}: {end.type}: {one_line(end.message)}"
        return _verdict("SL601", summary, remedy, EXIT_INFRASTRUCTURE)
    code = end.exit.code if end.exit is not None else 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"gone with exit code {code}"
    remedy = "look for who killed it: the kernel log (memory), the scheduler, a person"
    who = "fork server" if end.phase == FORK_SERVER else "agent"
    return _verdict("SL601", f"the {who}{of_host} was {how}; its ranks ended with it", remedy, EXIT_INFRASTRUCTURE)


def rendezvous_failed(end: AgentEnd) -> Verdict:
    """The nodes did not come together, so no rank was started.

    Example:
        error[SL602]: the rendezvous failed: RendezvousConnectionError: The connection to the C10d store has failed. See
            inner exception for details.

    How it was concluded: torch elastic's rendezvous raised the error that is quoted, and had started no rank. In logs,
    the words of the rendezvous or of the store say so; also those of a rank that did not reach the store, or of ssh.

    What to do: check the usual reasons:
    - the endpoint's host cannot be reached;
    - another job uses the same endpoint and id;
    - a node is missing, or uses another `--rdzv-id`;
    - the port is taken.

    What it is not: a rendezvous that fails after ranks were started, as when a node is lost. That is SL601.
    """
    summary = f"the rendezvous failed: {end.type}: {one_line(end.message)}"
    remedy = "check that every node reaches the endpoint and uses the same --rdzv-id"
    return _verdict("SL602", summary, remedy, EXIT_INFRASTRUCTURE)


def spare_ended(end: AgentEnd) -> Verdict:
    """The job has failed, or was ended, and this node was none of it: it was a spare, and has run no rank.

    Example:
        error[SL605]: the job ended while this node was a spare: SL401: rank 3 raised ValueError: a bad sample

    How it was concluded: the nodes of the job say in the store of the rendezvous how it ends, and the exit code is
    theirs. Where that store goes before anybody has said so, the exit code is 75.

    What to do: look at the output of the nodes of the job. Nothing is wrong with this one.

    What it is not: a job that ended well, of which a spare says nothing and exits with 0.
    """
    summary = f"the job ended while this node was a spare: {one_line(end.message)}"
    return _verdict("SL605", summary, "look at the output of the nodes of the job", end.code or EXIT_INFRASTRUCTURE)


def interrupted(signum: int, node: Node) -> Verdict:
    """What the other nodes say where one was told to end, and their ranks fail for it. Somebody at a keyboard ends the
    job; a scheduler takes the node away, and the job may be tried again."""
    name, host = signal.Signals(signum).name, host_name(node.host) or f"node {node.node_rank}"
    ranks = names(range(node.first_rank, node.first_rank + node.ranks)) if node.ranks else "its ranks"
    summary = f"{host} got {name}, which ends {ranks}"
    remedy = f"look for who sent it to {host} alone: the scheduler (preemption, a time limit), a person"
    at_keyboard = signum in (signal.SIGINT, signal.SIGQUIT)
    verdict = _verdict("SL603", summary, remedy, 128 + signum if at_keyboard else EXIT_INFRASTRUCTURE)
    return dataclasses.replace(verdict, host=host)


def given_up(lost: LostNode, node: Node) -> Verdict:
    """What a node says of itself that the others have lost, and whose ranks fail because they have ended."""
    host = host_name(node.host) or f"node {node.node_rank}"
    summary = f"the other nodes have given {host} up, after {lost.silent_s:.0f} s without a word of it"
    remedy = f"look at {host}: it stood still (stopped, suspended, overloaded), or its network was cut for a while"
    return dataclasses.replace(_verdict("SL604", summary, remedy, EXIT_INFRASTRUCTURE), host=host)


def node_lost(lost: Sequence[LostNode], nodes: Mapping[int, Node], me: int) -> Verdict:
    """A node of the job is not heard any more, and the ranks of the others fail or wait because of it.

    Example:
        error[SL604]: node-c has been silent for 9 s (ranks 16-23, last step 812): it is down, or its network is cut

    How it was concluded: the supervisors of all nodes say every 2 s that they live. One that has said nothing for 9 s
    is lost. So is one whose connection was closed without a goodbye and that does not come back within 3 s: its process
    has ended, and the machine may live on. No node ends for that alone: its own ranks must have failed, or wait.

    A node that loses all others at the same time says so: its own network is as likely to be cut as theirs. The nodes
    on the other side name that one. Of two nodes, each names the other: which side is cut is not known.

    What to do: start the job again without the node, as with Slurm's `--exclude`. Look at its console, its kernel log
    and its network. The exit code is 75: the job may be tried again elsewhere. A node that comes back, and is lost
    again, leaves a job that can go on without it (`--nnodes MIN:MAX`, spare nodes).

    What it is not: a rank that failed (SL4xx), or an agent that ended on this node (SL601).
    """
    hosts = [host_name(nodes[one.node_rank].host) or f"node {one.node_rank}" for one in lost]
    silent = max(one.silent_s for one in lost)
    remedy = f"start again without {host_names(hosts)} (Slurm: --exclude={','.join(hosts[:MOST_NAMED])})"
    remedy += "; look at its console and network" if len(hosts) == 1 else ""
    own, alone = host_name(nodes[me].host) or f"node {me}", len(lost) == len(nodes) - 1 > 1
    if alone:
        summary = f"{own} has lost all other nodes at the same time ({host_names(hosts)}, silent for {silent:.0f} s)"
        remedy = f"look at the network of {own}: it is cut off from the others, or they are from it"
    elif len(lost) > 1:
        summary = f"{host_names(hosts)} are not heard any more (silent for {silent:.0f} s)"
    elif lost[0].closed:
        summary = f"{hosts[0]} has gone without a goodbye{_ranks_of(lost[0], nodes)}: killed, or the node went down"
    else:
        what = _ranks_of(lost[0], nodes)
        network = "its network" if len(nodes) > 2 else f"the network between it and {own}"
        summary = f"{hosts[0]} has been silent for {silent:.0f} s{what}: it is down, or {network} is cut"
    said = tuple(
        f"{name}: last heard {one.silent_s:.0f} s ago{', then its connection was closed' if one.closed else ''}"
        for name, one in zip(hosts[:MOST_NAMED], lost, strict=False)
    )
    verdict = _verdict("SL604", summary, remedy, EXIT_INFRASTRUCTURE)
    return dataclasses.replace(verdict, host=own if alone else host_names(hosts), because=said)


def _ranks_of(lost: LostNode, nodes: Mapping[int, Node]) -> str:
    """In brackets, which ranks a node has, and how far they were."""
    node = nodes[lost.node_rank]
    ranks = [names(range(node.first_rank, node.first_rank + node.ranks))] if node.ranks else []
    step = [f"last step {lost.step}"] if lost.step else []
    return f" ({', '.join([*ranks, *step])})" if ranks or step else ""


def _verdict(code: str, summary: str, remedy: str, exit_code: int) -> Verdict:
    slug = CATALOGUE[code].slug
    return Verdict(code=code, slug=slug, kind="infra", summary=summary, remedy=remedy, exit_code=exit_code)

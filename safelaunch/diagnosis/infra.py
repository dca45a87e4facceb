"""What is wrong when not a rank but the machinery around the ranks has ended."""

from __future__ import annotations

import signal

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, EXIT_OUR_FAULT, EXIT_USAGE
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import FORK_SERVER, AgentEnd, Verdict


def judge(end: AgentEnd) -> Verdict:
    """The verdict on an agent that ended without success and without a failed rank."""
    if end.signal:
        return agent_lost(end)
    if end.phase == "config":
        return _verdict("SL001", f"torchrun's options: {one_line(end.message)}", "see safelaunch --help", EXIT_USAGE)
    if end.phase == "rendezvous" and not end.workers_started:
        return rendezvous_failed(end)
    return agent_lost(end)


def agent_lost(end: AgentEnd) -> Verdict:
    """The agent, torch elastic's process on this node, ended although no rank of this node had failed.

    Example:
        error[SL601]: the agent was killed by SIGKILL; its ranks ended with it

    How it was concluded: from the end of the agent itself, by one of these:
    - it got a signal: somebody has sent it to the agent, and not to safelaunch, which passes such a signal on to the
      ranks;
    - torch could not be imported;
    - it could not start the ranks (a device, NUMA, a file that is not there);
    - it failed while they ran (a node of the job was lost, the store's host went away);
    - it said nothing: something killed the process, and its status names the signal.

    Ranks never outlive their agent, nor, in a warm start, the fork server that they come from.

    What to do: look for who sent the signal: the kernel log (memory), the scheduler, a person. Of an exception,
    `agent.log` of the run directory has the whole text. Where torch cannot be imported, check its installation.

    What it is not: nodes that did not come together before a rank was started (SL602), or a rank that failed (SL4xx).
    """
    if end.signal:
        remedy = "look for who sent it: the scheduler, a person; a job is ended by a signal to safelaunch itself"
        what = "and ended its ranks" if end.workers_started else "before it had started a rank"
        summary = f"the agent got {signal.Signals(end.signal).name} {what}"
        return _verdict("SL601", summary, remedy, EXIT_INFRASTRUCTURE)
    if end.phase == "import":
        remedy = "check the installation of torch: python -c 'import torch'"
        return _verdict("SL601", f"torch cannot be imported: {one_line(end.message)}", remedy, EXIT_OUR_FAULT)
    if end.type:
        remedy = "agent.log in the run directory has the whole text"
        if "numa_node" in end.message:
            remedy = "this node does not say which CPUs are near its GPUs: run without --numa-binding"
        what = "the agent failed" if end.workers_started else "torch's agent could not start the ranks"
        summary = f"{what}: {end.type}: {one_line(end.message)}"
        return _verdict("SL601", summary, remedy, EXIT_INFRASTRUCTURE)
    code = end.exit.code if end.exit is not None else 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"gone with exit code {code}"
    remedy = "look for who killed it: the kernel log (memory), the scheduler, a person"
    who = "fork server" if end.phase == FORK_SERVER else "agent"
    return _verdict("SL601", f"the {who} was {how}; its ranks ended with it", remedy, EXIT_INFRASTRUCTURE)


def rendezvous_failed(end: AgentEnd) -> Verdict:
    """The nodes did not come together, so no rank was started.

    Example:
        error[SL602]: the rendezvous failed: RendezvousConnectionError: The connection to the C10d store has failed. See
            inner exception for details.

    How it was concluded: torch elastic's rendezvous raised the error that is quoted, and had started no rank. In logs,
    the words of the rendezvous or of the store say so.

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


def _verdict(code: str, summary: str, remedy: str, exit_code: int) -> Verdict:
    slug = CATALOGUE[code].slug
    return Verdict(code=code, slug=slug, kind="infra", summary=summary, remedy=remedy, exit_code=exit_code)

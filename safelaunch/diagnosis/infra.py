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

    With a signal: somebody has sent it to the agent, and not to safelaunch, which passes such a signal on to the ranks.
    With a message: torch could not be imported; the agent could not start the ranks (a device, NUMA, a file that is
    not there); or it failed while they ran (a node of the job was lost, the store's host went away). Without one:
    something killed the process; its status names the signal. Workers never outlive their agent, nor, in a warm start,
    the fork server that they come from. The full text is in `agent.log` of the run directory.
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

    torch elastic's rendezvous raised the error that is quoted. Usual reasons: the endpoint's host cannot be
    reached, another job uses the same endpoint and id, a node is missing, the port is taken.
    """
    summary = f"the rendezvous failed: {end.type}: {one_line(end.message)}"
    remedy = "check that every node reaches the endpoint and uses the same --rdzv-id"
    return _verdict("SL602", summary, remedy, EXIT_INFRASTRUCTURE)


def _verdict(code: str, summary: str, remedy: str, exit_code: int) -> Verdict:
    slug = CATALOGUE[code].slug
    return Verdict(code=code, slug=slug, kind="infra", summary=summary, remedy=remedy, exit_code=exit_code)

"""The check between nodes, as one node runs it: gather what it is, run the probe, judge the picture."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.codec import from_json, to_json
from safelaunch.model import Finding, PreflightReport, Severity
from safelaunch.model.hosts import host_name
from safelaunch.preflight.between.facts import Facts, Limits, Picture, Request
from safelaunch.preflight.between.judges import JUDGES, Judge, conclude
from safelaunch.preflight.check import unchecked
from safelaunch.preflight.machine import infiniband
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.visible import visible_gpus
from safelaunch.preflight.network.endpoint import RESOLVE_DEADLINE_S
from safelaunch.preflight.runner import weigh
from safelaunch.redaction import is_secret

# The request goes to the probe in its environment, which others may not read, and not in its arguments.
REQUEST = "SAFELAUNCH_NODE_REQUEST"

# The probe ends by itself so long before it is killed, to tell what it knows.
MARGIN_S = 2.0
# How long to wait for all to come, where the caller does not say: people start the check by hand on each node.
ARRIVE_S = 60.0
# gloo moves data on cores that do other work too: only half of the shares that hold for NCCL is worth a finding.
GLOO_SHARE = 0.5

COMPARED = re.compile(r"(NCCL|TORCH|PYTORCH|GLOO|TP|UCX|FI)_")
# Places in the file system may differ; so may what tells the ranks apart.
NOT_COMPARED = re.compile(r"(_DIR|_FILE|_PATH|_HOME|_ROOT|_TEMP)$|^TORCHELASTIC_")


@dataclass(frozen=True)
class Meeting:
    """Where the nodes of a job meet.

    Args:
        host, port: the rendezvous endpoint. The check listens there itself, and has let go of it when it is over.
        nodes: how many nodes the job has.
        node_rank: of this node; None where the nodes have no ranks yet (c10d): then the node that owns the endpoint's
            address holds the meeting, and numbers the others as they come.
        name: what tells this meeting from another one at the same endpoint, such as the run id; the same on all nodes.
        arrive_s: seconds to wait for all to come.
        missing: what a node that never came counts as: in a launch, whose rendezvous waits longer, a warning.
        profile: names of the variables that profiles set.
        refused: why this node's own checks refuse it, for the others to know; empty where they do not.
        rdzv_id: the rendezvous id, which has to be the same on all nodes; empty where `name` is made of it.
    """

    host: str
    port: int
    nodes: int
    node_rank: int | None = None
    name: str = ""
    arrive_s: float | None = None
    missing: Severity = "error"
    profile: tuple[str, ...] = ()
    refused: str = ""
    rdzv_id: str = ""


def extend(
    report: PreflightReport,
    host: Host,
    meeting: Meeting,
    deadline_s: float,
    severity: Mapping[str, str],
    judges: Sequence[Judge] = JUDGES,
    full: bool | None = None,
) -> PreflightReport:
    """The report of this node's own checks with what the nodes find between them.

    Args:
        report: of this node's own checks.
        host: as it was given to them.
        meeting, deadline_s, judges: see `compare`.
        severity: what a code counts as, from a profile.
        full: see `compare`; by default as the report.
    """
    begin = host.monotonic()
    again = host.reopened()
    found = compare(again, meeting, deadline_s, report.full if full is None else full, judges)
    again.end_children()
    return dataclasses.replace(
        report,
        findings=(*report.findings, *weigh(found, severity)),
        elapsed_s=report.elapsed_s + host.monotonic() - begin,
    )


def compare(
    host: Host, meeting: Meeting, deadline_s: float, full: bool, judges: Sequence[Judge] = JUDGES
) -> tuple[Finding, ...]:
    """Compare this node with the others of the job. All nodes return the same findings, unless they lost each other.

    Args:
        host: this node, and the job.
        meeting: where the others are.
        deadline_s: seconds for the whole stage; what is known by then is reported.
        full: also have pairs of nodes exchange data. It is done when any node asks for it.
        judges: what is judged.
    """
    begin = host.monotonic()
    try:
        request = _request(host, meeting, deadline_s, full)
        ended = host.run_probe(
            "between/node_probe",
            deadline_s=max(MARGIN_S, deadline_s - (host.monotonic() - begin)),
            OMP_NUM_THREADS="1",
            **{REQUEST: json.dumps(to_json(request))},
        )
    except (OSError, UnicodeError) as error:
        return (unchecked("SL160", "the nodes were not compared", str(error)),)
    return conclude_probe(ended, judges)


def conclude_probe(ended: Ended, judges: Sequence[Judge] = JUDGES) -> tuple[Finding, ...]:
    """Findings from the last picture that a probe printed; of one that was killed, with the reason."""
    picture = None
    for line in procfs.lines(ended.stdout):
        try:
            picture = _named(from_json(Picture, json.loads(line)))
        except (ValueError, TypeError, KeyError):
            continue
    where = ended.last_line or "the start of Python"
    how = f"had no end after {ended.elapsed_s:.0f} s" if ended.timed_out else f"ended with {ended.returncode}"
    lost = () if ended.returncode == 0 else (f"the probe {how}; its last words: {where}",)
    if picture is None:
        return (unchecked("SL160", "the nodes were not compared", *(lost or ("the probe said nothing",))),)
    found = conclude(picture, judges)
    return (*found, unchecked("SL160", "not all was compared", *lost)) if lost else found


def _named(picture: Picture) -> Picture:
    """The picture with names of hosts that may stand in advice: each node says its own."""
    return dataclasses.replace(
        picture,
        nodes=tuple(dataclasses.replace(node, host=host_name(node.host)) for node in picture.nodes),
        silent=tuple(dataclasses.replace(node, host=host_name(node.host)) for node in picture.silent),
        clashes=tuple(dataclasses.replace(one, hosts=tuple(map(host_name, one.hosts))) for one in picture.clashes),
    )


def _request(host: Host, meeting: Meeting, deadline_s: float, full: bool) -> Request:
    found = host.resolve(meeting.host, RESOLVE_DEADLINE_S)
    share = 1.0 if host.job.uses_gpu else GLOO_SHARE
    return Request(
        host=meeting.host,
        port=meeting.port,
        nodes=meeting.nodes,
        rank=meeting.node_rank,
        owner=any(host.has_address(address) for address in found),
        parent=os.getpid(),
        meeting=meeting.name,
        arrive_s=min(meeting.arrive_s or ARRIVE_S, deadline_s / 2),
        deadline_s=deadline_s - MARGIN_S,
        facts=dataclasses.replace(
            gather(host, tuple(sorted({address.ip for address in found})), meeting.profile, full),
            refused=meeting.refused,
            rdzv_id=meeting.rdzv_id,
        ),
        limits=Limits(
            clock_skew_s=host.threshold("clock_skew"),
            slow_error=host.threshold("pair_slow_error") * share,
            slow_warning=host.threshold("pair_slow") * share,
            floor=host.threshold("pair_bandwidth"),
            missing=meeting.missing,
        ),
    )


def gather(host: Host, endpoint: tuple[str, ...], profile: Iterable[str], full: bool) -> Facts:
    """What this node is, as far as it can be told without torch."""
    driver, gpus = _gpus(host)
    return Facts(
        host=host.name(),
        versions={"driver": driver} if driver else {},
        env=_compared(host, frozenset(profile)),
        endpoint=endpoint,
        hcas=_adapters(host) if host.job.uses_gpu else {},
        gpus=gpus,
        uses_gpu=host.job.uses_gpu,
        full=full,
        nproc=host.job.nproc,
    )


def _compared(host: Host, profile: frozenset[str]) -> dict[str, str]:
    """The variables that the ranks of all nodes should have in common. What a profile sets may be anything: of that
    only the hash leaves the node, as of what looks like a secret."""
    return {
        name: _hash(value) if not COMPARED.match(name) or is_secret(name, value) else value
        for name, value in sorted(host.environ.items())
        if (COMPARED.match(name) or name in profile) and not NOT_COMPARED.search(name)
    }


def _hash(value: str) -> str:
    return f"sha256:{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def _gpus(host: Host) -> tuple[str, tuple[str, ...]]:
    """The driver's version, and the name of each GPU that a job of GPUs may use."""
    if not host.job.uses_gpu:
        return "", ()
    snapshot = host.nvml()
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    names = {gpu.index: gpu.name for gpu in snapshot.gpus if gpu.failure is None}
    return snapshot.driver, tuple(names[index] for index in (visible or ()) if index in names)


def _adapters(host: Host) -> dict[str, str]:
    """The ports of HCAs that NCCL would take: they are up, and the character device below /dev/infiniband is there."""
    verbs = "/sys/class/infiniband_verbs"
    devices = {host.root.text(f"{verbs}/{device}/ibdev"): device for device in host.root.names(verbs)}
    return {
        str(port): f"{port.link_layer or 'HCA'} {port.rate:g} Gb/s"
        for port in infiniband.selected(infiniband.read(host.root), host.environ)
        if port.up and host.root.exists(f"/dev/infiniband/{devices.get(port.device, '?')}")
    }

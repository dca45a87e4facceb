"""Whether the nodes agree in what they have to have in common: software, environment, addresses, hardware. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from safelaunch.model import Finding, Severity
from safelaunch.preflight.between.facts import Facts, Picture
from safelaunch.preflight.between.vote import Vote, vote
from safelaunch.preflight.check import ok

UNSET = "unset"
EVEN_SO = "it reached the others even so: by NAT, or by one of several addresses"

DIFFERENT_IDS = "each node has a rendezvous id of its own, so that they would never meet"
LEAVE_OUT = "leave out --rdzv-id, or write `--rdzv-id $SLURM_JOB_ID`: what `$RANDOM` is, each node decides anew"

# What ranks exchange data with, and what stands beside it.
SAME_VERSIONS = ("torch", "CUDA", "NCCL")
ALIKE_VERSIONS = ("driver", "Python", "safelaunch")

# Variables that decide by which protocol, algorithm or transport NCCL moves data: "NCCL Environment Variables" of its
# user guide. Two ends that decide differently wait for each other (NVIDIA/nccl issues 1328 and 2428).
PROTOCOL = frozenset(
    "NCCL_" + name
    for name in (
        "ALGO", "PROTO", "NET", "NET_PLUGIN", "IB_DISABLE", "SHM_DISABLE", "P2P_DISABLE", "P2P_LEVEL", "NTHREADS",
        "BUFFSIZE", "MIN_NCHANNELS", "MAX_NCHANNELS", "MIN_CTAS", "MAX_CTAS", "CROSS_NIC", "COLLNET_ENABLE",
        "NVLS_ENABLE", "PXN_DISABLE", "CUMEM_ENABLE", "MNNVL_ENABLE", "SOCKET_FAMILY", "LL_THRESHOLD", "TUNER_PLUGIN",
        "NET_GDR_LEVEL", "NSOCKS_PERTHREAD", "SOCKET_NTHREADS", "IB_QPS_PER_CONNECTION", "IB_SPLIT_DATA_ON_QPS",
    )
)  # fmt: skip
# Switches that are off by default, so that 0 says the same as no value; beside these, all of NCCL's *_DISABLE.
OFF_BY_DEFAULT = frozenset(("NCCL_COLLNET_ENABLE", "NCCL_IGNORE_CPU_AFFINITY", "TORCH_NCCL_BLOCKING_WAIT"))
OFF = "unset or 0"
# So many variables that differ in the same way stand in the summary.
MOST_NAMED = 3
# Nodes whose interfaces have different names have to differ in these.
NAMES_OF_INTERFACES = frozenset(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"))


def versions(picture: Picture) -> Iterator[Finding]:
    """The nodes have different versions of torch, CUDA, NCCL, the driver, Python or safelaunch.

    Ranks of one job speak to each other in protocols that have no version of their own. Where torch, CUDA or NCCL
    differ, a job fails in its first collective, or waits there without end (NVIDIA/nccl issue 1328).

    How it is concluded: every node says what it would run. A difference in torch, CUDA or NCCL is an error; one in the
    driver, in Python's minor version or in safelaunch a warning. Where more than half of at least three nodes agree,
    the others are named as the odd ones; else it cannot be told who is wrong.

    What to do: activate the same environment or container image on every node. A driver is the administrator's.
    """
    kinds: tuple[tuple[Sequence[str], Severity, str], ...] = (
        (SAME_VERSIONS, "error", "use the same environment or container image on every node"),
        (ALIKE_VERSIONS, "warning", "bring the nodes to the same versions; for the driver, ask an administrator"),
    )
    found = False
    for names, severity, remedy in kinds:
        differing = [name for name in names if len({node.versions.get(name, "") for node in picture.nodes}) > 1]
        if differing:
            found = True
            values = {node.rank: _listed(differing, node.versions, "none") for node in picture.nodes}
            yield _differs("SL161", severity, picture, vote(values), remedy)
    if not found:
        known = picture.nodes[0].versions
        yield ok("SL161", f"all nodes have {_listed([name for name in SAME_VERSIONS if known.get(name)], known, '')}")


def rendezvous_id(picture: Picture) -> Iterator[Finding]:
    """The nodes of a job have different rendezvous ids (`--rdzv-id`): they would never meet.

    Nodes meet at the endpoint under this name. With different ones each waits for the others until torch's rendezvous
    gives up, after ten minutes, and its message does not say why (public sbatch scripts: 18 % write
    `--rdzv-id=$RANDOM`).

    How it is concluded: the nodes of a Slurm step ask the first of them at once, at a port that the step's own number
    gives, and once more when they are compared. `$RANDOM`, `$(date)` and `$(uuidgen)` have another value on each node,
    where the shell of each node evaluates them. The exit code is 2: another node would not help.

    What to do: leave out --rdzv-id. Under Slurm the job, its step and its restart make one. Or write the job's own:
    `--rdzv-id $SLURM_JOB_ID`.
    """
    found = vote({node.rank: node.rdzv_id for node in picture.nodes})
    if found.unanimous:
        yield ok("SL170", "all nodes have the same rendezvous id")
        return
    yield Finding(
        code="SL170",
        severity="error",
        summary=DIFFERENT_IDS,
        because=tuple(f"{picture.names(ranks)}: --rdzv-id {value}" for value, ranks in found.groups[:MOST_NAMED]),
        remedy=LEAVE_OUT,
    )


def environment(picture: Picture) -> Iterator[Finding]:
    """The ranks of one node would get another environment than those of the others.

    Variables of NCCL, gloo and torch decide which protocol and which network the ranks use. Two ends that decide
    differently do not find together, or wait for each other without end (NVIDIA/nccl issues 1328 and 2428).

    How it is concluded: every node tells the NCCL_, TORCH_, GLOO_, UCX_ and FI_ variables that its ranks would get, and
    those that profiles set. A difference is an error, in a job that uses GPUs, where the variable decides the protocol,
    the algorithm or the transport. Those are NCCL_PROTO, NCCL_ALGO, NCCL_NET, NCCL_IB_DISABLE and their like, by NCCL's
    user guide. Any other is a warning. In the name of a network interface, which may well differ, it is a note. Of a
    switch that is off by default 0 and no value are the same, and so are an empty value and none of a variable of NCCL.
    Paths of files and folders are not compared. A value that may be a secret, and what a profile sets beyond these
    variables, is compared by its hash and leaves the node as nothing else.

    What to do: set the variables in a profile that all nodes use, and not in the shell or the ~/.bashrc of one node.
    """
    names = sorted({name for node in picture.nodes for name in node.env})
    nccl = any(node.uses_gpu for node in picture.nodes)
    together: dict[tuple[Severity, tuple[tuple[int, ...], ...]], list[str]] = {}
    for name in names:
        found = vote({node.rank: _meant(name, node.env) for node in picture.nodes})
        if not found.unanimous:
            kind: Severity = "note" if name in NAMES_OF_INTERFACES else "warning"
            if name in PROTOCOL and (nccl or not name.startswith("NCCL_")):
                kind = "error"
            together.setdefault((kind, tuple(ranks for _, ranks in found.groups)), []).append(name)
    for (severity, _), differing in sorted(together.items(), key=lambda item: item[1]):
        shown, more = differing[:MOST_NAMED], differing[MOST_NAMED:]
        rest = f" ({len(more)} more differ in the same way)" if more else ""
        values = {node.rank: _assigned(shown, node.env) for node in picture.nodes}
        finding = _differs("SL162", severity, picture, vote(values), "set it in a profile that all nodes use")
        yield dataclasses.replace(
            finding,
            summary=finding.summary + rest,
            because=(*finding.because, *([f"these differ as well: {', '.join(more)}"] if more else [])),
        )
    if not together:
        yield ok("SL162", "the ranks of all nodes get the same variables of NCCL, gloo and torch")


def master_address(picture: Picture) -> Iterator[Finding]:
    """A node finds another machine than the others behind the name of the endpoint (MASTER_ADDR).

    Each rank looks the name up by itself. One that gets another machine's address waits for a connection that never
    comes (pytorch issues 150532, 73656 and 73380), or joins another job.

    How it is concluded: every node looks the name up as its ranks would. One that shares no address with the others is
    named, unless what it found is an address of the node that listens there, which may have several. On that node
    itself the name may mean the loopback address (as 127.0.1.1 in Debian's /etc/hosts). It is a warning: a node that is
    compared has come by this very name. So the address may be another way to the same machine (NAT, a DNS that answers
    each network differently), or one of several that the name has.

    What to do: correct /etc/hosts or DNS on the node that is named, or give an address in place of the name.
    """
    listener = picture.nodes[0]
    asked = {node.rank: _found(node, listener) for node in picture.nodes}
    asked = {rank: addresses for rank, addresses in asked.items() if addresses}
    found = vote(asked)
    usual = set(found.groups[0][0]) if found.groups else set()
    strangers = {
        rank: addresses
        for rank, addresses in asked.items()
        if not usual.intersection(addresses) and not set(listener.own).intersection(addresses)
    }
    if not strangers:
        yield ok("SL163", "all nodes find the same machine at the endpoint")
        return
    shown = {rank: ", ".join(addresses) for rank, addresses in asked.items()}
    if set(strangers) <= set(found.odd) or any(set(listener.own) & set(addresses) for addresses in asked.values()):
        others = {rank: text for rank, text in shown.items() if rank not in strangers}
        because = tuple(f"{picture.names(ranks)}: {text}" for text, ranks in vote(others).groups)
        for text, ranks in vote({rank: shown[rank] for rank in strangers}).groups:
            yield Finding(
                code="SL163",
                severity="warning",
                summary=f"{picture.names(ranks)} {_verb(ranks, 'finds', 'find')} {text} for the endpoint's name,"
                " which is no address that the others find",
                because=(*because, EVEN_SO),
                remedy=f"correct /etc/hosts or DNS on {picture.names(ranks)}, or give an address in place of the name",
                where=picture.names(ranks),
            )
        return
    yield _differs("SL163", "warning", picture, vote(shown), "correct /etc/hosts or DNS, or give an address", "finds")


def hardware(picture: Picture) -> Iterator[Finding]:
    """The nodes have different network adapters for NCCL (HCAs), or different GPUs.

    NCCL makes its plan from what each node says that it has. Where the numbers of HCAs differ, two ends plan different
    connections and wait for each other (NVIDIA/nccl issue 2428). Where GPUs differ, all wait for the slowest.

    How it is concluded: every node tells the ports in /sys/class/infiniband that are up, that NCCL_IB_HCA leaves in and
    that it may open, and the GPUs that the job may use. Where the job uses GPUs, another number of ports of one link
    layer and rate is an error. As many ports of other names are a note: names depend on the board, on udev and on what
    a pod is given, and NCCL does without equal ones. Differing kinds or numbers of GPUs are a warning.

    What to do: look on the node that is named whether a port is down or gone (`ibstat`, SL130) or may not be opened
    (/dev/infiniband in the container); NCCL_IB_HCA, set to the common ones on every node, leaves the others out.
    """
    found = [*_adapters(picture)] if any(node.uses_gpu for node in picture.nodes) else []
    kinds = vote({node.rank: _kinds(node.gpus) for node in picture.nodes})
    if not kinds.unanimous:
        found.append(
            _differs("SL164", "warning", picture, kinds, "ask for nodes of one kind; all wait for the slowest")
        )
    yield from found
    if not found:
        yield ok("SL164", f"all nodes have the same hardware: {kinds.groups[0][0]}")


def _adapters(picture: Picture) -> Iterator[Finding]:
    """That the nodes have other ports of HCAs, or the same under other names."""
    names = vote({node.rank: ", ".join(sorted(node.hcas)) or "none" for node in picture.nodes})
    listed = tuple(f"ports of {picture.names(ranks)}: {text}" for text, ranks in names.groups[:MOST_NAMED])
    listed = listed if not names.unanimous else ()
    counts = vote({node.rank: _kinds(node.hcas.values(), "no HCA") for node in picture.nodes})
    if not counts.unanimous:
        remedy = "see `ibstat` and /dev/infiniband there; NCCL_IB_HCA on all nodes can leave adapters out"
        finding = _differs("SL164", "error", picture, counts, remedy)
        yield dataclasses.replace(finding, because=(*finding.because, *listed))
    elif not names.unanimous:
        yield Finding(
            code="SL164",
            severity="note",
            summary=f"the HCAs have different names on the nodes; all have {counts.groups[0][0]}",
            because=listed,
        )


def _differs(
    code: str, severity: Severity, picture: Picture, found: Vote[str], remedy: str, verb: str = "has"
) -> Finding:
    """The odd nodes by name, or that it cannot be told who is wrong."""
    plural = {"has": "have", "finds": "find"}[verb]
    parts = [f"{picture.names(ranks)} {_verb(ranks, verb, plural)} {value}" for value, ranks in found.groups]
    if found.majority:
        usual, ranks = found.groups[0]
        return Finding(
            code=code,
            severity=severity,
            summary=f"{'; '.join(parts[1:])}; {'all others have' if verb == 'has' else 'all others find'} {usual}",
            because=(f"{len(ranks)} of {sum(len(group) for _, group in found.groups)} nodes agree",),
            remedy=remedy,
            where=picture.names(found.odd),
        )
    return Finding(
        code=code,
        severity=severity,
        summary="; ".join(parts),
        because=("no more than half of the nodes agree: cannot tell which is wrong",)
        if len(picture.nodes) > 2
        else ("of two nodes that differ, cannot tell which is wrong",),
        remedy=remedy,
        where=picture.names(rank for _, ranks in found.groups for rank in ranks),
    )


def _listed(names: Sequence[str], known: Mapping[str, str], absent: str) -> str:
    return ", ".join(f"{name} {known.get(name) or absent}" for name in names)


def _assigned(names: Sequence[str], env: Mapping[str, str]) -> str:
    meant = {name: _meant(name, env) for name in names}
    return ", ".join(f"{name} {text}" if text in (UNSET, OFF) else f"{name}={text}" for name, text in meant.items())


def _meant(name: str, env: Mapping[str, str]) -> str:
    """What a variable says: NCCL takes an empty one for unset."""
    text = env.get(name, UNSET)
    if name.startswith("NCCL_") and not text.strip():
        text = UNSET
    switch = name in OFF_BY_DEFAULT or (name.startswith("NCCL_") and name.endswith("_DISABLE"))
    return OFF if switch and text in (UNSET, "0") else text


def _kinds(things: Iterable[str], none: str = "no GPU") -> str:
    return " and ".join(f"{count} x {kind}" for kind, count in sorted(Counter(things).items())) or none


def _found(node: Facts, listener: Facts) -> tuple[str, ...]:
    """What a node finds at the endpoint; the one that listens there may call itself by a loopback address."""
    if node.rank != listener.rank:
        return node.endpoint
    return tuple(ip for ip in node.endpoint if not ip.startswith("127.") and ip != "::1")


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several

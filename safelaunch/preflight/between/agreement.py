"""Whether the nodes agree in what they have to have in common: software, environment, addresses, hardware. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from safelaunch.model import Finding, Severity
from safelaunch.preflight.between.facts import Facts, Picture
from safelaunch.preflight.between.vote import Vote, vote
from safelaunch.preflight.check import ok

UNSET = "unset"

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


def environment(picture: Picture) -> Iterator[Finding]:
    """The ranks of one node would get another environment than those of the others.

    Variables of NCCL, gloo and torch decide which protocol and which network the ranks use. Two ends that decide
    differently do not find together, or wait for each other without end (NVIDIA/nccl issues 1328 and 2428).

    How it is concluded: every node tells the NCCL_, TORCH_, GLOO_, UCX_ and FI_ variables that its ranks would get, and
    those that profiles set. A difference in one that decides the protocol, the algorithm or the transport (NCCL_PROTO,
    NCCL_ALGO, NCCL_NET, NCCL_IB_DISABLE and their like, by NCCL's user guide) is an error, in any other a warning, and
    in the name of a network interface, which may well differ, a note. Paths of files and folders are not compared. A
    value that may be a secret is compared by its hash.

    What to do: set the variables in a profile that all nodes use, and not in the shell or the ~/.bashrc of one node.
    """
    names = sorted({name for node in picture.nodes for name in node.env})
    together: dict[tuple[Severity, tuple[tuple[int, ...], ...]], list[str]] = {}
    for name in names:
        found = vote({node.rank: node.env.get(name, UNSET) for node in picture.nodes})
        if not found.unanimous:
            kind: Severity = "error" if name in PROTOCOL else "note" if name in NAMES_OF_INTERFACES else "warning"
            together.setdefault((kind, tuple(ranks for _, ranks in found.groups)), []).append(name)
    for (severity, _), differing in sorted(together.items(), key=lambda item: item[1]):
        values = {node.rank: _assigned(differing, node.env) for node in picture.nodes}
        yield _differs("SL162", severity, picture, vote(values), "set it in a profile that all nodes use")
    if not together:
        yield ok("SL162", "the ranks of all nodes get the same variables of NCCL, gloo and torch")


def master_address(picture: Picture) -> Iterator[Finding]:
    """A node finds another machine than the others behind the name of the endpoint (MASTER_ADDR).

    Each rank looks the name up by itself. One that gets another machine's address waits for a connection that never
    comes (pytorch issues 150532, 73656 and 73380), or joins another job.

    How it is concluded: every node looks the name up as its ranks would. One that shares no address with the others is
    named, unless what it found is an address of the node that listens there, which may have several. On that node
    itself the name may mean the loopback address.

    What to do: correct /etc/hosts or DNS on the node that is named, or give an address in place of the name.
    """
    listener = picture.nodes[0]
    asked = {node.rank: node.endpoint for node in picture.nodes if node.endpoint and not _means_itself(node, listener)}
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
                severity="error",
                summary=f"{picture.names(ranks)} {_verb(ranks, 'finds', 'find')} {text} for the endpoint's name,"
                " which is another machine than the others find",
                because=because,
                remedy=f"correct /etc/hosts or DNS on {picture.names(ranks)}, or give an address in place of the name",
                where=picture.names(ranks),
            )
        return
    yield _differs("SL163", "error", picture, vote(shown), "correct /etc/hosts or DNS, or give an address", "finds")


def hardware(picture: Picture) -> Iterator[Finding]:
    """The nodes have different network adapters for NCCL (HCAs), or different GPUs.

    NCCL makes its plan from what each node says that it has. Where the sets of HCAs differ, two ends plan different
    connections and wait for each other (NVIDIA/nccl issue 2428). Where GPUs differ, all wait for the slowest.

    How it is concluded: every node names its HCAs of /sys/class/infiniband that it may open, and the GPUs that the job
    may use. A differing set of HCAs is an error where the job uses GPUs; differing kinds or numbers of GPUs are a
    warning.

    What to do: look on the node that is named whether an adapter is gone (`ibv_devices`) or may not be opened
    (/dev/infiniband in the container); NCCL_IB_HCA, set to the common ones on every node, leaves the others out.
    """
    faults = []
    if any(node.uses_gpu for node in picture.nodes):
        adapters = vote({node.rank: ", ".join(node.hcas) or "no HCA" for node in picture.nodes})
        if not adapters.unanimous:
            remedy = "see `ibv_devices` and /dev/infiniband there; NCCL_IB_HCA on all nodes can leave adapters out"
            faults.append(_differs("SL164", "error", picture, adapters, remedy))
    kinds = vote({node.rank: _kinds(node.gpus) for node in picture.nodes})
    if not kinds.unanimous:
        faults.append(
            _differs("SL164", "warning", picture, kinds, "ask for nodes of one kind; all wait for the slowest")
        )
    yield from faults
    if not faults:
        yield ok("SL164", f"all nodes have the same hardware: {kinds.groups[0][0]}")


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
    return ", ".join(f"{name}={env[name]}" if name in env else f"{name} {UNSET}" for name in names)


def _kinds(gpus: Sequence[str]) -> str:
    return " and ".join(f"{count} x {kind}" for kind, count in sorted(Counter(gpus).items())) or "no GPU"


def _means_itself(node: Facts, listener: Facts) -> bool:
    return node.rank == listener.rank and all(ip.startswith("127.") or ip == "::1" for ip in node.endpoint)


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several

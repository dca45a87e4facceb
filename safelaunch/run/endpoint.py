"""Where the nodes of a job meet, as the user has chosen it. A run of one node loads no more for it than this."""

from __future__ import annotations

from safelaunch.model import Settings


def endpoint_host(settings: Settings) -> str:
    """The host at which the nodes of a job meet; empty in a job of one node, and where it cannot be known."""
    if not settings.several_nodes:
        return ""
    return endpoint(settings)[0] or str(settings["rdzv_endpoint"]).partition(",")[0].rpartition(":")[0].strip("[]")


def node_rank(settings: Settings) -> int:
    """This node's number, as far as it is known before the nodes have met; 0 where it is not."""
    given = settings.allocation.node_rank if settings.allocation is not None else None
    return int(given.value if given is not None else settings["node_rank"])


def endpoint(settings: Settings) -> tuple[str, int | None]:
    """Address and port that the user chose, from `--rdzv-endpoint` or from the options of static rendezvous."""
    if settings["standalone"]:
        return "", None
    given = str(settings["rdzv_endpoint"])
    if given and "," not in given:  # etcd takes lists; those are servers of their own
        host, colon, port = given.rpartition(":")
        return (host.strip("[]"), int(port)) if colon and port.isdecimal() else (given, None)
    chosen = settings.options["master_addr"]
    return (str(chosen.value) if chosen.origin.source != "default" else ""), settings["master_port"]

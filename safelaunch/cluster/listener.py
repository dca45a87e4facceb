"""Where this node's supervisor listens for the others: on the interface by which it reaches the rendezvous endpoint."""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
from dataclasses import dataclass

OWN_FILES = 256  # descriptors of a supervisor beside the link's
BACKLOG = 1024  # all nodes of a job dial at once
ANY_PORT = 9  # a datagram socket is only told where its packets would go: nothing is sent


@dataclass(frozen=True)
class Listening:
    """A listening socket, and the address that others dial: an empty `ip` is what the endpoint's name leads to."""

    socket: socket.socket
    ip: str
    port: int


def listen(endpoint: str) -> Listening:
    """Listen for the supervisors of other nodes.

    The node of the endpoint may find itself at a loopback address, as 127.0.1.1 in Debian's /etc/hosts: only then it
    listens at all addresses, and the others come by the endpoint's name.

    Args:
        endpoint: the host of the rendezvous endpoint, a name or an address.

    Raises:
        OSError: the name is not known, or no socket can be had.
    """
    family, _, _, _, address = socket.getaddrinfo(endpoint, ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = str(probe.getsockname()[0])
    here = ipaddress.ip_address(own.partition("%")[0]).is_loopback
    listener = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.ExitStack() as failed:
        failed.callback(listener.close)
        listener.bind(("" if here else own, 0))
        listener.listen(BACKLOG)
        failed.pop_all()
    return Listening(listener, "" if here else own, int(listener.getsockname()[1]))


def make_room(nodes: int) -> None:
    """Let this process have a connection to each node, where its hard limit of open files allows that. The ranks keep
    the limit that they have: their agent runs already when the nodes meet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = nodes + OWN_FILES
    if resource.RLIM_INFINITY != soft < wanted and (hard == resource.RLIM_INFINITY or wanted <= hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

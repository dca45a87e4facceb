"""Names of hosts that somebody else has told."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OTHER = re.compile(r"[^\w.:-]+")
LONGEST = 253  # RFC 1035, 2.3.4
MOST_NAMED = 8  # in a line


def host_name(told: str) -> str:
    """A name as it may stand in advice, which people paste: `?` where it has characters that no name of a host has."""
    return _OTHER.sub("?", told)[:LONGEST]


def host_names(hosts: Sequence[str]) -> str:
    """Some of them in a line: `node-1, node-2 and 30 more`."""
    more = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
    return ", ".join(hosts[:MOST_NAMED]) + more

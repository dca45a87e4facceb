"""Names of hosts that somebody else has told."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^\w.:-]+")
LONGEST = 253  # RFC 1035, 2.3.4


def host_name(told: str) -> str:
    """A name as it may stand in advice, which people paste: `?` where it has characters that no name of a host has."""
    return _OTHER.sub("?", told)[:LONGEST]

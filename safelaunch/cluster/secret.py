"""The key by which supervisors know each other."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat

VARIABLE = "SAFELAUNCH_SECRET_FILE"
MOST = 1 << 16


class SecretError(Exception):
    """The secret that was asked for is none: nobody is let in by another key instead."""


def job_key(shared: str, path: str) -> bytes:
    """The key of one attempt.

    Args:
        shared: what the nodes have shared in the rendezvous store, in hex: whoever reaches that store can read it.
        path: of a file with a secret of the job, the same on all nodes; empty for none.

    Raises:
        SecretError: the file cannot be read, is empty, or others than its owner may read it.
    """
    key = bytes.fromhex(shared)
    if not path:
        return key
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.getuid()) or found.st_mode & 0o077:
                raise SecretError(f"{path}: it has to be a file of yours with mode 0600")
            secret = file.read(MOST).strip()
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror}") from None
    if not secret:
        raise SecretError(f"{path}: it is empty")
    return hmac.new(secret, key, hashlib.sha256).digest()

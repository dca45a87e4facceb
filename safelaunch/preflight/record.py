"""What is known of this node from earlier runs: when it last passed the full set, and whether its last run went bad.

One small file per user and node, below the user's cache folder. It is only ever replaced whole, so runs that start
at the same time read one version or the other, and the last one to write wins.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from safelaunch.codec import from_json, to_json
from safelaunch.model import SCHEMA_VERSION
from safelaunch.preflight.machine.host import Host

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SUSPECT = ("SL1", "SL6")  # a run that ended so says that the node may be bad


@dataclass(frozen=True)
class Node:
    """What makes a node the one that was checked: after a reboot, with another driver or with other GPUs it is new."""

    boot_id: str
    driver: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """The content of the file. `passed_at` is the time of the last full pass in seconds since the epoch; `suspect` is
    the code with which the last run ended, if it casts doubt on the node."""

    node: Node
    passed_at: float | None = None
    suspect: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Record:
    """The record of one node. `missing` says why none can be kept; then every run is the first one."""

    path: str
    node: Node
    known: Known | None
    missing: str = ""

    def due(self, every_s: float, now: float | None = None) -> str:
        """Why the full set has to run, or nothing.

        Args:
            every_s: seconds for which a pass counts.
            now: seconds since the epoch.
        """
        now = time.time() if now is None else now
        known = self.known
        if known is None:
            return self.missing or "this node has no full pass on record"
        if known.suspect:
            return f"the last run on this node ended with {known.suspect}"
        if known.node != self.node:
            return _what_changed(known.node, self.node)
        if known.passed_at is None:
            return "this node has no full pass on record"
        # A pass from the future was written under a clock that has been corrected since: it proves nothing.
        if not 0 <= now - known.passed_at < every_s:
            return "the last full pass is too old"
        return ""

    def age_s(self, now: float | None = None) -> float:
        """Seconds since the last full pass."""
        passed = self.known.passed_at if self.known is not None else None
        return (time.time() if now is None else now) - (passed or 0.0)

    def passed(self) -> Record:
        """Write down that the node has passed the full set just now."""
        return self._keep(Known(self.node, time.time()))

    def ended(self, code: str) -> Record:
        """Write down how a run ended: the code of its verdict or refusal, empty for success. A record that would not
        change is left alone."""
        suspect = code if code.startswith(SUSPECT) else ""
        known = self.known or Known(self.node)
        return self._keep(dataclasses.replace(known, suspect=suspect)) if known.suspect != suspect else self

    def _keep(self, known: Known) -> Record:
        """Replace the file. Where that is not possible the next run checks again, which is all that is lost."""
        if not self.path:
            return self
        partial = f"{self.path}.{secrets.token_hex(4)}"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(to_json(known), file)
            os.replace(partial, self.path)
        except OSError as error:
            return dataclasses.replace(self, missing=f"no record can be kept: {error.strerror}")
        return dataclasses.replace(self, known=known)


def read(host: Host) -> Record:
    """The record of this node for this user."""
    snapshot = host.nvml()
    node = Node(_boot_id(host), snapshot.driver, tuple(gpu.uuid for gpu in snapshot.gpus))
    folder = _folder(host.environ)
    if not folder:
        return Record("", node, None, "no record can be kept: there is neither HOME nor XDG_CACHE_HOME")
    # Several nodes often share one home directory.
    name = hashlib.sha256(host.name().encode()).hexdigest()[:16]
    path = os.path.join(folder, "safelaunch", f"node-{name}.json")
    return Record(path, node, _load(path))


def _load(path: str) -> Known | None:
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            # What somebody else wrote must not spare this node its checks.
            known = from_json(Known, json.load(file)) if found.st_uid == os.getuid() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return known if known is not None and known.schema_version == SCHEMA_VERSION else None


def _folder(environ: Mapping[str, str]) -> str:
    # The XDG Base Directory specification: a relative path is to be ignored.
    cache = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        return cache
    home = environ.get("HOME", "")
    return os.path.join(home, ".cache") if os.path.isabs(home) else ""


def _boot_id(host: Host) -> str:
    try:
        return host.root.read(BOOT_ID).strip()
    except OSError:
        return ""


def _what_changed(before: Node, now: Node) -> str:
    if before.boot_id != now.boot_id:
        return "this node was rebooted since its last full pass"
    if before.driver != now.driver:
        return f"the GPU driver was {before.driver or 'not there'} at the last full pass and is {now.driver or 'gone'}"
    return "this node has other GPUs than at its last full pass"

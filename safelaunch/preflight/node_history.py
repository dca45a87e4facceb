"""What is known of this node from earlier runs: when it last passed the full set, and whether its last run went bad.

One small file per user and node, below the user's cache folder. It is only ever replaced whole, so runs that start
at the same time read one version or the other, and the last one to write wins. The folder may lie on a file system
that does not answer: nothing here waits for it longer than `ANSWER_S`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from dataclasses import dataclass, field

from safelaunch import user_files
from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.deadline import within
from safelaunch.model import SCHEMA_VERSION, PreflightReport
from safelaunch.preflight import CHECKS
from safelaunch.preflight.gpu.look import used_gpus
from safelaunch.preflight.machine.host import Host
from safelaunch.user_files import ANSWER_S

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SUSPECT = ("SL1", "SL6")  # a run that ended so says that the node may be bad
NODE = "node"  # beside the GPUs, what passes


@dataclass(frozen=True)
class Known:
    """The content of the file. `boot_id` and `driver` are of the last pass: after a reboot, or with another driver, a
    node is new. `passed` is when the node and each of its GPUs (by UUID) last passed, in seconds since the epoch;
    `suspect` is the code with which the last run ended, if it casts doubt on the node."""

    boot_id: str = ""
    driver: str = ""
    passed: dict[str, float] = field(default_factory=dict)
    suspect: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Record:
    """The record of one node, for a job that uses certain GPUs of it.

    Args:
        path: the file; empty where there is none.
        boot_id, driver: of the node as it is now.
        gpus: UUIDs of the GPUs that the job uses.
        known: what the file says.
        missing: why no record can be kept; then every run is the first one.
    """

    path: str
    boot_id: str
    driver: str
    gpus: tuple[str, ...]
    known: Known | None
    missing: str = ""

    def due(self, every_s: float, now: float | None = None) -> str:
        """Why the full set has to run, or nothing.

        Args:
            every_s: seconds for which a pass counts.
            now: seconds since the epoch.
        """
        known = self.known
        if known is None:
            return self.missing or "this node has no full pass on record"
        if known.suspect:
            return f"the last run on this node ended with {known.suspect}"
        if not known.passed:
            return "this node has no full pass on record"
        if known.boot_id != self.boot_id:
            return "this node was rebooted since its last full pass"
        if known.driver != self.driver:
            before, after = (driver or "none that could be read" for driver in (known.driver, self.driver))
            return f"the GPU driver was {before} at the last full pass and is {after}"
        if not set(self.gpus) <= set(known.passed):
            return "GPUs of this job have no full pass on record"
        # A pass from the future was written under a clock that has been corrected since: it proves nothing.
        return "" if 0 <= self.age_s(now) < every_s else "the last full pass is too old"

    def age_s(self, now: float | None = None) -> float:
        """Seconds since the last full pass of what the job uses."""
        passed = self.known.passed if self.known is not None else {}
        return (time.time() if now is None else now) - min((passed.get(key, 0.0) for key in self._used), default=0.0)

    @property
    def _used(self) -> tuple[str, ...]:
        return (NODE, *self.gpus)

    def passed(self, report: PreflightReport) -> Record:
        """Write down that the node, and the GPUs of the job, have passed the full set just now, if they have."""
        if not is_full_pass(report):
            return self
        known = self.known
        same = known is not None and (known.boot_id, known.driver) == (self.boot_id, self.driver)
        before = known.passed if known is not None and same else {}
        now = time.time()
        return self._keep(Known(self.boot_id, self.driver, {**before, **dict.fromkeys(self._used, now)}))

    def ended(self, code: str) -> Record:
        """Write down how a run ended: the code of its verdict or refusal, empty for success. A record that would not
        change is left alone."""
        suspect = code if code.startswith(SUSPECT) else ""
        known = self.known or Known()
        return self._keep(dataclasses.replace(known, suspect=suspect)) if known.suspect != suspect else self

    def _keep(self, known: Known) -> Record:
        """Replace the file. Where that is not possible the next run checks again, which is all that is lost."""
        if not self.path:
            return self
        try:
            within(ANSWER_S, lambda: user_files.keep(self.path, to_json(known)))
        except OSError as error:
            return dataclasses.replace(self, missing=f"no record can be kept: {error.strerror or error}")
        return dataclasses.replace(self, known=known)


def is_full_pass(report: PreflightReport) -> bool:
    """Whether a report says that the node is good: every slow check has run and could look, and nothing is an error."""
    slow = {check.name for check in CHECKS if check.full_only}
    looked = {finding.check for finding in report.findings}
    blind = {finding.check for finding in report.findings if finding.severity == "unchecked"}
    return slow <= looked and not slow & blind and not report.refused


def read(host: Host) -> Record:
    """The record of this node for this user, and for the host's job."""
    snapshot = host.nvml()
    used = used_gpus(host, snapshot) if host.job.uses_gpu else ()
    now = (host.root.text(BOOT_ID), snapshot.driver, tuple(snapshot.gpus[index].uuid for index in used))
    folder = user_files.cache(host.environ)
    if not folder:
        return Record("", *now, None, "no record can be kept: there is neither HOME nor XDG_CACHE_HOME")
    # Several nodes often share one home directory.
    name = hashlib.sha256(host.name().encode()).hexdigest()[:16]
    path = os.path.join(folder, "safelaunch", f"node-{name}.json")
    try:
        return Record(path, *now, within(ANSWER_S, lambda: _load(path)))
    except TimeoutError:
        return Record("", *now, None, f"no record can be kept: {folder} does not answer")


def _load(path: str) -> Known | None:
    try:
        document = user_files.load(path)
        known = checked(Known, document) if document is not None else None
    except (OSError, ValueError, ShapeError, RecursionError):
        return None
    return known if known is not None and known.schema_version == SCHEMA_VERSION else None

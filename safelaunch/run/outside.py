"""What a run tells those outside of it when it ends: its pod, its Slurm job, the list of bad nodes. Each with a
deadline, and none in the way of the exit code."""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Mapping

from safelaunch import bad_nodes, redaction
from safelaunch.codes import Trait, has
from safelaunch.deadline import within
from safelaunch.model import Diagnostic, Finding, PreflightReport, Settings, Verdict
from safelaunch.model.hosts import host_name
from safelaunch.preflight.between import CODES as BETWEEN_NODES
from safelaunch.report import text
from safelaunch.report import verdict as terminal
from safelaunch.run import slurm_job
from safelaunch.schedulers.policies import RETRIED

POD_MESSAGE = "/dev/termination-log"  # terminationMessagePath of a container, unless its spec says otherwise
MOST_OF_MESSAGE = 4096  # bytes: what the kubelet reads of it
ANSWER_S = 3.0
WAIT_S = 2 * slurm_job.ANSWER_S + 1.0
INTERRUPTED_S = 2.0


def pod_message(lines: Iterable[str], environ: Mapping[str, str], path: str = POD_MESSAGE) -> bool:
    """Leave the head of a verdict where Kubernetes shows it as the container's message; returns whether that is done.

    Args:
        lines: for a person.
        environ: of safelaunch.
        path: of the file, which the kubelet has made; without it there is no such message.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return False
    message = "\n".join(redaction.lines([re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]))
    data = message.encode("utf-8", "replace")[:MOST_OF_MESSAGE].decode("utf-8", "ignore").encode()

    def write() -> bool:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            file.write(data)
        return True

    try:
        return within(ANSWER_S, write)
    except OSError:  # no such file: not every pod has one
        return False


class Outside:
    """Tells them of one run.

    Args:
        settings: of the launch.
        environ: of safelaunch.
        host: this node's name.
        say: takes a line.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str], host: str, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._environ = environ
        self._host = host
        self._say = say
        self._threads: list[threading.Thread] = []

    def begin(
        self,
        verdict: Verdict | None,
        report: PreflightReport | None,
        exit_code: int,
        *,
        speaks: bool,
        left: bool = False,
    ) -> None:
        """Tell those who can be told beside the rest of the end.

        Args:
            verdict: with which the run has ended badly.
            report: of the preflight.
            exit_code: what safelaunch will exit with.
            speaks: whether this node speaks for the job.
            left: whether it has left the job, as it was to blame more than once.
        """
        last: Diagnostic
        if report is not None and report.refused:
            last = refusal(report)
            said = text.diagnostic(last)
        elif verdict is not None:
            last, said = verdict, terminal.lines(verdict, "", exit_code=exit_code)
        else:
            return
        self._aside(lambda: pod_message(said, self._environ))
        if "bad" in self._settings.nodes:
            self._aside(lambda: self._list_bad(verdict if speaks or left else None, report, left=left))
        if speaks and slurm_job.job_id(self._environ) and shutil.which("scontrol"):
            # Of a node that its own checks have refused the reason says more.
            why = f" ({last.because[0]})" if last.code in BETWEEN_NODES and last.because else ""
            headline = redaction.text(f"{last.code}: {last.summary}{why}")
            self._aside(lambda: self._comment(headline))

    def finish(self, *, interrupted: bool) -> None:
        """Wait for them, for some seconds at most."""
        for thread in self._threads:
            thread.join(INTERRUPTED_S if interrupted else WAIT_S)

    def requeue(self, verdict: Verdict | None, report: PreflightReport | None, exit_code: int) -> None:
        """Requeue the job where the user wants it, and this end is one after which another try makes sense."""
        if not self._settings["requeue"] or exit_code not in RETRIED:
            return
        if not slurm_job.job_id(self._environ):
            self._say("not requeued: --requeue is for jobs of Slurm")
            return
        hosts = self.left_out(verdict, report)
        try:
            out = slurm_job.requeue(self._environ, hosts)
        except slurm_job.RequeuedError:
            return  # whoever has done it says so
        except slurm_job.SlurmError as error:
            self._say(f"--requeue: {error}")
            return
        without = f" without {', '.join(out)}" if out else ", on any nodes: none of them is known to be bad"
        self._say(f"the job is requeued{without}")

    def left_out(self, verdict: Verdict | None, report: PreflightReport | None) -> tuple[str, ...]:
        """The nodes that a next attempt is better made without."""
        if report is not None and report.refused:
            errors = [finding for finding in report.findings if finding.severity == "error"]
            own = [self._host] if any(finding.code not in BETWEEN_NODES for finding in errors) else []
            named = [finding.where for finding in errors if has(finding.code, Trait.LEFT_OUT)]
            return (*own, *(word for where in named for word in re.split(r"[^\w.-]+", where) if word))
        if verdict is None or not has(verdict.code, Trait.LEFT_OUT):
            return ()
        return tuple(name for name in verdict.host.split(", ") if name)

    def _list_bad(self, verdict: Verdict | None, report: PreflightReport | None, *, left: bool) -> None:
        found: list[tuple[str, Diagnostic]] = []
        own = bad_nodes.own_names(self._host, self._environ)[-1]
        errors = [] if report is None else [one for one in report.findings if one.severity == "error"]
        found += [(own, finding) for finding in errors]
        if verdict is not None and verdict.host:
            is_own = bad_nodes.same(verdict.host, self._host)
            found.append((own if is_own else host_name(verdict.host), verdict))
        path = self._settings.nodes["bad"].value
        for host, one in found:
            if left or has(one.code, Trait.PROOF):
                why = redaction.text(f"{one.code}: {one.summary}")
                try:
                    if within(ANSWER_S, lambda host=host, why=why: bad_nodes.add(path, host, why)):  # type: ignore[misc]
                        self._say(f"{host} is on the list of bad nodes now: {path}")
                except OSError as error:
                    self._say(f"{host} cannot be written on the list of bad nodes: {path}: {error.strerror or error}")

    def _comment(self, text: str) -> None:
        try:
            slurm_job.comment(self._environ, text)
        except slurm_job.SlurmError as error:
            if self._settings["verbose"]:
                self._say(f"the job's comment is not written: {error}")

    def _aside(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name="outside", daemon=True)
        thread.start()
        self._threads.append(thread)


def refusal(report: PreflightReport) -> Finding:
    """The first reason for which a launch was refused."""
    return next(finding for finding in report.findings if finding.severity == "error")


def as_verdict(report: PreflightReport) -> Verdict:
    """A refusal in the form of verdicts, for those who read these."""
    found = refusal(report)
    return Verdict(
        code=found.code,
        slug=found.check,
        kind="preflight",
        summary=found.summary,
        because=found.because,
        remedy=found.remedy,
        host=report.host,
    )

"""How far a run is, for Kubeflow Trainer v2, which shows it in the status of the TrainJob.

Its controller sets the variables below where its feature TrainJobStatus is on (kubeflow/trainer, KEP-2779). A script
that says `safelaunch.heartbeat(step, total=steps)` has nothing else to do. Without a total there is no percentage, and
the number of optimizer steps is told as a metric.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safelaunch import regular
from safelaunch.pulse import Pulse
from safelaunch.shortened import shortened

URL, CA_CERT, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
EVERY_S = 10.0  # the controller asks clients to stay above 5 s
AFTER_FAULT_S = 60.0
ANSWER_S = 5.0
LAST_S = 2.0  # for the last word of a run
MOST_OF_TOKEN = 64 << 10
MOST_SAID = 200  # characters of what a server answers that is none


class TrainerProgress:
    """Reports the progress of one run, in a thread for each report.

    Args:
        environ: of safelaunch.
        tell: takes a line, once, where it cannot be reported.
        speaks: whether this node is the one that speaks for the job.
    """

    def __init__(self, environ: Mapping[str, str], tell: Callable[[str], None], speaks: Callable[[], bool]) -> None:
        self._environ = environ
        self._tell = tell
        self._speaks = speaks
        self._next = 0.0
        self._begin: tuple[float, int] | None = None  # when the first step was seen, and which it was
        self._thread: threading.Thread | None = None
        self._sent: dict[str, Any] = {}
        self._told = False

    def poll(self, pulses: Iterable[Pulse], now: float) -> None:
        """One look at the ranks of this node.

        Args:
            pulses: of ranks that live.
            now: CLOCK_MONOTONIC.
        """
        if now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + EVERY_S
        status = self._status(list(pulses), now)
        if status and status != self._sent and self._speaks():
            self._sent = status
            self._report(status)

    def end(self) -> None:
        """The run has come to a good end."""
        if self._speaks():
            if self._thread is not None:
                self._thread.join(LAST_S)
            self._report({**self._sent, "progressPercentage": 100, "estimatedRemainingSeconds": 0}).join(LAST_S)

    def _status(self, pulses: list[Pulse], now: float) -> dict[str, Any]:
        """What is known: the job is as far as its slowest rank."""
        marked = [pulse for pulse in pulses if pulse.mark_total > 0 and pulse.mark_step >= 0]
        if not marked:
            steps = min((pulse.steps for pulse in pulses if pulse.steps), default=0)
            return {"metrics": [{"name": "steps", "value": str(steps)}]} if steps else {}
        last = min(marked, key=lambda pulse: pulse.mark_step / pulse.mark_total)
        step, total = min(last.mark_step, last.mark_total), last.mark_total
        if self._begin is None or step < self._begin[1]:  # another attempt begins again at its checkpoint
            self._begin = (now, step)
        since, first = self._begin
        # 100 means that the job is complete, which is told at its end.
        status: dict[str, Any] = {"progressPercentage": min(99, 100 * step // total)}
        if step > first:
            status["estimatedRemainingSeconds"] = round((total - step) * (now - since) / (step - first))
        return {**status, "metrics": [{"name": "step", "value": str(step)}, {"name": "total", "value": str(total)}]}

    def _report(self, status: Mapping[str, Any]) -> threading.Thread:
        self._thread = threading.Thread(target=self._send, args=(status,), name="trainer-progress", daemon=True)
        self._thread.start()
        return self._thread

    def _send(self, status: Mapping[str, Any]) -> None:
        try:
            send(status, self._environ)
        # URLError and SSLError are OSErrors; what answers may be no server of HTTP.
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._next = time.monotonic() + AFTER_FAULT_S
            if not self._told:
                self._told = True
                why = getattr(error, "reason", error)
                said = shortened(str(why) or type(why).__name__, MOST_SAID)
                self._tell(f"Kubeflow Trainer is not told of the progress: {said}")


class _Stay(urllib.request.HTTPRedirectHandler):
    """The token is for this server alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


def send(status: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Post one report.

    Args:
        status: `progressPercentage`, `estimatedRemainingSeconds`, `metrics`, each where it is known.
        environ: with the server's variables.

    Raises:
        OSError, ValueError, HTTPException: it has not been taken.
    """
    updated = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = json.dumps({"trainerStatus": {**status, "lastUpdatedTime": updated}}).encode()
    request = urllib.request.Request(environ[URL], body, {"Content-Type": "application/json"}, method="POST")
    if request.type not in ("http", "https"):
        raise ValueError(f"{URL} is no address of a server")
    if path := environ.get(TOKEN):  # it is renewed while the job runs
        request.add_header("Authorization", f"Bearer {regular.read(path, MOST_OF_TOKEN).decode().strip()}")
    handlers: list[Any] = [urllib.request.ProxyHandler({}), _Stay()]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=environ.get(CA_CERT))))
    with urllib.request.build_opener(*handlers).open(request, timeout=ANSWER_S):
        pass

"""Commands of a profile that are told what becomes of a run (`[notify]`), such as one that writes to a chat.

They run one after the other in a thread, each in a session of its own and with a deadline: the run waits for none of
them but at its end, and for no longer than that.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from safelaunch import redaction
from safelaunch.codec import to_json
from safelaunch.model import Value, Verdict
from safelaunch.report import verdict as terminal

DEADLINE_S = 10.0
INTERRUPTED_S = 3.0  # whoever has interrupted a run kills it soon
MOST = 32  # messages that wait; a command that hangs must not have them pile up
MOST_OF_VARIABLE = 64 << 10  # bytes; the kernel takes 128 KiB
MOST_OF_FAULT = 200  # characters
# The status comes by the pipe, since the supervisor's loop takes the exits of all of its children.
SHELL = 'told=$(/bin/sh -c "$0" 2>&1 >/dev/null); printf "%s\\n%s" "$?" "$told"'


class Notifier:
    """Tells the commands of one run.

    Args:
        table: `[notify]` of the profiles: a command for each of `on_notice`, `on_verdict` and `on_end`; `deadline`.
        about: what each message says of the run.
        say: takes a line about a command that has failed.
        speaks: whether this node is the one that speaks for the job.
    """

    def __init__(
        self,
        table: Mapping[str, Value],
        about: Mapping[str, Any],
        say: Callable[[str], None],
        speaks: Callable[[], bool],
    ) -> None:
        self._commands = {name: str(value.value) for name, value in table.items() if name.startswith("on_")}
        self._deadline_s = float(table["deadline"].value) if "deadline" in table else DEADLINE_S
        self._about = dict(about)
        self._say = say
        self._speaks = speaks
        self._queue: queue.Queue[tuple[str, dict[str, Any]] | None] = queue.Queue(MOST)
        self._thread: threading.Thread | None = None
        self._told: set[tuple[str, str]] = set()  # notices among them
        self._ended: set[tuple[str, str]] = set()
        self.leave_alone: Callable[[int], None] = lambda _session: None  # such a session is no part of the run

    def notice(self, verdict: Verdict) -> None:
        """Of what may still end well, and of a run that is slow: each thing once."""
        if (verdict.code, verdict.summary) not in self._told:
            self._tell("on_notice", verdict)

    def verdict(self, verdict: Verdict) -> None:
        """Of what has ended an attempt."""
        self._ended.add((verdict.code, verdict.summary))
        self._tell("on_verdict", verdict)

    def verdict_once(self, verdict: Verdict) -> None:
        """The same, unless it has been told."""
        if (verdict.code, verdict.summary) not in self._ended:
            self.verdict(verdict)

    def end(self, verdict: Verdict | None, **result: Any) -> None:
        """Of the end, with the verdict if it is a bad one."""
        self._tell("on_end", verdict, **result)

    def finish(self, *, interrupted: bool) -> None:
        """Wait until all have been told, or the time is over."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)
            thread.join(min(self._deadline_s, INTERRUPTED_S) if interrupted else self._deadline_s)

    def _tell(self, event: str, verdict: Verdict | None, **more: Any) -> None:
        if verdict is not None:
            self._told.add((verdict.code, verdict.summary))
        if event not in self._commands or not self._speaks():
            return
        told = to_json(terminal.without_secrets(verdict)) if verdict is not None else None
        message = {"schema_version": 1, "event": event, "t": time.time(), **self._about, **more, "verdict": told}
        try:
            self._queue.put_nowait((event, message))
        except queue.Full:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            event, message = item
            try:
                fault = told(self._commands[event], message, self._deadline_s, self.leave_alone)
            except (OSError, ValueError) as error:
                fault = str(error)
            if fault:
                self._say(f"{event} of the profile failed: {redaction.text(fault)[:MOST_OF_FAULT]}")


def told(command: str, message: Mapping[str, Any], deadline_s: float, leave_alone: Callable[[int], None]) -> str:
    """Run a command with a message; returns what went wrong, or "".

    Args:
        command: for the shell.
        message: becomes JSON on its standard input. Its verdict is in SAFELAUNCH_VERDICT, the headline in
            SAFELAUNCH_HEADLINE, and the event in SAFELAUNCH_EVENT.
        deadline_s: seconds, after which it is killed, and all that it has started.
        leave_alone: told the session in which it runs.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        ["/bin/sh", "-c", SHELL, command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_variables(message)},
        start_new_session=True,
    )
    leave_alone(process.pid)
    try:
        said, _ = process.communicate(json.dumps(message).encode(), timeout=deadline_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return f"no end after {deadline_s:g} s"
    code, _, words = said.decode("utf-8", "replace").partition("\n")
    return "" if code == "0" else f"exit {code or 'by a signal'}: {' '.join(words.split())}".rstrip(": ")


def _variables(message: Mapping[str, Any]) -> dict[str, str]:
    verdict = message["verdict"] or {}
    text = json.dumps(verdict or None)
    if len(text) > MOST_OF_VARIABLE:
        text = json.dumps({**verdict, "traceback": "", "because": []})
    headline = f"{verdict['code']}: {verdict['summary']}" if verdict else f"exit {message.get('exit_code', 0)}"
    return {
        "SAFELAUNCH_EVENT": message["event"],
        "SAFELAUNCH_VERDICT": text if len(text) <= MOST_OF_VARIABLE else "null",
        "SAFELAUNCH_HEADLINE": "".join(char if char.isprintable() else " " for char in headline[:2000]),
    }

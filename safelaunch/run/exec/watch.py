"""The watch over all ranks below one command: a thread of its own, so that the command never waits for us."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from safelaunch.codec import to_json
from safelaunch.launch.exits import wait_for_any
from safelaunch.launch.joined import Job, Joined
from safelaunch.model import SCHEMA_VERSION, LaunchPlan, Settings, Verdict
from safelaunch.run import record
from safelaunch.run.console import Console
from safelaunch.run.exec.ends import inferred
from safelaunch.run.exec.job import JobWatch, Shared
from safelaunch.run.findings import Findings
from safelaunch.run.incidents import Incidents
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained
from safelaunch.run.this_node import ThisNode

WATCH_S = 0.25  # how often the ranks' pulses are read
SETTLING_S = 0.03
LEAST_ROOM = 64  # slots that are free: else those of older jobs are given to others
MOST_KEPT = 1000  # jobs that are over
SUPPOSE_S = 1.0  # how often it is looked for ranks that have not joined


class OfJob(Console):
    """The voice of one job among several: what it says begins with which one it is.

    Args:
        console: of all of them.
        which: tells the name of the job, empty where there is no other.
    """

    def __init__(self, console: Console, which: Callable[[], str]) -> None:
        vars(self).update(vars(console))
        self._which = which

    def aside(self, line: str) -> None:
        """One line, as of a run; see `Console`."""
        which = self._which()
        super().aside(f"({which}) {line}" if which else line)


class Watch:
    """From the first rank to the end of the command.

    Args:
        folder: in which ranks say who they are.
        settings: of `safelaunch exec`.
        plan: of the run; its directory has been made.
        console: for what is said.
        abort_after: seconds for which ranks may hang, None for any time.
        interrupted: whether the command was told to end a moment ago: what its ranks do then is no failure.
        end: called when the command is to be ended for a hang.
    """

    def __init__(
        self,
        folder: str,
        settings: Settings,
        plan: LaunchPlan,
        console: Console,
        abort_after: float | None,
        interrupted: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        self.ended_for: Verdict | None = None
        self._interrupted = interrupted
        self._settings, self._plan, self._console, self._end = settings, plan, console, end
        self._joined = Joined(folder, inferred)
        self._findings = Findings()
        self._incidents = Incidents(plan.run_dir, console, self._findings)
        self._shared = Shared(
            settings,
            console,
            self._incidents,
            self._findings,
            Judge(console),
            ThisNode(),
            plan,
            self._joined.black_box,
            abort_after,
        )
        self._seen = 0  # jobs
        self._watches: list[JobWatch] = []
        self._over: list[JobWatch] = []  # of jobs that have ended
        self._left_out = 0
        self._next_guess = 0.0
        self._started = time.time()
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="safelaunch-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self, limit_s: float) -> bool:
        """Have the thread end; whether it has."""
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def run_alone(self, linger_s: float) -> None:
        """Watch in this thread until no rank has been there for so long."""
        last = time.monotonic()
        while time.monotonic() - last < linger_s:
            self._wait()
            self.poll()
            for watch in self._watches:
                watch.tell_now()
            last = time.monotonic() if self._joined.alive else last

    def _wait(self) -> None:
        settling = any(watch.is_settling for watch in self._watches)
        living = () if settling else (member.process for member in self._joined.alive)
        wait_for_any(living, self._stop, SETTLING_S if settling else WATCH_S)

    def _run(self) -> None:
        while True:
            self._wait()
            if self._wake < 0:
                return
            with contained(self._console.degraded, "the ranks are not watched any more"):
                self.poll()
                continue
            return

    def poll(self) -> None:
        """One round over all jobs."""
        self._joined.poll()
        if time.monotonic() >= self._next_guess:
            self._next_guess = time.monotonic() + SUPPOSE_S
            self._joined.suppose()
        self._take_up()
        interrupted = self._interrupted()
        for watch in list(self._watches):
            verdict = watch.poll(interrupted or self.ended_for is not None)
            if verdict is not None:
                self.ended_for = verdict
                self._console.notice(verdict, "ending the command")
                self._end()
            if watch.is_done(short_of_room=self._joined.room < LEAST_ROOM):
                self._put_aside(watch)

    def _take_up(self) -> None:
        """Jobs that are new get their watches."""
        fresh, self._seen = self._joined.jobs[self._seen :], len(self._joined.jobs)
        for job in fresh:
            console = OfJob(self._console, lambda job=job: self._name(job))  # type: ignore[misc]
            self._watches.append(JobWatch(job, self._shared, console))

    def _put_aside(self, watch: JobWatch) -> None:
        """A job is over, and others get its slots: a command may have thousands of them."""
        self._watches.remove(watch)
        self._joined.forget(watch.job)
        self._over.append(watch)
        if len(self._over) > MOST_KEPT:
            del self._over[0]
            self._left_out += 1

    def _name(self, job: Job) -> str:
        return f"job of {job.where}" if len(self.watched) > 1 else ""

    def conclude(self, exit_code: int | None) -> None:
        """All is over: the last words, and result.json.

        Args:
            exit_code: what the command ended with, or what we end with in its place; None where there is no command.
        """
        with contained(self._console.degraded, "what the ranks did last is not known"):
            self._joined.poll()
            self._take_up()  # a command may have ended before the first round
        verdicts = []
        for watch in self._all:
            with contained(self._console.degraded, "not all of the verdict is known"):
                verdicts.append((watch, watch.last_word(exit_code or 0, self._interrupted())))
        told = [(watch, verdict) for watch, verdict in verdicts if verdict is not None]
        if exit_code is None:
            for watch, _ in told:
                watch.tell_now()
        elif told and exit_code != 0:
            self._tell_last(told, exit_code)
        self._write(exit_code or 0, [verdict for _, verdict in told])
        self._incidents.write_pages()

    def _tell_last(self, told: list[tuple[JobWatch, Verdict]], exit_code: int) -> None:
        watch, verdict = next((one for one in told if one[1] is self.ended_for), told[-1])
        if name := self._name(watch.job):
            self._console.say(f"of the {name}:")
        self._console.last_verdict(verdict, watch.folder, exit_code)

    @property
    def _all(self) -> list[JobWatch]:
        return sorted([*self._over, *self._watches], key=lambda watch: watch.job.number)

    @property
    def watched(self) -> list[Job]:
        """The jobs whose ranks have made a process group."""
        return [job for job in self._joined.jobs if job.watched]

    @property
    def alive(self) -> int:
        """How many ranks have not ended."""
        return len(self._joined.alive)

    def _slow(self) -> list[Verdict]:
        return [each for watch in self._all for each in (*watch.hangs.slow, *watch.slow.all_verdicts)]

    def _write(self, exit_code: int, verdicts: list[Verdict]) -> None:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self._plan.run_id,
            "run_dir": self._plan.run_dir,
            "exit_code": exit_code,
            "exit_status": exit_code,
            "interrupted": self._interrupted(),
            "preempted": None,
            "started": self._started,
            "elapsed_s": round(time.time() - self._started, 3),
            "attempts": to_json([watch.group for watch in self._all]),
            "jobs": [{"meeting": list(w.job.meeting), "world_size": w.job.world_size} for w in self._all],
            "jobs_left_out": self._left_out,
            "findings": to_json(self._findings.heard),
            "verdicts": to_json([*self._slow(), *verdicts]),
            "abandoned_pids": [],
            "spare": False,
        }
        record.of_result(document, self._plan.run_dir, self._settings["json"], self._console, 1.0)

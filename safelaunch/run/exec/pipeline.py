"""One run of `safelaunch exec` on one screen."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch import injection, procfs
from safelaunch.launch.command import CannotStart, Command
from safelaunch.model import SafelaunchError, Settings

if TYPE_CHECKING:
    from safelaunch.run.console import Console
    from safelaunch.run.exec.watch import Watch

LOOK_S = 0.5  # how often it is looked for a first rank
TERM_S = 5.0  # what a command that is ended for a hang gets to end
KILL_WAIT_S = 2.0  # after SIGKILL only what the kernel holds is still there
LAST_S = 15.0  # for the last evidence and the verdict; a second signal ends it at once
EXIT_HANG = 124
SHOWN = 4  # jobs


class Exec:
    """One command, from its start to its end.

    Args:
        settings: `verbose`, `quiet`, `color`, `run_dir`, `json`, `hang_abort_after`.
        words: of the command.
    """

    def __init__(self, settings: Settings, words: Sequence[str]) -> None:
        self._settings, self._words = settings, list(words)
        self._folder = ""
        self._watch: Watch | None = None
        self._console_made: Console | None = None
        self._over = threading.Event()
        self._woken, self._wake = os.pipe()
        self._why_not = ""

    @property
    def console(self) -> Console:
        """Made when there is something to say: most commands give no reason."""
        if self._console_made is None:
            from safelaunch.run.console import Console

            self._console_made = Console(self._settings)
        return self._console_made

    def run(self) -> int:
        """Run it; returns the exit code.

        Raises:
            CannotStart: there is no such command, or it cannot be executed.
        """
        command = Command(self._words)
        environ = self._armed(dict(os.environ))
        try:
            command.start(environ)
            if self._why_not:
                self.console.say(f"warning[SL902]: the ranks of this command are not watched: {self._why_not}")
            looking = threading.Thread(target=self._look_for_ranks, args=(command,), daemon=True)
            looking.start()
            code = command.wait(self._woken, lambda: None)
            self._over.set()
            return self._end(command, looking, code)
        finally:
            if self._console_made is not None:
                self._console_made.finish()
            if self._folder and not (self._watch is not None and self._watch.alive):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _armed(self, environ: dict[str, str]) -> dict[str, str]:
        """The environment that arms every Python below; as it is where that cannot be."""
        injection.step_back(environ)  # one further up: this one takes over
        for name in injection.OF_RANKS:  # so it does below a rank of ours
            environ.pop(name, None)
        try:
            if not injection.can_be_named():
                raise OSError(f"PYTHONPATH cannot name {injection.FOLDER}")
            from safelaunch.launch import joined, run_dir

            self._folder = run_dir.create_scratch(os.urandom(8).hex(), os.getcwd())
            joined.prepare(self._folder)
        except (OSError, SafelaunchError) as error:
            self._why_not = str(error)
            return environ
        return environ | {
            injection.EXEC: self._folder,
            "PYTHONPATH": injection.pythonpath(environ.get("PYTHONPATH")),
        }

    # ------------------------------------------------------------------------------------------ the thread

    def _look_for_ranks(self, command: Command) -> None:
        """Most commands never have a rank: the watch is loaded for the first one."""
        while self._folder and not self._over.wait(LOOK_S):
            if self._has_ranks():
                self._begin(command)
                return

    def _has_ranks(self) -> bool:
        with contextlib.suppress(OSError):
            return any(name.startswith("slot.") for name in os.listdir(self._folder))
        return False

    def _begin(self, command: Command) -> None:
        from safelaunch.run import record
        from safelaunch.run.exec.plan import plan
        from safelaunch.run.exec.watch import Watch
        from safelaunch.run.own_faults import contained

        with contained(self.console.degraded, "the ranks of this command are not watched"):
            made = plan(self._settings, self._folder, self._words)
            record.of_start(self._settings, made, ["exec", "--", *self._words], self.console)
            for line in made.warnings:
                self.console.say(line)
            limit = self._settings["hang_abort_after"]
            self._watch = Watch(
                self._folder,
                self._settings,
                made,
                self.console,
                limit,
                lambda: command.interrupted,
                lambda: self._end_command(command),
            )
            self._watch.start()

    def _end_command(self, command: Command) -> None:
        """End it as a launcher is ended, and what it has left as the kernel ends it."""
        below = procfs.descendants(command.pid, procfs.scan())
        command.send(signal.SIGTERM)
        command.send(signal.SIGCONT)
        procfs.left_after(below, TERM_S)
        procfs.end(below, signal.SIGKILL)
        command.send(signal.SIGKILL)
        procfs.left_after(below, KILL_WAIT_S)

    # --------------------------------------------------------------------------------------------- the end

    def _end(self, command: Command, looking: threading.Thread, code: int) -> int:
        looking.join(LAST_S)
        if self._watch is None and self._has_ranks():
            self._begin(command)  # it was over before the first look
        watch = self._watch
        if watch is None:
            self._tell_unarmed()
            return code
        if not watch.stop(LAST_S):
            return code
        code = EXIT_HANG if watch.ended_for is not None else code
        last = threading.Thread(target=watch.conclude, args=(code,), daemon=True)
        last.start()
        until = time.monotonic() + LAST_S
        while last.is_alive() and time.monotonic() < until and not command.interrupts(0.02):
            pass
        self._tell_what_was_seen(watch)
        return code

    def _tell_unarmed(self) -> None:
        if int(self._settings["verbose"]) and self._folder:
            armed = os.path.exists(os.path.join(self._folder, "armed"))
            none = (
                "no process has joined a process group"
                if armed
                else (
                    "no Python below this command was armed (none ran, or with -E, -I or -S, or a cleared environment)"
                )
            )
            self.console.say(f"{none}: there was nothing to watch")

    def _tell_what_was_seen(self, watch: Watch) -> None:
        if not int(self._settings["verbose"]):
            return
        jobs = [job.where for job in watch.watched]
        count = f"{len(jobs)} job{'s' * (len(jobs) != 1)}"
        more = ", ..." if len(jobs) > SHOWN else ""
        self.console.say(
            f"watched {count}: {', '.join(jobs[:SHOWN])}{more}" if jobs else "no process has joined a process group"
        )
        if watch.alive:
            live = "1 rank lives" if watch.alive == 1 else f"{watch.alive} ranks live"
            self.console.say(f"{live} on, and nobody watches any more")


__all__ = ["CannotStart", "Exec"]

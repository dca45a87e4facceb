"""What a run says on stderr, and in which words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from safelaunch.model import Finding, Settings, Verdict
from safelaunch.printable import Line, whole
from safelaunch.report import palette, text
from safelaunch.report import verdict as terminal
from safelaunch.run.output import STALL_S, Output


class Console:
    """The voice of one run. All of it returns at once, whoever reads.

    Args:
        settings: of the launch: how much is said (`-v`, `-q`), and in which colours.
    """

    def __init__(self, settings: Settings) -> None:
        self.loud = int(settings["verbose"]) - int(settings["quiet"])
        self.palette = palette.for_stream(sys.stderr, settings["color"])
        self._output = Output(sys.stderr)
        self.heard: Callable[[Verdict], None] = lambda _verdict: None  # also told of verdicts on a run that goes on

    def print(self, lines: Iterable[Line]) -> None:
        """Lines, whole and in order."""
        self._output.write(lines)

    def say(self, line: str) -> None:
        """One line, unless the user asked for silence."""
        if self.loud >= 0:
            self.print([whole("safelaunch: ", line)])

    def degraded(self, what: str) -> None:
        """A part of the watching or of the checks is missing, and the run goes on as it would under torchrun.

        Example:
            warning[SL902]: TORCH_FR_BUFFER_SIZE=0: a rank that hangs in a call of NCCL will not be noticed

        How it was concluded: this torch, Python, kernel or setting does not allow it, a file could not be written, or
        that part of safelaunch failed itself. The message names what is missing. Verdicts may then lack a stack, a
        traceback or the tensor sizes of the last collective, or not be made.

        What to do: mend what the message names, where it is a setting or a full disk. Report what it calls safelaunch's
        own fault.

        What it is not: a failure of the job, or of safelaunch as a whole (SL901).
        """
        self.say(f"warning[SL902]: {what}")

    def finding(self, finding: Finding) -> None:
        """A finding about the node or the launch: in full where it refuses the launch, else in a line."""
        if finding.severity == "error":
            self.print(text.diagnostic(finding, palette=self.palette))
        elif finding.severity in ("note", "warning") or (finding.severity == "unchecked" and self.loud > 0):
            self.say(text.diagnostic(finding, palette=self.palette)[0])

    def findings(self, findings: Iterable[Finding]) -> None:
        """Findings about environment and devices: a line with what to do, or all of it where the user wants more."""
        for finding in findings:
            if self.loud > 0 or finding.severity == "error":
                self.print(text.diagnostic(finding, palette=self.palette))
            else:
                self.say(text.short(finding, self.palette))

    def aside(self, line: str) -> None:
        """One line while ranks write to the same place: what they have written last may be half a line, such as a
        prompt or a bar of progress, and nothing is to be put behind it."""
        if self.loud >= 0:
            self._output.write_anew([whole("safelaunch: ", line)])

    def notice(self, verdict: Verdict, next_step: str) -> None:
        """A verdict in one line, and what happens next."""
        self.heard(verdict)
        self.aside(f"{terminal.headline(verdict)}; {next_step}")

    def slow_verdict(self, verdict: Verdict, folder: str) -> None:
        """A verdict while the run goes on."""
        self.heard(verdict)
        if self.loud >= 0:
            self._anew(terminal.lines(verdict, folder, palette=self.palette))

    def last_verdict(self, verdict: Verdict, folder: str, exit_code: int) -> None:
        """The verdict with which the run ends; silence does not keep it back."""
        self._anew(terminal.lines(verdict, folder, exit_code=exit_code, palette=self.palette))

    def _anew(self, lines: Iterable[Line]) -> None:
        self._output.write_anew(lines)

    def finish(self, stall_s: float = STALL_S) -> None:
        """Wait until all is written, or until nothing of it has been read for `stall_s` seconds."""
        self._output.finish(stall_s)

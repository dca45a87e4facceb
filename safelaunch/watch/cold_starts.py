"""Scripts that change what an import looks at, in ranks that were forked from a process which had done the import."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.model import ColdStart, Finding, WorkerGroup, WorkerProcess


class ColdStarts:
    """Tells of each change once, whichever rank made it first.

    Args:
        read: what a rank has said.
        place: a file and a line, as they are shown.
        say: prints a line.
        remember: keeps what the script does for the next start.
    """

    def __init__(
        self,
        read: Callable[[WorkerProcess], ColdStart | None],
        place: Callable[[str, int], str],
        say: Callable[[str], None],
        remember: Callable[[str], None],
    ) -> None:
        self._read = read
        self._place = place
        self._say = say
        self._remember = remember
        self._told: set[tuple[str, bool]] = set()

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:  # noqa: ARG002  it never waits
        """What is new; the start of a rank again is only said."""
        found: list[Finding] = []
        for said in filter(None, map(self._read, group.workers)):
            if (said.changed, bool(said.too_late)) in self._told:
                continue
            self._told.add((said.changed, bool(said.too_late)))
            self._remember(said.changed)
            what = f"the script {said.changed} before {self._place(said.file, said.line)} imports {said.module}"
            if said.too_late:
                found.append(too_late(what, said.too_late))
            else:
                self._say(f"cold start: {what}; from now on this script starts cold at once")
        return found


def too_late(what: str, why: str) -> Finding:
    """What the script has changed before an import has no effect in this run. The start was warm, and the module had
    been imported before.

    Example:
        warning[SL903]: the script sets PYTORCH_JIT before train.py:4 imports torch, without effect in this run: it had
            written something before

    How it was concluded: ranks are forked from a process that has imported torch. At the first import of such a module
    by the script, the rank compares what an import looks at: variables, CPUs, finders, modules put in front. Where it
    differs, the rank starts again by itself, from the first line of the script. It does not where the script has done
    by then what must not be done twice:
    - it has printed or written;
    - it has started a thread or a process, or is itself a process below the rank;
    - it has read its input, or changed its streams or its priority;
    - it has opened a connection, or may have used something else outside.

    What to do: start it again. From now on this script starts cold; `--no-warm-start` always does.

    What it is not: a change before which the rank could start again. Then a line says so, and the change has its
    effect.
    """
    return Finding(
        code="SL903",
        severity="warning",
        summary=f"{what}, without effect in this run: {why}",
        remedy="start it again: this script is cold from now on; or say --no-warm-start",
        check="warm-start",
    )

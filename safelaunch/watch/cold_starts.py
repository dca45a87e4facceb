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
    """What the script has changed before an import has no effect in this run: the start was warm, the module had been
    imported before, and the rank could not start again.

    Ranks are forked from a process that has imported torch. At the first import of such a module by the script the rank
    compares what an import looks at: variables that are read then, CPUs, finders, modules put in front. Where it
    differs, the rank starts again by itself, from the first line of the script. It does not where the script has done
    something by then that must not be done twice: it has printed or written, started a thread or a process, read its
    input, or opened a connection. From now on this script starts cold; `--no-warm-start` always does.
    """
    return Finding(
        code="SL903",
        severity="warning",
        summary=f"{what}, without effect in this run: {why}",
        remedy="start it again: this script is cold from now on; or say --no-warm-start",
        check="warm-start",
    )

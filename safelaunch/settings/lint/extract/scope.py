"""What a script has set so far: its variables, which of them are exported, and what was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from safelaunch.settings.lint.extract.words import UNKNOWN, Token, known

Path = tuple[int, ...]
Branches = tuple[tuple[int, int], ...]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTAINER_PREFIX = re.compile(r"(?:APPTAINER|SINGULARITY)ENV_(?!(?:PRE|AP)PEND_PATH\Z)")
_LONGEST = 4096  # characters of a value that others may take over by $X
_CANDIDATES = 32  # of one name; a file with more branches than that has no one value to report


class Assignment(NamedTuple):
    """One variable that a file sets for a program, with the line of its value; None where that is not known."""

    name: str
    value: str | None
    line: int


class Command(NamedTuple):
    """A command of a file: its words as they stand there, and what they say as far as that is known.

    `around` are the programs that run it, the outermost first (`srun bash -c '...'`), `loop` that it is run more than
    once, `resources` what its container asks for, `top` that the shell of the file itself runs it.
    """

    words: tuple[Token, ...]
    texts: tuple[str, ...]
    around: tuple[tuple[str, ...], ...]
    loop: bool
    resources: tuple[tuple[str, str], ...]
    top: bool


class Found:
    """What was found, in order; the same name, value and line only once."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.directives: list[tuple[str, str, int]] = []  # the head, such as #SBATCH, what follows it, the line
        self.jobs: list[tuple[str, int]] = []  # scripts with #SBATCH lines that the file writes or submits, their lines
        self.blocks: list[tuple[str, int, int]] = []  # examples in a text: the kind of each, its first and last line
        self.early: list[tuple[Token, int]] = []  # words and documents in which the shell of the file expands variables
        self.programs = 0  # started so far
        self._all: list[Assignment | None] = []
        self._paths: list[Path] = []
        self._forks: dict[int, int] = {}
        self._seen: set[Assignment] = set()
        self._standing: dict[str, list[tuple[int, int, Path]]] = {}
        self.branches = 0
        self.unread: list[tuple[int, str]] = []
        self.torn: list[range] = []  # lines that its grammar could not place; some of them were read all the same

    def branch(self, fork: int = 0) -> int:
        """A number for a branch that none before it has. Of those with the same `fork`, only one is ever taken."""
        self.branches += 1
        if fork:
            self._forks[self.branches] = fork
        return self.branches

    def with_branches(self) -> Iterator[tuple[Assignment, Branches]]:
        """What was found, each with the branches that lead to it: pairs of a fork and the way that is taken there."""
        for assignment, path in zip(self._all, self._paths, strict=True):
            if assignment is not None:
                yield assignment, tuple((self._forks[at], at) for at in path if at in self._forks)

    def part(self, first: int, last: int) -> Found:
        """The commands and directives of these lines alone."""
        part = Found()
        part.commands = [command for command in self.commands if first <= command.words[0].line <= last]
        part.directives = [each for each in self.directives if first <= each[2] <= last]
        part.early = [each for each in self.early if first <= each[0].line <= last]
        return part

    def unreadable(self, line: int, why: str) -> None:
        """Note that the text from a line on could not be read."""
        self.unread.append((line, why))

    def __iter__(self) -> Iterator[Assignment]:
        return (assignment for assignment in self._all if assignment is not None)

    @property
    def size(self) -> int:
        """How many settings were found."""
        return len(self._all)

    def add(self, name: str, value: str, line: int, standing: Path | None = None, path: Path = ()) -> None:
        """Note one setting.

        Args:
            name: of the variable; APPTAINERENV_X is X in the container.
            value: its text, with UNKNOWN in it where it is not known.
            line: where the value stands.
            standing: the branch whose later commands all see it; None if only one command does.
            path: the branch of that command.
        """
        name = _CONTAINER_PREFIX.sub("", name, count=1)
        assignment = Assignment(name, known(value), line)
        if not _NAME.fullmatch(name) or assignment in self._seen:
            return
        self._seen.add(assignment)
        if standing is not None:
            self._standing.setdefault(name, []).append((len(self._all), self.programs, standing))
        self._all.append(assignment)
        self._paths.append(path if standing is None else standing)

    def take_back(self, name: str, path: Path) -> None:
        """Forget what `unset` undoes: settings of the same branch that no program has seen yet."""
        for index, programs, where in self._standing.pop(name, []):
            assignment = self._all[index]
            if programs == self.programs and where[: len(path)] == path and assignment is not None:
                self._seen.discard(assignment)
                self._all[index] = None


@dataclass
class Candidate:
    """One value that a variable may have, and the branch in which it gets it.

    `raw` is the text after `=`; `words` are its words where it has several, as in `ARGS="-e X=1"`.
    """

    path: Path
    value: str
    line: int
    raw: str = ""
    words: tuple[Token, ...] = ()
    local: bool = False
    noted: bool = False


class Scope:
    """The variables of a script or of a subshell in it.

    A value that is set in one branch does not hide that of another: all branches count. It hides those before it in
    the same branch.

    Args:
        found: takes what is exported.
        parent: the scope around, whose variables are seen but not changed.
    """

    def __init__(self, found: Found, parent: Scope | None = None) -> None:
        self.found = found
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.path: Path = parent.path if parent else ()
        self.around: tuple[tuple[str, ...], ...] = parent.around if parent else ()
        self.loop: bool = parent.loop if parent else False
        self.resources: tuple[tuple[str, str], ...] = parent.resources if parent else ()
        self.all_exported: bool = parent.all_exported if parent else False
        self._variables: dict[str, list[Candidate]] = {}
        self._exported: dict[str, bool] = {}

    def inside(self, texts: tuple[str, ...]) -> Scope:
        """The scope of a script that these words of a command run."""
        inner = Scope(self.found, self)
        inner.around = (*self.around, texts)
        return inner

    def candidates(self, name: str) -> list[Candidate]:
        """All values that the variable may have here: the last one that is sure, and those of branches after it."""
        found = self._all(name)
        for index in range(len(found) - 1, 0, -1):
            if self.path[: len(found[index].path)] == found[index].path:
                return found[index:]
        return found

    def _all(self, name: str) -> list[Candidate]:
        scope: Scope | None = self
        while scope is not None and name not in scope._variables:
            scope = scope.parent
        return scope._variables[name] if scope is not None else []

    def exported(self, name: str) -> bool:
        """Whether programs that are started here get the variable, as far as the file says so."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._exported:
                return scope._exported[name]
            scope = scope.parent
        return False

    def lookup(self, name: str, certain: bool) -> str | None:
        """The value of a variable; see `words.Lookup`."""
        candidates = self.candidates(name)
        if not candidates:
            return None
        if certain and not any(self.path[: len(candidate.path)] == candidate.path for candidate in candidates):
            return UNKNOWN
        value = candidates[-1].value
        same = all(candidate.value == value for candidate in candidates)
        return value if same and len(value) <= _LONGEST else UNKNOWN

    def assign(
        self, name: str, value: str, line: int, raw: str = "", words: tuple[Token, ...] = (), local: bool = False
    ) -> None:
        """`name=value`: a setting if the name is exported, now or before."""
        new = Candidate(self.path, value, line, raw, words, local)
        depth = len(self.path)
        kept = [old for old in self._all(name) if old.path[:depth] != self.path]
        self._variables[name] = [*kept[1 - _CANDIDATES :], new]
        if self.all_exported or self.exported(name):
            self._exported[name] = True
            self._note(name, new)

    def mark(self, name: str) -> None:
        """From now on programs get the variable; what it held before is no setting yet."""
        self._exported[name] = True

    def export(self, name: str) -> None:
        """`export name`: each value it may have becomes a setting, with the line on which it got it."""
        self._exported[name] = True
        for candidate in self.candidates(name):
            self._note(name, candidate)

    def _note(self, name: str, candidate: Candidate) -> None:
        if not candidate.local and not candidate.noted:
            candidate.noted = True
            self.found.add(name, candidate.value, candidate.line, self.path)

    def hide(self, name: str) -> None:
        """`export -n name`: programs do not get it any longer."""
        self._exported[name] = False
        self.found.take_back(name, self.path)

    def unset(self, name: str) -> None:
        """`unset name`."""
        self.hide(name)
        self._variables[name] = [Candidate(self.path, "", 0, local=True)]

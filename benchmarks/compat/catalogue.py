"""The programs: what stands in `programs/*.toml`, one file for each family.

A family is a TOML document. Keys of `Program` at its top hold for all of its programs; each table of `[programs]` is
one of them, with keys of its own. `script` is the text of `train.py`, in which `$word` stands for the string `word` of
the table or of the family: one `script` of a family makes a program of each row of words.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "known.toml"
SCRIPT = "train.py"


@dataclass(frozen=True)
class Program:
    """A program, and how it is launched.

    What it prints is compared line by line, but for lines that begin with one of these words:

    - `own: KEY VALUE`: the value must be another one on each rank, in each restart and in each run
    - `same: KEY VALUE`: the value must be the same on all ranks of an attempt; other runs may have another

    Args:
        name: `family/program`.
        shows: one line: what it is about.
        files: texts by their path in the folder that it runs in.
        command: what comes after the options of the launcher: script, or `-m` and module, and arguments.
        options: of the launcher.
        ranks: how many.
        environ: variables beside those of `launching.environment`; `{folder}` is the folder that it runs in. PYTHONPATH
            comes before what the launcher itself needs there.
        stdin: text; None for /dev/null.
        wrapper: words that come before the launcher's command.
        prepare: Python to be run in the folder before the launch, to make what is no text.
        after: Python to be run in the folder after the launch; what it prints is compared.
        unlike: patterns of files (their names) whose content differs from run to run.
        ignore: regular expressions of lines of the ranks' stderr that differ from run to run.
        redirected: False to have the ranks write to the launcher's own streams; then only whole lines of stdout are
            compared, in any order.
        signal: name of a signal for the launcher, sent once each rank has made a file `ready-RANK`.
        needs: modules to import; where one is missing the program is left out.
        ci: whether it is one of the few that the tests run.
        timeout: seconds for a launch.
    """

    name: str
    shows: str
    files: Mapping[str, str]
    command: Sequence[str] = (SCRIPT,)
    options: Sequence[str] = ()
    ranks: int = 1
    environ: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None
    wrapper: Sequence[str] = ()
    prepare: str = ""
    after: str = ""
    unlike: Sequence[str] = ()
    ignore: Sequence[str] = ()
    redirected: bool = True
    signal: str = ""
    needs: Sequence[str] = ()
    ci: bool = False
    timeout: float = 90.0

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    def missing(self) -> str:
        """The first module that it needs and that is not installed; "" for none."""
        return next((name for name in self.needs if importlib.util.find_spec(name) is None), "")


@dataclass(frozen=True)
class Known:
    """A difference that is meant to be, or that nothing can be done about.

    Args:
        programs: pattern of their names.
        launcher: in which it is seen: `warm`, `cold`, or `*` for both.
        what: of the difference, as `comparing.Difference` has it.
        reason: one sentence.
    """

    programs: str
    launcher: str
    what: str
    reason: str

    def covers(self, program: str, launcher: str, what: str) -> bool:
        pairs = ((program, self.programs), (launcher, self.launcher), (what, self.what))
        return all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs)


KEYS = {field.name for field in fields(Program)}  # of a table; other ones are words of its script


def known_differences(path: Path = KNOWN) -> list[Known]:
    """The table of known differences."""
    return [Known(**row) for row in tomllib.loads(path.read_text())["known"]]


def programs(folder: Path = HERE / "programs") -> list[Program]:
    """All programs, by family.

    Raises:
        ValueError: a table has a key that nobody reads, or lacks a word of its script.
    """
    return [program for path in sorted(folder.glob("*.toml")) for program in _family(path)]


def families(folder: Path = HERE / "programs") -> dict[str, str]:
    """What each family is about."""
    return {path.stem: tomllib.loads(path.read_text())["about"] for path in sorted(folder.glob("*.toml"))}


def _family(path: Path) -> Iterator[Program]:
    family = tomllib.loads(path.read_text())
    rows = family.pop("programs")
    del family["about"]
    for name, row in rows.items():
        try:
            yield _program(f"{path.stem}/{name}", family, row)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path.name}, {name}: {error!r}") from error


def _program(name: str, family: Mapping[str, Any], row: Mapping[str, Any]) -> Program:
    merged = {**family, **row}
    script = string.Template(merged.pop("script"))
    words = {key for key in merged if key not in KEYS}
    unread = {key for key in words & set(row) if f"${key}" not in script.template}
    if unread:
        raise ValueError(f"nobody reads {unread}")
    text = script.substitute({word: merged.pop(word).strip("\n") for word in words})
    files = {SCRIPT: text.lstrip("\n"), **merged.pop("files", {})}
    return Program(name=name, files=files, **merged)

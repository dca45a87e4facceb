"""The environment variables that a file of somebody else sets: shell scripts, job specs, Dockerfiles."""

from __future__ import annotations

from pathlib import Path

from safelaunch.model import Origin
from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.readers import read_as
from safelaunch.settings.lint.extract.scope import Found, Scope


def extract(path: str, text: str) -> tuple[Setting, ...]:
    """Every variable that the file sets for the programs it starts, in the order of the file.

    Nothing is run. A value is None where only a run can tell it: `export X=$(command)`, `$X` of a variable that the
    file does not set, a template. `${X:-default}` is the default. All branches count. What `unset` takes back before
    any program is started is left out. The line is that of the value: for `X=1` and `export X` below, that of `X=1`.

    Args:
        path: the name of the file, which tells what kind it is and stands in the origins.
        text: what is in it.
    """
    text = _plain(text)
    kind = kind_of(path, text)
    if kind == "python":
        from safelaunch.settings.lint.script import assignments  # which also tells what comes too late

        return assignments(text, path)
    found = Found()
    if kind:
        read_as(kind, text, 1, Scope(found))
    return tuple(Setting(name, value, Origin("file", f"{path}:{line}")) for name, value, line in found)


def reads(path: str, text: str) -> frozenset[str]:
    """The names of variables that the file makes use of itself: `source $X` in a script, `os.environ["X"]` in Python.

    Args:
        path: the name of the file, which tells what kind it is.
        text: what is in it.
    """
    text = _plain(text)
    if kind_of(path, text) == "python":
        from safelaunch.settings.lint.script import names

        return names(text)
    from safelaunch.settings.lint.extract.uses import used

    return used(text)


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read(path: Path) -> str:
    """The text of a file, whatever its encoding: a byte that is not UTF-8 is read as Latin-1.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")

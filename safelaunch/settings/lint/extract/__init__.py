"""The environment variables that a file of somebody else sets: shell scripts, job specs, Dockerfiles."""

from __future__ import annotations

from pathlib import Path

from safelaunch.model import Origin
from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.readers import read_as
from safelaunch.settings.lint.extract.scope import Found, Scope

WHOLE = 4 << 20  # characters of a text that is read at once
PIECE = 1 << 18
MOST_SETTINGS = 20_000
BY_LINES = frozenset({"shell", "env", "plain-env"})
# A variable that the catalogue may know, or a launcher: what a job's file has in it.
INTEREST = (
    "NCCL_", "TORCH", "GLOO_", "CUDA_", "CUBLAS_", "OMP_", "MKL_", "NVIDIA_VISIBLE", "FI_EFA", "FI_PROVIDER",
    "torch.distributed.", "torchrun", "srun", "safelaunch", "accelerate launch", "deepspeed",
)  # fmt: skip


def extract(path: str, text: str) -> tuple[Setting, ...]:
    """Every variable that the file sets for the programs it starts, in the order of the file.

    Nothing is run. A value is None where only a run can tell it: `export X=$(command)`, `$X` of a variable that the
    file does not set, a template. `${X:-default}` is the default. All branches count. What `unset` takes back before
    any program is started is left out. The line is that of the value: for `X=1` and `export X` below, that of `X=1`.

    Args:
        path: the name of the file, which tells what kind it is and stands in the origins.
        text: what is in it.
    """
    text = plain(text)
    kind = kind_of(path, text)
    return of_python(path, text) if kind == "python" else settings(path, found(kind, text))


def of_python(path: str, text: str) -> tuple[Setting, ...]:
    """What a Python program sets, and what it had done before."""
    from safelaunch.settings.lint.script import assignments  # which also tells what comes too late

    return assignments(text, path)


def found(kind: str, text: str) -> Found:
    """All that a text of a kind says: see `extract`.

    Args:
        kind: one of READERS, or "" for a text that no program can read settings from.
        text: with \\n between its lines.
    """
    result = Found()
    if not kind:
        return result
    if len(text) <= WHOLE:
        read_as(kind, text, 1, Scope(result))
    elif kind in BY_LINES:
        _in_pieces(kind, text, result)
    else:
        result.unreadable(1, f"it has more than {WHOLE >> 20} million characters")
    return result


def _in_pieces(kind: str, text: str, result: Found) -> None:
    """Read a text that is larger than any script: only pieces that name a variable of interest, up to a number of
    settings that no job has."""
    scope = Scope(result)
    line, start = 1, 0
    while start < len(text):
        end = text.find("\n", start + PIECE) + 1 or len(text)
        piece = text[start:end]
        if any(word in piece for word in INTEREST):
            read_as(kind, piece, line, scope)
        line += piece.count("\n")
        start = end
        if result.size > MOST_SETTINGS and start < len(text):
            result.unreadable(line, f"{result.size} variables stand above, more than any job sets")
            return


def settings(path: str, said: Found) -> tuple[Setting, ...]:
    """What was found in a file as settings, with their lines."""
    return tuple(
        Setting(name, value, Origin("file", f"{path}:{line}"), branches=branches)
        for (name, value, line), branches in said.with_branches()
    )


def reads(path: str, text: str) -> frozenset[str]:
    """The names of variables that the file makes use of itself: `source $X` in a script, `os.environ["X"]` in Python.

    Args:
        path: the name of the file, which tells what kind it is.
        text: what is in it.
    """
    text = plain(text)
    if kind_of(path, text) == "python":
        from safelaunch.settings.lint.script import names

        return names(text)
    from safelaunch.settings.lint.extract.uses import used

    return used(text)


def plain(text: str) -> str:
    """A text without a byte order mark, with \\n between its lines."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read(path: Path) -> str:
    """The text of a file, whatever its encoding.

    Raises:
        OSError: the file cannot be read.
    """
    return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    """A text in whatever encoding: a byte that is not UTF-8 is read as Latin-1."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")

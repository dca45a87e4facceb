"""Profiles: TOML files that give a launch its environment, timeouts and options. Find them, read them, order them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from safelaunch import codes, regular, toml, user_files
from safelaunch.model import Origin, SafelaunchError, Value
from safelaunch.settings import schema
from safelaunch.settings.spelling import did_you_mean
from safelaunch.settings.toml_lines import KeyPath, key_lines, line_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SUFFIX = ".toml"
SIGNATURES: KeyPath = ("diagnosis", "signatures")
BAD_NODES: KeyPath = ("nodes", "bad")


@dataclass(frozen=True)
class Profile:
    """One profile file, checked. `values` maps the path of each setting to its value and `file:line`; `unset` are the
    names of variables that it takes away."""

    name: str
    path: str
    description: str
    extends: tuple[Value, ...]
    values: dict[KeyPath, Value]
    unset: tuple[Value, ...] = ()

    @property
    def identity(self) -> str:
        """The file itself, however it was named."""
        return os.path.realpath(self.path)


# ------------------------------------------------------------------------------------------------ finding


def shipped_folder() -> str:
    """The folder of the shipped profiles: inside the package when installed, beside it in a source tree."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = os.path.join(package, "profiles")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "profiles")


def user_folder(environ: Mapping[str, str]) -> str:
    """The folder of the user's own profiles, which may not exist."""
    return user_files.config(environ, "profiles")


def available(environ: Mapping[str, str]) -> dict[str, str]:
    """The path of every profile that can be named; the user's own hide shipped ones of the same name."""
    found: dict[str, str] = {}
    for folder in (shipped_folder(), user_folder(environ)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # most users have no folder of their own
            names = []
        found |= {name[: -len(_SUFFIX)]: os.path.join(folder, name) for name in names if name.endswith(_SUFFIX)}
    return found


def find(name: str, environ: Mapping[str, str], asked_by: str = "") -> str:
    """A profile, or a file of a job, cannot be found, read or changed.

    A name with a slash, or one that ends in .toml, is the path of a file. Any other name is looked up among the
    user's own profiles, in $XDG_CONFIG_HOME/safelaunch/profiles (~/.config where that is not set), and then among
    the shipped ones.

    How it is concluded: there is no such file, or it could not be opened. `safelaunch lint` also tells of files and
    folders below those that were named, of a file that takes too long, and of what `--fix` does not change: a file or
    folder of another user, and a link that was not named itself.

    What to do: `safelaunch profile list` shows what can be named and where it lies. Let a file be mended by its owner.
    """
    prefix = f"{asked_by}: " if asked_by else ""
    if os.sep in name or name.endswith(_SUFFIX):
        if os.path.exists(name):
            return name
        raise _unavailable(f"{prefix}there is no profile file {name}", "check the path")
    known = available(environ)
    if name in known:
        return known[name]
    remedy = did_you_mean(name, known) or f"known are {', '.join(known)}; a path needs a slash or the ending .toml"
    raise _unavailable(f"{prefix}there is no profile {name!r}", remedy)


def _unavailable(summary: str, remedy: str) -> SafelaunchError:
    return SafelaunchError("SL201", summary, remedy, exit_code=codes.EXIT_PROFILE)


# ------------------------------------------------------------------------------------------------ reading


def parse_file(path: str) -> Profile:
    """The profile is not valid TOML.

    How it is concluded: the TOML parser refused the file; the message carries the parser's words and the line.

    What to do: the usual causes are text without quotes, a key or a table given twice, and a missing bracket. The
    format is described at https://toml.io.
    """
    text = _text(path)
    try:
        data = toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    lines = key_lines(text)

    def where(key: KeyPath) -> str:
        return f"{path}:{line_of(lines, key)}"

    values = {key: Value(value, Origin("profile", where(key))) for key, value in schema.entries(data, where)}
    if SIGNATURES in values:  # like `extends`, relative to the file that says so
        named, base = values[SIGNATURES], os.path.dirname(os.path.abspath(path))
        paths = [os.path.join(base, os.path.expanduser(one)) for one in named.value]
        values[SIGNATURES] = Value(paths, named.origin)
    if BAD_NODES in values:
        bad, base = values[BAD_NODES], os.path.dirname(os.path.abspath(path))
        values[BAD_NODES] = Value(os.path.join(base, os.path.expanduser(bad.value)), bad.origin)
    description = values.pop(("description",), None)
    extends = values.pop(("extends",), None)
    unset = values.pop(("unset",), None)
    if unset is not None:
        schema.check_unset(unset.value, {path[1]: value for path, value in values.items() if path[0] == "env"}, where)
    return Profile(
        name=os.path.basename(path).removesuffix(_SUFFIX),
        path=path,
        description=description.value if description else "",
        extends=tuple(Value(base, extends.origin) for base in extends.value) if extends else (),
        values=values,
        unset=tuple(Value(name, unset.origin) for name in dict.fromkeys(unset.value)) if unset else (),
    )


def is_meant(path: str) -> bool:
    """Whether a file that is no sound profile was meant to be one: it is no TOML, or has a key that only profiles have
    (`env` is one of others as well)."""
    try:
        data = toml.loads(_text(path))
    except (SafelaunchError, tomllib.TOMLDecodeError):
        return True
    return any(key in schema.PROFILE.keys for key in data if key != "env")


def _text(path: str) -> str:
    try:
        with open(regular.given(path), encoding="utf-8") as file:
            text = file.read(toml.MOST_BYTES + 1)
        if len(text) > toml.MOST_BYTES:
            raise _unavailable(f"{path}: a profile of more than {toml.MOST_BYTES >> 20} MiB", "check the path")
        return text
    except OSError as error:
        raise _unavailable(f"{path}: the profile cannot be read: {error.strerror}", "check the path") from None
    except UnicodeDecodeError as error:
        raise SafelaunchError(
            "SL202",
            f"{path}:1: not valid TOML: byte {error.start} is not UTF-8",
            "save the file as UTF-8",
            exit_code=codes.EXIT_PROFILE,
        ) from None


def _syntax_error(path: str, text: str, message: str) -> SafelaunchError:
    at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", message)
    line = int(at[1]) if at and at[1] else text.rstrip("\n").count("\n") + 1
    reason = message.replace(at[0], "") if at else message
    return SafelaunchError(
        "SL202",
        f"{path}:{line}: not valid TOML: {reason}",
        "text needs quotes, and each key and table may appear once",
        exit_code=codes.EXIT_PROFILE,
    )


# ------------------------------------------------------------------------------------------------ ordering


def load(name: str, environ: Mapping[str, str]) -> tuple[Profile, ...]:
    """The profile extends itself, directly or through the profiles that it extends.

    The profiles named by `extends` are read before the profile itself, so that its own values win. A user's
    profile may extend the shipped one of the same name.

    How it is concluded: following `extends` led back to a file that is still being read; the message shows the
    way round.

    What to do: remove one `extends` of the circle; move what both need into a third profile.
    """
    chain: dict[str, Profile] = {}
    _collect(find(name, environ), environ, (), chain)
    return tuple(chain.values())


def load_shipped(name: str) -> Profile:
    """A shipped profile, whatever the user's own folder holds; it must not extend another."""
    return parse_file(os.path.join(shipped_folder(), name + _SUFFIX))


def _collect(path: str, environ: Mapping[str, str], trail: tuple[Profile, ...], chain: dict[str, Profile]) -> None:
    """Add the profile at `path` to `chain`, after those that it extends. `trail` leads from the asker to here."""
    profile = parse_file(path)
    if profile.identity in chain:
        return
    trail = (*trail, profile)
    for base in profile.extends:
        base_path = _base_path(base, profile, environ)
        if os.path.realpath(base_path) in [step.identity for step in trail]:
            circle = " -> ".join([*(step.name for step in trail), base.value])
            raise SafelaunchError(
                "SL205",
                f"{base.origin.where}: extends makes a circle: {circle}",
                "remove one `extends` of the circle",
                exit_code=codes.EXIT_PROFILE,
            )
        _collect(base_path, environ, trail, chain)
    chain[profile.identity] = profile


def _base_path(base: Value, profile: Profile, environ: Mapping[str, str]) -> str:
    name: str = base.value
    if os.sep in name or name.endswith(_SUFFIX):  # relative to the file that says so
        name = os.path.join(os.path.dirname(profile.path) or os.curdir, name)
    path = find(name, environ, asked_by=base.origin.where)
    shipped = os.path.join(shipped_folder(), name + _SUFFIX)
    own_name = os.path.realpath(path) == profile.identity
    return shipped if own_name and os.path.exists(shipped) else path

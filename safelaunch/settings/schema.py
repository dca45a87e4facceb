"""What a profile may say: its tables, their keys and the kinds of their values."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from safelaunch import codes
from safelaunch.model import SafelaunchError, Value
from safelaunch.settings import computed, kinds, safelaunch_options, torchrun
from safelaunch.settings.kinds import Kind
from safelaunch.settings.spelling import did_you_mean
from safelaunch.settings.toml_lines import KeyPath
from safelaunch.thresholds import THRESHOLDS

Where = Callable[[KeyPath], str]  # "file:line" of a key


@dataclass(frozen=True)
class Table:
    """A table of a profile: its keys, and the kind of the values under any other name, where names are free."""

    keys: dict[str, Kind | Table] = field(default_factory=dict)
    free: Kind | None = None


# shutdown_timeout lies in [timeouts], where it may be a duration.
_LAUNCH = {option.dest: option.kind for option in torchrun.OPTIONS if option.dest != "shutdown_timeout"}

PROFILE = Table(
    {
        "description": Kind("a string"),
        "extends": kinds.STRINGS,
        "unset": kinds.STRINGS,
        "env": Table(free=kinds.ENV_TEXT),
        "timeouts": Table(
            {
                "process_group": kinds.DURATION,
                "watchdog": kinds.DURATION,
                "rendezvous": kinds.DURATION,
                "loader": kinds.GRACE,  # 0: none, as torch has it
                "shutdown": kinds.GRACE,
                "kill_wait": kinds.GRACE,
            }
        ),
        "hang": Table(
            {
                "on_hang": safelaunch_options.ON_HANG,
                "abort_after": kinds.LIMIT,
            }
        ),
        "preflight": Table(
            {
                "mode": safelaunch_options.PREFLIGHT_MODE,
                "deadline": kinds.DURATION,
                "min_free_disk": kinds.SIZE,
                "min_shm": kinds.SIZE,
                "full_every": kinds.DURATION,
                "thresholds": Table({name: kinds.number(0) for name in THRESHOLDS}),
                "severity": Table(
                    {
                        code: kinds.choice("off", "note", "warning", "error")
                        for code in codes.CATALOGUE
                        if code.startswith("SL1")
                    }
                ),
            }
        ),
        "diagnosis": Table({"signatures": kinds.STRINGS}),
        "slow": Table({"watch": kinds.SWITCH, "expect_step": kinds.DURATION}),
        "log": Table({"mode": safelaunch_options.LOG_MODE, "prefix": kinds.LOG_PREFIX}),
        "launch": Table(
            {
                **_LAUNCH,
                "bind_device": kinds.SWITCH,
                "banner": kinds.SWITCH,
                "warm_start": kinds.SWITCH,
                "useful_restarts": kinds.SWITCH,
                "requeue": kinds.SWITCH,
                "history": kinds.SWITCH,
                "exit_codes": kinds.choice("own", "signal"),
                "preload": kinds.STRINGS,
            }
        ),
        "limits": Table({"nofile": kinds.OPEN_FILES}),
        "nodes": Table({"bad": kinds.PATH}),
        "metrics": Table({"textfile": kinds.PATH}),
        "notify": Table(
            {
                "on_notice": kinds.COMMAND,
                "on_verdict": kinds.COMMAND,
                "on_end": kinds.COMMAND,
                "deadline": kinds.DURATION,
            }
        ),
        "lint": Table(
            {
                "debugging": kinds.SWITCH,
                "known": kinds.NAMES,
                "severity": Table(
                    {
                        code: kinds.choice("off", "note", "warning", "error")
                        for code in codes.CATALOGUE
                        if code.startswith("SL2") and code >= "SL206"  # those before: the profile itself is wrong
                    }
                ),
            }
        ),
    }
)

# Keys that say the same as an option of the command line, with the destination of that option.
OPTION_OF: dict[KeyPath, str] = {
    **{("launch", dest): dest for dest in _LAUNCH},
    ("launch", "warm_start"): "warm_start",
    ("log", "mode"): "log",
    ("launch", "useful_restarts"): "useful_restarts",
    ("launch", "requeue"): "requeue",
    ("launch", "history"): "history",
    ("preflight", "mode"): "preflight",
    ("hang", "on_hang"): "on_hang",
    ("hang", "abort_after"): "hang_abort_after",
    ("timeouts", "shutdown"): "shutdown_timeout",
}

# Keys that stand above all tables. TOML takes what is written below the first [table] for a part of that.
_OF_THE_PROFILE = tuple(name for name, kind in PROFILE.keys.items() if isinstance(kind, Kind))

# Keys that have a better place; setting them here would do nothing, silently.
_ELSEWHERE: dict[KeyPath, str] = {
    ("launch", "shutdown_timeout"): "write it as `shutdown` in [timeouts]",
    ("env", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"): "write it as `shutdown` in [timeouts]",
    ("launch", "on_hang"): "write it in [hang]",
    ("launch", "hang_abort_after"): "write it as `abort_after` in [hang]",
    ("launch", "preflight"): "write it as `mode` in [preflight]",
}

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")

SHOWN = 200  # characters of a name or value in a message
_NESTED = reprlib.Repr()
_NESTED.maxstring = _NESTED.maxother = SHOWN

_ABOVE = "write `{}` at the top of the file, above the first [table]"

# Source: torch/distributed/elastic/agent/server/local_elastic_agent.py, _start_workers.
_SET_BY_AGENT = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"),
    }
)


def entries(
    data: Mapping[str, Any], where: Where, table: Table = PROFILE, path: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any]]:
    """Each setting of a parsed profile, checked and converted, with its path; tables are walked through.

    Raises SafelaunchError SL203 for an unknown key and SL204 for a value that does not fit.
    """
    for name, raw in data.items():
        here = (*path, name)
        kind = check_key(here, table, where)
        if isinstance(kind, Kind):
            yield here, check_value(here, kind, raw, where)
        elif isinstance(raw, dict):
            yield from entries(raw, where, kind, here)
        else:
            raise _wrong_value(here, "a table", raw, where, f"write it as [{'.'.join(here)}]")


def check_key(path: KeyPath, table: Table, where: Where) -> Kind | Table:
    """The profile has an unknown key.

    A profile is read strictly: a key that nothing would read is a mistake, most often in its spelling, and a
    setting that is silently ignored is worse than a launch that does not start.

    How it is concluded: the table has no such key, or, in [env] and in `unset`, the variable is one that the launcher
    itself sets for every rank or reads before any profile.

    What to do: the message names the file, the line and the closest valid key. Environment variables belong into
    [env], options of torchrun into [launch], with underscores.
    """
    name = path[-1]
    kind = table.keys.get(name) or table.free
    remedy = _ELSEWHERE.get(path, "")
    if path[0] == "env" and len(path) == 2:
        remedy = remedy or _unsettable(name)
    elif len(path) > 1 and kind is None and name in _OF_THE_PROFILE:
        remedy = remedy or _ABOVE.format(name)
    if kind is not None and not remedy:
        return kind
    place = f" in [{'.'.join(path[:-1])}]" if path[:-1] else ""
    raise SafelaunchError(
        "SL203",
        f"{where(path)}: unknown key {_short(name)}{place}",
        remedy or did_you_mean(name, table.keys) or f"the keys{place} are: {', '.join(table.keys)}",
        exit_code=codes.EXIT_PROFILE,
    )


def check_value(path: KeyPath, kind: Kind, raw: Any, where: Where) -> Any:
    """The profile has a value of the wrong type, or one that is out of range.

    How it is concluded: the value was read as TOML and is not what the key accepts. Durations are seconds or
    text such as "10m" and "1h30m"; sizes are bytes or text such as "1GiB". In [env] numbers are accepted as they
    are written, but true and false are not: programs tell "1", "true" and "True" apart, so the text must be
    chosen. A word in braces, such as {run_dir}, is computed from the launch; one that is not known is refused, and
    {{word}} is the text {word} itself. A variable cannot be both in [env] and in `unset` of one file.

    What to do: the message names the file, the line and what is accepted.
    """
    try:
        value = kind.from_toml(raw)
    except ValueError:
        remedy = did_you_mean(raw, kind.choices) if isinstance(raw, str) else ""
        if path == ("env", "unset"):
            remedy = _ABOVE.format("unset")
        if kind is kinds.ENV_TEXT and isinstance(raw, bool):
            remedy = 'write the text that the program expects, in quotes: "1", "true" or "True" are not the same to it'
        expects = "true or false" if kind.toml == (bool,) else kind.expects
        raise _wrong_value(path, expects, raw, where, remedy) from None
    wrong = computed.fault(value) if kind is kinds.ENV_TEXT else None
    if wrong is not None:
        raise SafelaunchError(
            "SL204", f"{where(path)}: [env] {path[-1]}: {wrong[0]}", wrong[1], exit_code=codes.EXIT_PROFILE
        )
    return value


def check_unset(names: Iterable[str], env: Mapping[str, Value], where: Where) -> None:
    """Refuse what no profile may take away, and what the same file sets as well.

    Raises SafelaunchError SL203 and SL204.
    """
    line = where(("unset",))
    for name in names:
        remedy = _ELSEWHERE.get(("env", name), "") or _unsettable(name)
        if remedy:
            raise SafelaunchError(
                "SL203", f"{line}: {_short(repr(name))} cannot be unset", remedy, exit_code=codes.EXIT_PROFILE
            )
        if name in env:
            raise SafelaunchError(
                "SL204",
                f"{line}: unset takes {name} away, and {env[name].origin.where} sets it",
                "keep one of them; to beat the shell, unset it in a profile and set it in one that extends that",
                exit_code=codes.EXIT_PROFILE,
            )


def _unsettable(variable: str) -> str:
    if variable in _SET_BY_AGENT:
        return "the launcher sets this variable for each rank itself"
    if variable.startswith("PET_"):
        return "write options of torchrun in [launch], such as `nproc_per_node = 4`"
    if variable.startswith("SAFELAUNCH_"):
        return "safelaunch reads this variable from the shell only"
    if not _VARIABLE.fullmatch(variable):  # a shell that sources `safelaunch env` would take it for a command
        return "the name of a variable has letters, digits and `_` only, 256 at most, and begins with no digit"
    return ""


def _wrong_value(path: KeyPath, expects: str, raw: Any, where: Where, remedy: str) -> SafelaunchError:
    *tables, name = path
    place = f"[{'.'.join(tables)}] {name}" if tables else name
    shown = str(raw).lower() if isinstance(raw, bool) else _shown(raw)
    return SafelaunchError(
        "SL204",
        f"{where(path)}: {place} = {shown}: expected {expects}",
        remedy,
        exit_code=codes.EXIT_PROFILE,
    )


def _shown(raw: Any) -> str:
    """A value in a message, without most of what is in it: tables may be nested deeper than `repr` goes."""
    if isinstance(raw, int) and abs(raw) >= 1 << 63:
        return "a number of more than 63 bits"
    if isinstance(raw, (list, dict)):
        return _NESTED.repr(raw)
    return _short(repr(raw[:SHOWN] if isinstance(raw, str) else raw))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

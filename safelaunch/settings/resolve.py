"""Flags, shell, profiles and defaults become one Settings, in which each value knows its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding, Settings, Value
from safelaunch.settings import options, profile, schema
from safelaunch.settings.commandline import misuse
from safelaunch.settings.options import CommandLine
from safelaunch.settings.profile import Profile
from safelaunch.settings.toml_lines import KeyPath

BASE_PROFILE = "default"
SHUTDOWN_TIMEOUT_S = 30.0  # torch's own default: torch/distributed/launcher/api.py, LaunchConfig

# Variables that say the same thing, so that a shell that sets one of them has had its word about all.
# Sources: torch/csrc/distributed/c10d/FlightRecorder.hpp, c10/core/AllocatorConfig.h, ProcessGroupNCCL.hpp.
SAME_MEANING: tuple[frozenset[str], ...] = (
    frozenset({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}),
    frozenset({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}),
    frozenset({"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"}),
    frozenset({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}),
)


@dataclass(frozen=True)
class Layers:
    """Profiles in the order in which they apply, and their values merged: the later one wins."""

    profiles: tuple[Profile, ...]
    values: dict[KeyPath, Value]

    def table(self, name: str) -> dict[str, Value]:
        """The settings of one table, by key; a table inside it is one value, a dict."""
        found: dict[str, Value] = {}
        for path, value in self.values.items():
            if path[0] == name and len(path) == 2:
                found[path[1]] = value
            elif path[0] == name:
                inner = found[path[1]].value if path[1] in found else {}
                found[path[1]] = Value({**inner, path[2]: value.value}, value.origin)
        return found


def resolve(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Everything that a launch needs to know.

    `argv` must ask for a run: see `CommandLine.request` of `options.parse` for the rest. Raises SafelaunchError
    SL001 for the command line and SL201 to SL205 for profiles.
    """
    return settle(options.parse(argv, environ), environ)


def settle(command_line: CommandLine, environ: Mapping[str, str]) -> Settings:
    """Put the profiles and the defaults below a command line that has been parsed."""
    layers = resolve_profiles(command_line["profile"], environ)
    chosen = dict(command_line.values)
    for path, dest in schema.OPTION_OF.items():
        if path in layers.values and chosen[dest].origin.source == "default":
            chosen[dest] = layers.values[path]
    timeout = chosen["shutdown_timeout"]
    seconds = SHUTDOWN_TIMEOUT_S if timeout.value is None else float(timeout.value)
    chosen["shutdown_timeout"] = Value(seconds, timeout.origin)
    _check_combinations(chosen)
    env, notes = apply_shell(layers.table("env"), environ)
    names = tuple(layer.name for layer in layers.profiles)
    return Settings(options=chosen, env=env, **_tables(layers, chosen), profiles=names, notes=notes)


def _tables(layers: Layers, chosen: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """The tables of Settings. A key that is an option as well shows the option's final value."""
    tables = {name: layers.table(name) for name in ("timeouts", "hang", "preflight", "limits")}
    for path, dest in schema.OPTION_OF.items():
        if path[0] in tables:
            tables[path[0]][path[1]] = chosen[dest]
    return tables


def _check_combinations(chosen: Mapping[str, Value]) -> None:
    # torchrun's rule (torch/distributed/run.py, config_from_args): --run-path comes before both.
    if chosen["no_python"].value and chosen["module"].value and not chosen["run_path"].value:
        raise misuse("--no-python and --module exclude each other", "a module needs python: leave out --no-python")


def resolve_profiles(names: Iterable[str], environ: Mapping[str, str]) -> Layers:
    """Load the shipped default profile, then each named one after those that it extends.

    A base that two profiles share applies once, at its first place, so that it cannot undo what an earlier
    profile has changed. A profile that is named applies at the place where it is named last.
    """
    base = profile.load_shipped(BASE_PROFILE)
    order: dict[str, Profile] = {base.identity: base}
    for name in names:
        *bases, named = profile.load(name, environ)
        for layer in bases:
            order.setdefault(layer.identity, layer)
        order.pop(named.identity, None)
        order[named.identity] = named
    values: dict[KeyPath, Value] = {}
    for layer in order.values():
        values |= layer.values
    return Layers(tuple(order.values()), values)


def apply_shell(env: Mapping[str, Value], environ: Mapping[str, str]) -> tuple[dict[str, Value], tuple[Finding, ...]]:
    """A shell variable beats a profile.

    A variable that is set where safelaunch was started, even to nothing, is the user's word and wins over every
    profile. So does another spelling of it, such as TORCH_NCCL_TRACE_BUFFER_SIZE for TORCH_FR_BUFFER_SIZE.

    How it is concluded: the shell and the profile both set the variable, and to different values.

    What to do: nothing, if that is meant; else `unset` the variable. `safelaunch env` shows what a launch adds.
    """
    kept: dict[str, Value] = {}
    notes: list[Finding] = []
    for name, value in env.items():
        rival = shell_rival(name, environ)
        if not rival:
            kept[name] = value
        elif environ[rival] != value.value:
            notes.append(
                Finding(
                    code="SL206",
                    severity="note",
                    summary=f"{rival}={environ[rival]} of the shell beats {name}={value.value} of the profile",
                    because=(f"the profile sets it at {value.origin.where}",),
                    remedy=f"`unset {rival}` to let the profile set it",
                )
            )
    return kept, tuple(notes)


def shell_rival(name: str, environ: Mapping[str, str]) -> str:
    """The shell's variable that speaks in the place of `name`: itself, another spelling of it, or none ("")."""
    spellings = next((group for group in SAME_MEANING if name in group), frozenset())
    return next((rival for rival in (name, *sorted(spellings)) if rival in environ), "")

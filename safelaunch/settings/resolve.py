"""Flags, shell, profiles and defaults become one Settings, in which each value knows its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding, Settings, Value
from safelaunch.redaction import redact
from safelaunch.settings import from_scheduler, kill_wait, options, profile, schema, severity, timeouts
from safelaunch.settings.commandline import misuse
from safelaunch.settings.options import CommandLine
from safelaunch.settings.profile import Profile
from safelaunch.settings.toml_lines import KeyPath

BASE_PROFILE = "default"
MERGED: tuple[KeyPath, ...] = (("lint", "known"), ("diagnosis", "signatures"))  # lists to which each profile adds

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
    """Profiles in the order in which they apply, and their values merged: the later one wins.

    The table `unset` has the variables that a profile takes away as its keys, also those that a later one sets again.
    """

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
    chosen, given = from_scheduler.completed(chosen, environ)
    timeout = chosen["shutdown_timeout"]
    seconds = timeouts.SHUTDOWN_S if timeout.value is None else float(timeout.value)
    chosen["shutdown_timeout"] = Value(seconds, timeout.origin)
    wait = layers.values.get(("timeouts", "rendezvous"))
    chosen["rdzv_conf"] = timeouts.rendezvous_conf(chosen["rdzv_conf"], str(chosen["rdzv_backend"].value), wait)
    _check_combinations(chosen)
    unset = layers.table("unset")
    left, dropped = drop_unset(unset, environ)
    env, beaten = apply_shell(layers.table("env"), left)
    names = tuple(layer.name for layer in layers.profiles)
    tables = _tables(layers, chosen, environ)
    return Settings(
        options=chosen,
        env=env,
        timeouts=tables["timeouts"],
        hang=tables["hang"],
        preflight=tables["preflight"],
        limits=tables["limits"],
        nodes=tables["nodes"],
        notify=tables["notify"],
        lint=tables["lint"],
        diagnosis=tables["diagnosis"],
        slow=tables["slow"],
        log=tables["log"],
        metrics=tables["metrics"],
        launch={key: value for key, value in layers.table("launch").items() if ("launch", key) not in schema.OPTION_OF},
        unset=unset,
        profiles=names,
        allocation=given,
        end=from_scheduler.job_end(environ),
        notes=severity.weighed((*dropped, *beaten), severity.of_table(tables["lint"])),
    )


def _tables(layers: Layers, chosen: Mapping[str, Value], environ: Mapping[str, str]) -> dict[str, dict[str, Value]]:
    """The tables of Settings. A key that is an option as well shows the option's final value; what the scheduler gives
    between SIGTERM and SIGKILL is looked up where no profile says it."""
    names = (
        "timeouts", "hang", "slow", "log", "metrics", "preflight", "limits", "nodes", "notify", "lint", "diagnosis",
    )  # fmt: skip
    tables = {name: layers.table(name) for name in names}
    for path, dest in schema.OPTION_OF.items():
        if path[0] in tables:
            tables[path[0]][path[1]] = chosen[dest]
    given = kill_wait.kill_wait(environ)
    if given is not None:
        tables["timeouts"].setdefault("kill_wait", given)
    return tables


def _check_combinations(chosen: Mapping[str, Value]) -> None:
    # torchrun's rule (torch/distributed/run.py, config_from_args): --run-path comes before both.
    if chosen["no_python"].value and chosen["module"].value and not chosen["run_path"].value:
        raise misuse("--no-python and --module exclude each other", "a module needs python: leave out --no-python")


def resolve_profiles(names: Iterable[str], environ: Mapping[str, str]) -> Layers:
    """Load the shipped default profile, then each named one after those that it extends.

    What a profile unsets is taken from those before it; what it sets comes after that. A base that two profiles
    share applies once, at its first place, so that it cannot undo what an earlier profile has changed. A profile that
    is named applies at the place where it is named last.
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
        for gone in layer.unset:
            values.pop(("env", gone.value), None)
            values[("unset", gone.value)] = Value(None, gone.origin)
        added = dict(timeouts.spelled_out(layer.values))
        for path in MERGED:
            if path in added and path in values:
                together = dict.fromkeys([*values[path].value, *added[path].value])
                added[path] = Value(list(together), added[path].origin)
        values |= added
    return Layers(tuple(order.values()), values)


def drop_unset(unset: Mapping[str, Value], environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[Finding, ...]]:
    """A profile takes a variable of the shell away.

    A name in `unset` of a profile is one that the ranks must not have: it is baked into an image, or was left in
    ~/.bashrc. The ranks, and the agent that starts them, do not see the shell's value, nor what an earlier profile
    sets, nor what torch elastic would set (OMP_NUM_THREADS). A later profile may set it again, and is not beaten by
    the shell then.

    How it is concluded: the variable is set where safelaunch was started, and a profile has its name in `unset`.

    What to do: nothing, if that is meant; else take the name out of `unset`, or set the variable in [env] of a later
    profile. `[lint.severity]` with `SL207 = "off"` keeps this quiet.
    """
    notes = tuple(
        Finding(
            code="SL207",
            severity="note",
            summary=f"{setting.origin.where} unsets {name}={redact(name, environ[name])} of the shell",
            because=("the profile says that the ranks must not have it",),
            remedy="take it out of `unset`, or set it in [env] of a later profile",
        )
        for name, setting in unset.items()
        if name in environ
    )
    return {name: value for name, value in environ.items() if name not in unset}, notes


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
                    summary=f"{rival}={redact(rival, environ[rival])} of the shell beats "
                    f"{name}={redact(name, str(value.value))} of the profile",
                    because=(f"the profile sets it at {value.origin.where}",),
                    remedy=f"`unset {rival}` to let the profile set it",
                )
            )
    return kept, tuple(notes)


def shell_rival(name: str, environ: Mapping[str, str]) -> str:
    """The shell's variable that speaks in the place of `name`: itself, another spelling of it, or none ("")."""
    spellings = next((group for group in SAME_MEANING if name in group), frozenset())
    return next((rival for rival in (name, *sorted(spellings)) if rival in environ), "")

"""The timeouts of a launch: what torch takes where nobody says anything, how a profile's words become torch's own, and
which are in force."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.durations import text
from safelaunch.model import Settings, Value
from safelaunch.settings.toml_lines import KeyPath

# Seconds. Sources: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp (kProcessGroupNCCLDefaultTimeout) and Types.hpp
# (kProcessGroupDefaultTimeout), torch/distributed/constants.py.
NCCL_S = 600.0
GROUP_S = 1800.0
# TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: ProcessGroupNCCL.cpp (torch >= 2.5).
WATCHDOG_S = 480.0
# torch/distributed/launcher/api.py (LaunchConfig) for static, elastic/rendezvous/dynamic_rendezvous.py for the others.
STATIC_S = 900.0
JOIN_S = 600.0
# What `--on-hang abort` and `restart` take where no limit is set: watch/hang.py.
ABORT_S = 600.0
# From SIGTERM to SIGKILL: torch/distributed/launcher/api.py, LaunchConfig.
SHUTDOWN_S = 30.0

HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"

# Backend of the rendezvous -> keys of --rdzv-conf that say how long a node waits for the others. c10d has two: a node
# that does not host the store waits `read_timeout` for the one that does, and then all wait `join_timeout` for all.
# The `read_timeout` of etcd-v2 is about etcd itself. `timeout` is what torch gives to every other kind.
RENDEZVOUS_KEYS: dict[str, tuple[str, ...]] = {"c10d": ("join_timeout", "read_timeout"), "etcd-v2": ("join_timeout",)}
OTHER_RENDEZVOUS = ("timeout",)


class InForce(NamedTuple):
    """One timeout that is in force: seconds, None for never, and who says so."""

    seconds: float | None
    why: str


def in_force(settings: Settings, backend: str, environ: Mapping[str, str] | None = None) -> dict[str, InForce]:
    """The timeouts of a launch, in the order in which a run meets them.

    Args:
        settings: of the launch.
        backend: `nccl`, `gloo`, or "" where it is not known.
        environ: of safelaunch itself, which the ranks inherit.

    Returns:
        `rendezvous` (several nodes only), `process group`, `watchdog` (not with gloo), `loader`, `hang limit`,
        `shutdown` and `kill wait` (where a scheduler has one), each with its seconds and who says so.
    """
    found: dict[str, InForce] = {}
    if rendezvous_wait(settings) is not None:
        found["rendezvous"] = _rendezvous(settings)
    found["process group"] = group_timeout(settings.timeouts, backend)
    if backend != "gloo":
        found["watchdog"] = _watchdog(settings, environ or {})
    found["loader"] = loader_timeout(settings.timeouts)
    found["hang limit"] = hang_limit(settings.hang)
    shutdown = settings.options["shutdown_timeout"]
    default = "torch's default" if shutdown.origin.source == "default" else str(shutdown.origin)
    found["shutdown"] = InForce(float(shutdown.value), default)
    wait = settings.timeouts.get("kill_wait")
    if wait is not None:
        found["kill wait"] = InForce(float(wait.value), str(wait.origin))
    return found


def rendezvous_wait(settings: Settings) -> float | None:
    """For how many seconds a node waits for the others in the rendezvous; None in a job of one node."""
    return _rendezvous(settings).seconds if settings.several_nodes else None


def group_timeout(timeouts: Mapping[str, Value], backend: str) -> InForce:
    """The timeout of collectives, as far as it can be told before the script runs: it may pass its own.

    Where a script names no backend, torch takes the longer default for NCCL too (`_get_default_timeout`).
    """
    own = timeouts.get("process_group")
    if own is not None and own.value is not None:
        return InForce(float(own.value), str(own.origin))
    if backend == "nccl":
        return InForce(NCCL_S, f"torch's default for NCCL; {text(GROUP_S)} where the script names no backend")
    return InForce(GROUP_S, "torch's default" if backend else f"torch's default; {text(NCCL_S)} for NCCL")


def loader_timeout(timeouts: Mapping[str, Value]) -> InForce:
    """How long a DataLoader with workers waits for a batch where the script does not say it; None for ever."""
    own = timeouts.get("loader")
    if own is not None and own.value:
        return InForce(float(own.value), str(own.origin))
    return InForce(None, "torch's default")


def hang_limit(hang: Mapping[str, Value]) -> InForce:
    """After how long without progress the ranks are ended; None where nothing of ours ends them."""
    how = hang["on_hang"].value if "on_hang" in hang else "auto"
    limit = hang.get("abort_after")
    if how == "report":
        return InForce(None, f"on_hang = report, {hang['on_hang'].origin}")
    if limit is not None and limit.value is not None:
        return InForce(float(limit.value), str(limit.origin))
    if how in ("abort", "restart"):
        return InForce(ABORT_S, f"default of on_hang = {how}, {hang['on_hang'].origin}")
    return InForce(None, "default" if limit is None else str(limit.origin))


def spelled_out(values: Mapping[KeyPath, Value]) -> dict[KeyPath, Value]:
    """The values of one profile, and the variables that some of them stand for, unless it sets those itself."""
    watchdog = values.get(("timeouts", "watchdog"))
    variable = ("env", HEARTBEAT)
    if watchdog is None or variable in values:
        return dict(values)
    return {**values, variable: Value(str(_whole(watchdog.value)), watchdog.origin)}


def rendezvous_conf(conf: Value, backend: str, wait: Value | None) -> Value:
    """`--rdzv-conf` with the profile's `rendezvous`, where it does not say that itself.

    Args:
        conf: the option: KEY=VALUE pairs.
        backend: `--rdzv-backend`.
        wait: the profile's key, in seconds; torch takes whole ones.
    """
    said = _pairs(str(conf.value))
    if wait is None:
        return conf
    keys = RENDEZVOUS_KEYS.get(backend, OTHER_RENDEZVOUS)
    added = [f"{key}={_whole(wait.value)}" for key in keys if key not in said]
    if not added:
        return conf
    origin = wait.origin if conf.origin.source == "default" else conf.origin
    return Value(",".join(filter(None, [str(conf.value).strip(), *added])), origin)


def _pairs(conf: str) -> dict[str, str]:
    """As torch reads them: torch/distributed/elastic/rendezvous/utils.py, _parse_rendezvous_config."""
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in conf.split(","))}


def _rendezvous(settings: Settings) -> InForce:
    backend = str(settings["rdzv_backend"])
    conf = settings.options["rdzv_conf"]
    said = _pairs(str(conf.value)).get(RENDEZVOUS_KEYS.get(backend, OTHER_RENDEZVOUS)[0], "")
    own = settings.timeouts.get("rendezvous")
    if own is not None and said == str(_whole(own.value)):
        return InForce(float(said), str(own.origin))
    if said.isdecimal():
        return InForce(float(said), str(conf.origin))
    return InForce(JOIN_S if backend in RENDEZVOUS_KEYS else STATIC_S, f"torch's default for {backend}")


def _watchdog(settings: Settings, environ: Mapping[str, str]) -> InForce:
    if HEARTBEAT in settings.env:
        value, why = str(settings.env[HEARTBEAT].value), str(settings.env[HEARTBEAT].origin)
    else:
        value, why = environ.get(HEARTBEAT, ""), f"shell {HEARTBEAT}"
    return InForce(float(value), why) if value.isdecimal() else InForce(WATCHDOG_S, "torch's default")


def _whole(seconds: float) -> int:
    """Whole seconds for torch, which knows no others; never less than was asked for."""
    return math.ceil(seconds)

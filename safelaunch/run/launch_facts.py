"""What a launch knows for the computed values of its profiles, before it has a run directory."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch import codes
from safelaunch.model import Job, SafelaunchError, Settings
from safelaunch.settings import computed

# What needs the number of ranks on this node, which may have to be counted.
COUNTED = frozenset({"local_world_size", "cpus_per_rank"})


def known(settings: Settings, environ: Mapping[str, str], host: str) -> dict[str, str]:
    """The values by name. What no profile needs is not looked up: to count GPUs takes a moment.

    Args:
        settings: of the launch.
        environ: of safelaunch itself.
        host: name of this node.

    Raises:
        SafelaunchError: where a value that is needed cannot be computed: the ranks cannot be counted (`gpu` without
            a GPU, devices that only torch can count), or the number of nodes is not fixed.
    """
    needed = computed.needed(settings.env.values())
    values = {"host": host}
    if "nnodes" in needed:
        values["nnodes"] = _nodes(settings)
    if needed & COUNTED:
        values |= _ranks(settings, environ)
    return values


def _nodes(settings: Settings) -> str:
    fewest, _, most = str(settings["nnodes"]).rpartition(":")
    if fewest not in ("", most):
        raise SafelaunchError(
            "SL204",
            f"{_users(settings, frozenset({'nnodes'}))}: {{nnodes}} is not known before the rendezvous",
            "fix the number of nodes, or leave the variable out",
            because=(f"--nnodes {settings['nnodes']} leaves it open",),
            exit_code=codes.EXIT_PROFILE,
        )
    return most


def _ranks(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    from safelaunch.preflight.local_world_size import ranks_here
    from safelaunch.preflight.machine import cgroup
    from safelaunch.preflight.machine.host import Host

    host = Host(Job(nproc=1), environ=settings.environment(environ))
    asked = str(settings["nproc_per_node"])
    try:
        ranks = ranks_here(asked, host)
    except SafelaunchError as error:
        found = error.diagnostic
        because = (*found.because, f"{_users(settings, COUNTED)} needs the number of ranks")
        raise SafelaunchError(
            found.code, found.summary, found.remedy, because=because, where=found.where, exit_code=error.exit_code
        ) from None
    cpus = float(host.cpu_count())
    try:
        quota = cgroup.cpus(host.root)
    except (OSError, ValueError):  # a kernel without control groups
        quota = None
    if quota is not None:
        cpus = min(cpus, quota[0])
    return {"local_world_size": str(ranks), "cpus_per_rank": str(max(1, int(cpus // ranks)))}


def _users(settings: Settings, names: frozenset[str]) -> str:
    """The first variable that needs one of these values, and where it is set."""
    users = (name for name, value in settings.env.items() if computed.needs(str(value.value)) & names)
    name = next(users)
    return f"{settings.env[name].origin.where}: [env] {name}"

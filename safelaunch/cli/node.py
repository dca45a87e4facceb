"""The preflight of a launch: from settings to a report on this node."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Job, PreflightReport, SafelaunchError, Settings, Value
from safelaunch.preflight import runner
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.shape import ranks_here, uses_gpu

# Seconds for all checks; enough for those that are slow because something is wrong.
DEADLINE_S = 60.0
FULL_DEADLINE_S = 240.0


def check_node(settings: Settings, run_dir: str, environ: Mapping[str, str], *, full: bool) -> PreflightReport:
    """Check this node for the launch that `settings` describe; the node that cannot even count its ranks is refused
    as well."""
    wanted = wanted_by(settings.limits, settings.preflight)
    merged = {**environ, **{name: str(value.value) for name, value in settings.env.items()}}
    host = Host(Job(nproc=1), environ=merged, wanted=wanted)
    begin = host.monotonic()
    try:
        host = host.for_job(_job(settings, host, run_dir))
    except SafelaunchError as error:
        return PreflightReport((error.diagnostic,), host.name(), host.monotonic() - begin, full)
    deadline = settings.preflight.get("deadline")
    severity = settings.preflight.get("severity")
    return runner.run(
        host,
        full=full,
        deadline_s=float(deadline.value) if deadline is not None else FULL_DEADLINE_S if full else DEADLINE_S,
        severity=severity.value if severity is not None else {},
    )


def wanted_by(limits: Mapping[str, Value], preflight: Mapping[str, Value]) -> Wanted:
    """What the profiles ask of a node beyond our own estimates."""

    thresholds = preflight["thresholds"].value if "thresholds" in preflight else {}

    def number(table: Mapping[str, Value], key: str) -> int | None:
        value = table[key].value if key in table else None
        return value if isinstance(value, int) else None  # `auto` is no number

    sizes = (number(limits, "nofile"), number(preflight, "min_free_disk"), number(preflight, "min_shm"))
    return Wanted(*sizes, thresholds)


def _job(settings: Settings, host: Host, run_dir: str) -> Job:
    asked = str(settings["nproc_per_node"])
    fewest, _, most = str(settings["nnodes"]).rpartition(":")
    address, port = _endpoint(settings)
    static = settings["rdzv_backend"] == "static"
    if static and int(settings["node_rank"]) > 0:
        port = None  # node 0 listens, wherever it is
    try:
        nproc = ranks_here(asked, host)
    except SafelaunchError:
        if asked in ("auto", "gpu", "cpu"):
            raise
        nproc = 1  # a device that only torch can count (xpu): the agent knows
    return Job(
        nproc=nproc,
        min_nodes=int(fewest or most),
        max_nodes=int(most),
        node_rank=int(settings["node_rank"]),
        master_addr=address,
        master_port=port,
        port_shared=not static and int(most) > 1,
        uses_gpu=uses_gpu(asked, host),
        nproc_asked=asked,
        run_dir=run_dir,
    )


def _endpoint(settings: Settings) -> tuple[str, int | None]:
    """Address and port that the user chose, from `--rdzv-endpoint` or from the options of static rendezvous."""
    if settings["standalone"]:
        return "", None
    endpoint = str(settings["rdzv_endpoint"])
    if endpoint and "," not in endpoint:  # etcd takes lists; those are servers of their own
        host, colon, port = endpoint.rpartition(":")
        return (host.strip("[]"), int(port)) if colon and port.isdigit() else (endpoint, None)
    chosen = settings.options["master_addr"]
    return (str(chosen.value) if chosen.origin.source != "default" else ""), settings["master_port"]

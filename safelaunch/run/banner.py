"""What the start banner says beside the mapping. Every line is true, or says why it is not known."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from safelaunch import __version__
from safelaunch.durations import text
from safelaunch.model import Settings, WorkerGroup
from safelaunch.preflight.between.interfaces import interfaces
from safelaunch.preflight.machine import cgroup
from safelaunch.preflight.machine.host import Address, Host
from safelaunch.preflight.network.chosen import gloo_interface, nccl_interface
from safelaunch.report.banner import wrapped
from safelaunch.report.verdict import relative
from safelaunch.settings.timeouts import in_force
from safelaunch.sizes import plural, size

NAME_DEADLINE_S = 2.0
UNLIMITED = 2**63 - 1
UNKNOWN_PYTHON = "unknown: the ranks' command starts its own Python"


def fields(
    settings: Settings, run_dir: str, environ: Mapping[str, str], group: WorkerGroup, host: Host, uses_gpu: bool
) -> Iterator[tuple[str, str]]:
    """Names and texts, in the order in which they are shown.

    Args:
        settings: of the launch.
        run_dir: of this node.
        environ: of the ranks.
        group: the ranks that have been started.
        host: this node.
        uses_gpu: whether ranks would use GPUs.
    """
    yield "world", world(str(settings["nnodes"]), group)
    yield "run", relative(run_dir)
    yield "profiles", ", ".join(settings.profiles)
    parts: dict[str, Iterator[str]] = {
        "versions": _versions(settings, environ, host, uses_gpu),
        "timeouts": _timeouts(settings, environ, "" if uses_gpu else "gloo"),
        "interfaces": _interfaces(environ, host, uses_gpu),
        "limits": _limits(host),
    }
    for name, found in parts.items():
        for line in wrapped(_until_fault(found)):
            yield name, line


def _until_fault(parts: Iterator[str]) -> Iterator[str]:
    """A part that cannot be had says so, and costs the others nothing."""
    try:
        yield from parts
    except Exception as error:
        yield f"unknown: {error!r}"


def world(nnodes: str, group: WorkerGroup) -> str:
    """`8 ranks: 1 node x 8 ranks`; where nodes may differ, what is known of this one."""
    here, total = group.local_world_size, group.world_size
    fewest, _, most = nnodes.rpartition(":")
    nodes = int(most) if fewest in ("", most) else 0
    if nodes * here == total:
        return f"world size {total} ({plural(nodes, 'node')} x {plural(here, 'rank')})"
    return f"world size {total}, {plural(here, 'rank')} of it on this node"


def _versions(settings: Settings, environ: Mapping[str, str], host: Host, uses_gpu: bool) -> Iterator[str]:
    yield f"safelaunch {__version__}"
    if settings["no_python"] or environ.get("PYTHON_EXEC", sys.executable) != sys.executable:
        yield f"Python and torch {UNKNOWN_PYTHON}"
    else:
        yield f"Python {sys.version.split()[0]}"
        yield from _libraries(environ)
    if uses_gpu:
        snapshot = host.nvml_known()
        driver = snapshot.driver if snapshot is not None else ""
        yield f"driver {driver or ('unknown: NVML was not asked' if snapshot is None else 'unknown: no answer')}"


def _libraries(environ: Mapping[str, str]) -> Iterator[str]:
    from safelaunch.settings.lint.look import look

    installed = look(environ)
    torch, nccl = installed.torch, installed.nccl
    if torch is None:
        yield "no torch"
        return
    yield f"torch {torch.version or 'unknown: it does not say'}"
    if not torch.cuda:
        yield "torch without CUDA"
        return
    yield f"CUDA {_cuda(torch.path) or 'unknown: torch does not say'}"
    yield f"NCCL {nccl.version or 'unknown: it does not say'}" if nccl else "NCCL unknown: no library found"


def _cuda(torch_folder: str) -> str:
    try:
        said = Path(torch_folder, "version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^cuda\b[^=\n]*= *['\"]([\d.]+)", said, re.MULTILINE)
    return found[1] if found else ""


def _timeouts(settings: Settings, environ: Mapping[str, str], backend: str) -> Iterator[str]:
    for name, (seconds, why) in in_force(settings, backend, environ).items():
        yield f"{name} {text(seconds) if seconds is not None else 'never'} ({_shorter(why)})"


def _shorter(origin: str) -> str:
    """An origin with its file as it is shorter to read: `profile .../debug.toml:60` -> `profile debug.toml:60`."""
    return re.sub(r"(?<=profile )\S*/(?=[^/\s]+$)", "", origin)


def _interfaces(environ: Mapping[str, str], host: Host, uses_gpu: bool) -> Iterator[str]:
    try:
        known = interfaces(up=True)
    except (ImportError, OSError) as error:
        yield f"unknown: {error}"
        return
    if uses_gpu:
        yield f"NCCL {nccl_interface(environ, known)}"
    own: tuple[Address, ...] | str
    try:
        own = host.resolve(host.name(), NAME_DEADLINE_S)
    except TimeoutError:
        own = f"the host's name is not resolved within {NAME_DEADLINE_S:g} s"
    except OSError:
        own = ()
    yield f"gloo {gloo_interface(environ, own, known)}"


def _limits(host: Host) -> Iterator[str]:
    yield f"open files {_number(host.file_limit()[0])}"
    memlock = host.memlock_limit()[0]
    yield f"locked memory {'unlimited' if memlock == UNLIMITED else size(memlock)}"
    try:
        shm = host.root.statvfs("/dev/shm")
        yield f"/dev/shm {size(shm.f_bavail * shm.f_frsize)} free of {size(shm.f_blocks * shm.f_frsize)}"
    except OSError as error:
        yield f"/dev/shm unknown: {error.strerror}"
    try:
        limits = [(limit.limit, limit.used) for limit in cgroup.processes(host.root)]
    except OSError as error:
        yield f"processes unknown: {error.strerror}"
        return
    own = host.process_limit()
    if limits:
        limit, used = min(limits)
        yield f"processes {used} of {limit} in use"
    else:
        yield f"processes {_number(own)} allowed"


def _number(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)

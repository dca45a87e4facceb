"""The lint on the command line: which settings it looks at, and how its findings are told."""

from __future__ import annotations

import dataclasses
import re
import socket
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from safelaunch import codes, printable, regular
from safelaunch.cli import output
from safelaunch.codec import to_json
from safelaunch.limits import LimitError, limited
from safelaunch.model import SCHEMA_VERSION, Finding, Origin, SafelaunchError, Settings, Value
from safelaunch.printable import Line
from safelaunch.report import text
from safelaunch.report.palette import PLAIN, Palette, for_stream
from safelaunch.settings import computed, severity
from safelaunch.settings.lint import lint, nccl_conf
from safelaunch.settings.lint.installed import ELSEWHERE, Installed
from safelaunch.settings.lint.look import look
from safelaunch.settings.lint.scene import Scene, Setting
from safelaunch.settings.resolve import Layers, apply_shell
from safelaunch.sizes import plural

THE_SHELL = Origin("shell", "the environment")
SCAN_S = 60.0  # for reading the installed libraries, where nothing waits for the answer
LAUNCH_SCAN_S = 10.0  # for reading the installed libraries at a launch, beside the agent's import of torch
SHOWN_AT_LAUNCH = 8  # findings that a launch tells in a line each
MOST_BYTES = 8 << 20  # of a job's file
HELP_WIDTH = 120  # characters of what to do, in such a line


# ---------------------------------------------------------------------------------------------- what is looked at


def of_layers(layers: Layers, installed: Installed, environ: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """The findings about profiles, and about the environment that they are put upon where there is one.

    Args:
        layers: the profiles in their order.
        installed: what the ranks will load.
        environ: of the launch; None for the profiles alone.
    """
    tables = {name: layers.table(name) for name in ("env", "lint", "timeouts", "hang")}
    if environ is not None:
        tables["env"], _ = apply_shell(tables["env"], environ)
    scene = _scene(tables, environ, layers.table("unset"), installed)
    return lint(scene, severity.of_table(tables["lint"]))


def of_settings(settings: Settings, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings about a launch; errors are errors only where a profile's `[lint.severity]` says so."""
    installed = installed_of(environ, LAUNCH_SCAN_S, no_python=bool(settings["no_python"]))
    tables = {"env": settings.env, "lint": settings.lint, "timeouts": settings.timeouts, "hang": settings.hang}
    scene = _scene(tables, environ, settings.unset, installed)
    scene = dataclasses.replace(scene, backend=_backend(scene), nodes=_nodes(str(settings["nnodes"])))
    weights = severity.of_table(settings.lint)
    return tuple(
        dataclasses.replace(found, severity="warning")
        if found.severity == "error" and weights.get(found.code) != "error"
        else found
        for found in lint(_with_script(scene, settings), weights)
    )


def installed_of(environ: Mapping[str, str], scan_s: float, *, no_python: bool = False) -> Installed:
    """What the ranks will load, as far as this Python can tell it.

    Args:
        environ: of the launch; torchrun takes PYTHON_EXEC for the Python of the ranks.
        scan_s: seconds that reading the libraries may take.
        no_python: whether the ranks are no Python, or start their own (`--no-python`).
    """
    if no_python or environ.get("PYTHON_EXEC", sys.executable) != sys.executable:
        return ELSEWHERE
    return look(environ, scan_s=scan_s)


def of_file(path: str, installed: Installed) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    """What a job's file sets, and the findings about it. Raises SafelaunchError where it cannot be read."""
    from safelaunch.settings.lint.extract import extract, reads

    try:
        with open(regular.given(path), encoding="utf-8", errors="replace", newline="") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise LimitError(f"it is larger than {MOST_BYTES >> 20} MiB")
        with limited(len(content)):
            found = extract(path, content)
            return found, lint(Scene(found, installed, read_by_script=reads(path, content)), {})
    except (OSError, LimitError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise SafelaunchError(
            "SL201", f"{path} cannot be read: {said}", "check the path", exit_code=codes.EXIT_USAGE
        ) from None


def _scene(
    tables: Mapping[str, Mapping[str, Value]],
    environ: Mapping[str, str] | None,
    unset: Iterable[str],
    installed: Installed,
) -> Scene:
    settings: list[Setting] = []
    if environ is not None:
        settings += nccl_conf.settings(environ)
        settings += [Setting(name, value, THE_SHELL) for name, value in environ.items() if name not in unset]
    # What the launch has still to compute, such as {cpus_per_rank}, cannot be told.
    settings += [
        Setting(name, computed.value(str(value.value), {}), value.origin) for name, value in tables["env"].items()
    ]
    table = {name: value.value for name, value in tables["lint"].items()}
    return Scene(
        tuple(settings),
        installed,
        debugging=bool(table.get("debugging", False)),
        known=frozenset(table.get("known", ())),
        timeouts=dict(tables["timeouts"]),
        hang=dict(tables["hang"]),
        interfaces=_interfaces() if environ is not None else None,
    )


def _interfaces() -> frozenset[str] | None:
    """The network interfaces of this machine, as the ranks will see them; None where they cannot be told."""
    try:
        return frozenset(name for _, name in socket.if_nameindex()) or None
    except OSError:
        return None


def _backend(scene: Scene) -> str:
    """`gloo` where the ranks have no GPU to use, else "": the script chooses."""
    torch, visible = scene.installed.torch, scene.last().get("CUDA_VISIBLE_DEVICES")
    if torch is not None and torch.cpu_only:
        return "gloo"
    # CUDA stops at the first entry that is no device; NoDevFiles is what Slurm sets for a job without GPUs.
    first = "0" if visible is None or visible.value is None else visible.value.partition(",")[0].strip()
    return "gloo" if first in ("", "-1", "NoDevFiles") else ""


def _nodes(nnodes: str) -> int | None:
    fewest, _, most = nnodes.rpartition(":")
    return int(most) if fewest in ("", most) else None


def _with_script(scene: Scene, settings: Settings) -> Scene:
    from safelaunch.settings.lint import script

    found = script.read(settings["training_script"], module=bool(settings["module"]))
    return dataclasses.replace(
        scene,
        settings=(*scene.settings, *found.assignments),
        read_by_script=scene.read_by_script | found.names,
        dead_timeouts=found.dead_timeouts,
    )


# --------------------------------------------------------------------------------------------------- what is told


def show(findings: Sequence[Finding], checked: str, installed: Installed, *, as_json: bool, strict: bool) -> int:
    """Print the findings of a lint that was asked for; returns the exit code.

    Args:
        findings: in the order in which they are told.
        checked: what was looked at, for the last line: `31 variables of 3 profiles`.
        installed: against what.
        as_json: print a document.
        strict: warnings fail as well.
    """
    failing = ("error", "warning") if strict else ("error",)
    failed = any(finding.severity in failing for finding in findings)
    if as_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "failed": failed,
            "torch": installed.torch.version if installed.torch else None,
            "nccl": installed.nccl.version if installed.nccl else None,
            "findings": to_json(list(findings)),
        }
        output.show_json(document, 2)
    else:
        palette = for_stream(sys.stdout)
        for finding in findings:
            output.show([*text.diagnostic(finding, palette=palette), printable.line()])
        output.show([printable.line(f"{checked}, {_against(installed)}: {_count(findings)}")])
    return codes.EXIT_PROFILE if failed else codes.EXIT_OK


def at_launch(findings: Sequence[Finding], *, verbose: bool) -> tuple[tuple[Finding, ...], str]:
    """What a launch tells of its lint, and a line about the rest: notes only where the user wants to hear more.

    What refuses the launch is told in any case.
    """
    heard = [found for found in findings if verbose or found.severity != "note"]
    heard.sort(key=lambda found: (found.severity != "error", found.code != "SL902"))
    shown = heard if verbose else heard[:SHOWN_AT_LAUNCH]
    left = len(heard) - len(shown)
    return tuple(shown), f"{left} more about the environment: -v or --dry-run shows them" if left else ""


def line(found: Finding, palette: Palette = PLAIN) -> Line:
    """A finding in one line: what is the case, what to do, and the line of the file that says so."""
    place = f" ({found.where})" if re.search(r":\d+$", found.where) else ""
    help_ = textwrap.shorten(found.remedy, HELP_WIDTH, placeholder=" ...")
    told = f"{found.summary}; {help_}" if help_ else found.summary
    head = palette.paint(text.STYLES[found.severity], f"{found.severity}[{found.code}]")
    return printable.line(head, ": ", palette.paint("strong", told), place)


def _against(installed: Installed) -> str:
    if installed is ELSEWHERE:
        return "by the catalogue alone (another Python runs the ranks)"
    torch, nccl = installed.torch, installed.nccl
    if torch is None:
        return "without an installed torch"
    words = f"against torch {torch.version}{'' if torch.cuda else ' (no CUDA)'}"
    return words + (f" and NCCL {nccl.version}" if nccl else ", without NCCL")


def _count(findings: Sequence[Finding]) -> str:
    counts = {word: sum(finding.severity == word for finding in findings) for word in ("error", "warning", "note")}
    return ", ".join(plural(number, word) for word, number in counts.items() if number) or "nothing found"


def without_repeats(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Profiles share their bases, and with them their findings."""
    return tuple({(found.code, found.where, found.summary): found for found in findings}.values())

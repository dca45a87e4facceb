"""What a run writes down: how it was started (run.json, env.txt), and what it came to (result.json)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from safelaunch import __version__, files, redaction
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION, LaunchPlan, Settings
from safelaunch.output import write
from safelaunch.run import redact, source_state
from safelaunch.run.console import Console


def of_start(settings: Settings, plan: LaunchPlan, argv: Sequence[str], console: Console) -> None:
    """Write down how the run was started; where that is not possible, it is told.

    Args:
        settings: of the launch.
        plan: of the run.
        argv: the command line behind `safelaunch`.
        console: of the run.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "run_id": plan.run_id,
        "safelaunch": __version__,
        "python": sys.version.split()[0],
        "argv": redaction.arguments(list(argv)),
        "cwd": os.getcwd(),
        "script_sha256": source_state.digest(plan.script) if plan.mode != "module" else None,
        "commit": source_state.commit(plan.script if plan.mode != "module" else "."),
        "started": time.time(),
        "settings": to_json(redact.without_secrets(settings)),
        "plan": to_json(redact.plan_without_secrets(plan)),
    }
    try:
        files.write_json(os.path.join(plan.run_dir, "run.json"), document)
        files.write_lines(os.path.join(plan.run_dir, "env.txt"), redact.environment(settings, os.environ))
    except OSError as error:
        console.degraded(f"how this run was started is not written down: {error.filename}: {error.strerror}")


def of_result(document: dict[str, Any], run_dir: str, wanted: str | None, console: Console, stall_s: float) -> None:
    """Write down what the run came to; where that is not possible, it is told.

    Args:
        document: of result.json.
        run_dir: of this node.
        wanted: where `--json` wants it as well.
        console: of the run.
        stall_s: seconds for a reader of `--json` that takes nothing.
    """
    # Verdicts hold messages and tracebacks of the program.
    text = json.dumps(redaction.document(json.loads(json.dumps(document, default=str))), indent=1) + "\n"
    try:
        files.write_text(os.path.join(run_dir, "result.json"), text)
    except OSError as error:
        console.degraded(f"the result cannot be written: {error.filename}: {error.strerror}")
    if wanted is not None:
        try:
            write(wanted, text.encode("utf-8", "backslashreplace"), stall_s)
        except OSError as error:
            console.degraded(f"--json {wanted}: the result cannot be written there: {error.strerror}")

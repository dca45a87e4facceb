"""The link between the supervisors of 8 to 1,024 nodes: what it costs in health, and how fast all have the verdict.

The hub is a process of its own, with the class that a run has; all other nodes share one process, and speak by the
link's own sessions over the loopback interface. Their looks are taken beforehand: on real nodes each takes its own, at
the same time (`evidence`). Beside the link the time to a verdict has the watch's: `hang_latency.py` measures it.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figures import Figures, Row, parser
from pairs import HERE, environment
from scale_plot import plot

SIZES = [8, 64, 256, 1024]
HEALTH_S = 20.0
PATIENCE_S = 180.0
LOOK_S = 1.5  # run.hang.LOOK_S
QUIET_S = 2.0  # watch.hang.QUIET_S
TARGETS = {"cores": 0.1, "kB/s": 1000.0, "verdict s": 20.0 - QUIET_S - LOOK_S, "MiB": 512.0, "KiB": 256.0}


class Part:
    """One of the two processes."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, str(HERE / "scale_nodes.py"), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self._read()

    def ask(self, *words: str) -> dict[str, Any]:
        self.tell(*words)
        return self._read()

    def tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args!r} has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(count: int, health_s: float) -> tuple[dict[str, float], list[str]]:
    key = secrets.token_hex(32)
    hub = Part("hub", count)
    others = Part("nodes", count, hub.first["port"], key)
    try:
        hub.ask("meet", key)
        return _measured(count, health_s, hub, others)
    finally:
        hub.end()
        others.end()


def _measured(count: int, health_s: float, hub: Part, others: Part) -> tuple[dict[str, float], list[str]]:
    begun = time.monotonic()
    others.ask("dial")
    _until(lambda: hub.ask("state")["linked"] == count - 1, "not all nodes came")
    joined = time.monotonic() - begun
    time.sleep(2 * 2.0 + 1)  # the members are told
    before, theirs = hub.ask("state"), others.ask("health")
    begun = time.monotonic()
    time.sleep(health_s)
    healthy, traffic = hub.ask("state"), others.ask("state")
    passed = time.monotonic() - begun
    others.ask("health")
    others.tell("suspect")
    others._read()
    hub.tell("suspect")
    told = hub._read()
    _until(lambda: others.ask("state")["verdicts"] == count - 1, "not all nodes have a verdict")
    after, seen = hub.ask("state"), others.ask("state")
    notes = [f"{count} nodes: {line}" for line in after["said"][:3]]
    right = [scale_job_culprit(count)]
    if list(told["ranks"]) != right or list(seen["ranks"]) != right:
        notes.append(f"{count} nodes: WRONG: {told['ranks']}, {seen['ranks']}, not {right}")
    if after["lost"] or seen["dropped"]:
        notes.append(f"{count} nodes: {after['lost']} lost, {seen['dropped']} connections dropped")
    return {
        "joined s": joined,
        "messages/s": (traffic["messages"] - theirs["messages"]) / passed,
        "kB/s": (traffic["bytes"] - theirs["bytes"]) / passed / 1000,
        "cores": (healthy["cpu_s"] - before["cpu_s"]) / passed,
        "healthy MiB": healthy["rss_mib"],
        "KiB": others.first["largest"] / 1024,
        "verdict s": max(seen["last_s"], told["took_s"]),
        "hub s": after["cpu_s"] - healthy["cpu_s"],
        "others s": seen["cpu_s"] - traffic["cpu_s"],
        "silent s": seen["silent_s"],
        "MiB": after["peak_mib"],
    }, notes


def scale_job_culprit(count: int) -> int:
    from scale_job import culprit

    return culprit(count)


def _until(what: Any, otherwise: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > until:
            sys.exit(otherwise)
        time.sleep(0.1)


ROWS = (
    ("all nodes linked, after", "joined s", "s"),
    ("healthy: messages at the hub", "messages/s", "1/s"),
    ("healthy: bytes at the hub", "kB/s", "kB/s"),
    ("healthy: CPU of the hub", "cores", "cores"),
    ("healthy: memory of the hub", "healthy MiB", "MiB"),
    ("a node's case on the wire, the largest", "KiB", "KiB"),
    ("first suspicion to the verdict on every node", "verdict s", "s"),
    ("CPU of the hub for that", "hub s", "s"),
    ("CPU of the simulated nodes meanwhile", "others s", "s"),
    ("longest time for which the hub did not answer", "silent s", "s"),
    ("peak of the hub's memory", "MiB", "MiB"),
)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, nargs="*", default=SIZES)
    options.add_argument("--seconds", type=float, default=HEALTH_S, help="of health that are measured")
    options.add_argument("--svg", type=Path, help="also plot how it grows")
    chosen = options.parse_args()
    figures = Figures("The link between the supervisors of N nodes with 8 ranks each", chosen.json)
    found: dict[int, dict[str, float]] = {}
    for count in chosen.nodes:
        found[count], notes = measure(count, chosen.seconds)
        for what, key, unit in ROWS:
            target = f"<= {TARGETS[key]:g}" if key in TARGETS else ""
            figures.add(Row(f"{count} nodes: {what}", unit, {"safelaunch": [found[count][key]]}, target=target))
        for note in notes:
            figures.note(note)
    figures.write()
    if chosen.svg:
        chosen.svg.write_text(plot(found, TARGETS))


if __name__ == "__main__":
    main()

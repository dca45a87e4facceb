"""Several hosts on one machine: network namespaces on a bridge, each with a host name of its own (netns_hosts.sh)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import environment

SCRIPT = Path(__file__).with_name("netns_hosts.sh")
CHECK = (sys.executable, "-m", "safelaunch", "check", "--json")
PASSED = """
import time
from safelaunch.model import Job
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.node_history import Known, read
record = read(Host(Job(1)))
record._keep(Known(record.boot_id, record.driver, {"node": time.time()}))
"""
KEPT: dict[str, str] = {}  # variables of a launch on all hosts, such as a fault of the probes
NET = "10.77.0"  # each rig has a bridge of its own, so that addresses of two do not meet


class Hosts:
    """`count` hosts, numbered from 1. Their names end in the number."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._environ = {**os.environ, "SLH_PREFIX": f"slt{os.getpid()}h", "SLH_NET": NET}
        self._running: list[subprocess.Popen[str]] = []
        self.do("up", count)

    def name(self, host: int) -> str:
        return f"{self._environ['SLH_PREFIX']}{host}"

    def do(self, *command: object) -> None:
        """A command of the script: cut, drop, rate, heal."""
        subprocess.run(["bash", SCRIPT, *map(str, command)], env=self._environ, check=True, capture_output=True)

    def inside(self, host: int, *command: str) -> None:
        """Run a command in the network of a host."""
        subprocess.run(["ip", "netns", "exec", self.name(host), *command], check=True, capture_output=True)

    def drop_high_ports(self, host: int) -> None:
        """A firewall on a host: no connection comes in, but to the rendezvous port."""
        for rule in (
            "add table inet slt",
            "add chain inet slt input { type filter hook input priority 0; policy accept; }",
            "add rule inet slt input tcp flags & (syn | ack) == syn tcp dport 30000-65535 drop",
        ):
            self.inside(host, "nft", rule)

    def heal(self) -> None:
        for host in range(1, self.count + 1):
            self.do("heal", host)
            subprocess.run(["ip", "netns", "exec", self.name(host), "nft", "delete table inet slt"],
                           capture_output=True, check=False)  # fmt: skip

    def start(self, host: int, *command: str, cwd: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", str(SCRIPT), "exec", str(host), *command],
            cwd=cwd,
            env={**environ, "SLH_PREFIX": self._environ["SLH_PREFIX"], "SLH_NET": NET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        return process

    def check(self, *hosts: int, nodes: int, cwd: Path, arguments: tuple[str, ...] = (), **env: str) -> list[Any]:
        """`safelaunch check` on hosts at the same time; the reports, as JSON tells them."""
        meet = ("--nnodes", str(nodes), "--rdzv-endpoint", f"{self.name(1)}:29400")
        command = (*CHECK, "--nproc-per-node", "1", "--only", "limits,nodes", *meet, *arguments)
        running = []
        for host in hosts:
            rank = () if "--no-ranks" in arguments else ("--node-rank", str(host - 1))
            words = [word for word in (*command, *rank) if word != "--no-ranks"]
            running.append(self.start(host, *words, cwd=cwd, environ=environment(**env)))
        reports = []
        for process in running:
            out, err = process.communicate(timeout=100)
            assert process.returncode in (0, 69), err
            reports.append(json.loads(out))
        return reports

    def launch(self, script: Path, *arguments: object, cwd: Path, own: Mapping[int, tuple[object, ...]]) -> list[Any]:
        """`safelaunch` on the hosts that `own` names, with options of each beside those of all: the exit code and what
        it said, of each."""
        running = []
        for host, options in own.items():
            words = (sys.executable, "-m", "safelaunch", *arguments, *options, script)
            environ = environment(XDG_CACHE_HOME=str(cwd / f"cache-{host}"), **KEPT)
            running.append(self.start(host, *map(str, words), cwd=cwd, environ=environ))
        ended = []
        for process in running:
            _, err = process.communicate(timeout=150)
            ended.append((process.returncode, err))
        return ended

    def known(self, *hosts: int, cwd: Path) -> None:
        """Write down that these hosts have passed all checks, so that a launch makes the quick ones only."""
        for host in hosts:
            environ = environment(XDG_CACHE_HOME=str(cwd / f"cache-{host}"))
            process = self.start(host, sys.executable, "-c", PASSED, cwd=cwd, environ=environ)
            assert process.wait(timeout=60) == 0

    def down(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.do("down")


class JitteryHosts(Hosts):
    """Hosts whose cables hold each packet up for 0 to 200 ms, and lose one of twenty (jitter_hosts.py).

    Args:
        count: hosts.
        bad: those of which that holds; all others have good cables.
    """

    def __init__(self, count: int, *bad: int) -> None:
        self.count = count
        self._environ = {**os.environ, "SLH_PREFIX": f"slt{os.getpid()}j", "SLH_NET": "10.78.0"}
        self._running = []
        words = (sys.executable, SCRIPT.with_name("jitter_hosts.py"), count, "--bad", ",".join(map(str, bad)))
        self._cables = subprocess.Popen(
            list(map(str, words)), env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._cables.stdout is not None
        assert self._cables.stdout.readline() == "ready\n"

    def down(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()
        self._cables.communicate()


def why_not() -> str:
    """Why this machine cannot have such hosts; empty where it can."""
    if os.getuid() != 0:
        return "needs root"
    for program in ("ip", "nft", "tc", "unshare"):
        if shutil.which(program) is None:
            return f"needs {program}"
    probe = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces: {probe.stderr.strip()}" if probe.returncode else ""

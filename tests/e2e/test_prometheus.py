"""A real Prometheus and node_exporter see a run that hangs and goes on: the alert of examples/operators fires, and
clears."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness import REPOSITORY, start

RULES = REPOSITORY / "examples" / "operators" / "alerts.yml"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-node-exporter")), reason="no Prometheus here"
)


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")
def test_the_rules_are_valid() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


HANGS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1)
step = 0
while not os.path.exists("enough"):
    step += 1
    if step == 50 and dist.get_rank() == 1:
        while not os.path.exists("go"):
            time.sleep(0.1)
    dist.all_reduce(torch.ones(1))
    optimizer.step()
    time.sleep(0.05)
"""

CONFIG = """
global: {{scrape_interval: 2s, evaluation_interval: 2s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: node, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


def a_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes a node_exporter for the files in `metrics`."""
    (tmp_path / "metrics").mkdir()
    exporter, port = a_port(), a_port()
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(rules=RULES, port=exporter))
    commands = (
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{exporter}", "--collector.disable-defaults"]
        + ["--collector.textfile", f"--collector.textfile.directory={tmp_path}/metrics"],
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
        + [f"--web.listen-address=127.0.0.1:{port}"],
    )
    with ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
        yield f"http://127.0.0.1:{port}"


def firing(address: str) -> set[str]:
    try:
        with urllib.request.urlopen(f"{address}/api/v1/alerts", timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
    except (urllib.error.URLError, OSError):
        return set()
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@needs_prometheus
@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_alert_fires_while_ranks_hang_and_clears_afterwards(prometheus: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    (tmp_path / "mine.toml").write_text(f'[metrics]\ntextfile = "{tmp_path}/metrics"\n')
    options = ("--profile", "./mine.toml", "--on-hang", "report", "--preflight", "off", "--nproc-per-node", 4)
    run = start(*options, "train.py", cwd=tmp_path)
    try:
        while "SafelaunchNoProgress" not in firing(prometheus):  # the test's timeout is the limit
            assert run.poll() is None
            time.sleep(0.5)
        (tmp_path / "go").touch()
        while firing(prometheus):
            assert run.poll() is None
            time.sleep(0.5)
        (tmp_path / "enough").touch()
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()

"""Random kills of any process of a run at random moments: no orphan, and the launcher always ends.

`SAFELAUNCH_CHAOS=200` sets how many; the seed of each is in its test's name.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from harness import FAULTS, newest_run, start, survivors
from test_signals import children, fork_server_of, is_agent

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("SAFELAUNCH_CHAOS", "4"))


def victims(supervisor: int) -> dict[str, list[int]]:
    """The processes of a run by their part in it."""
    below = children(supervisor)
    agents = [pid for pid in below if is_agent(pid)]
    servers = [pid for pid in [fork_server_of(supervisor)] if pid is not None]
    guards = [pid for pid in below if pid not in agents + servers]
    workers = [pid for parent in agents + servers for pid in children(parent)]
    loaders = [pid for worker in workers for pid in children(worker)]
    parts = {"supervisor": [supervisor], "agent": agents, "guard": guards, "worker": workers, "loader": loaders}
    return {**parts, "fork server": servers}


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_kill_leaves_nothing(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    words = chance.choice([(), (), ("ignore",)])
    process = start("--nproc-per-node", 2, "--shutdown-timeout", 1, FAULTS / "family.py", *words, cwd=tmp_path)

    # The moment is the point here: any of them must do, on any machine.
    time.sleep(chance.uniform(0, 8))
    parts = victims(process.pid)
    part = chance.choice([name for name, pids in parts.items() if pids])
    for pid in chance.sample(parts[part], 1):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if part in ("guard", "loader") or (part == "fork server" and not parts["worker"]):
        # None of these ends a run by itself: a loader's rank notices, later; a fork server from which no rank has
        # come yet is replaced by a cold start. Then the user loses patience.
        time.sleep(chance.uniform(0, 1))
        process.send_signal(chance.choice([signal.SIGTERM, signal.SIGKILL]))

    process.communicate(timeout=40)
    run_dir = newest_run(tmp_path)
    if run_dir is not None and (run_dir / "run.json").exists():
        assert survivors(run_dir, within_s=5) == [], part

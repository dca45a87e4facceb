"""[metrics] of a profile: the file is there while the run goes on, and gone after it."""

from __future__ import annotations

from pathlib import Path

from harness import launch

TRAINS = """
import glob, os, time, torch
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1)
found = ""
while 'safelaunch_steps_total{run="' not in found:
    optimizer.step()
    time.sleep(0.05)
    found = "".join(open(name).read() for name in glob.glob("metrics/*.prom"))
print(found)
"""


def test_a_run_is_seen_by_prometheus_while_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "mine.toml").write_text(f'[metrics]\ntextfile = "{tmp_path}/metrics"\n')
    options = ("--profile", "./mine.toml", "--preflight", "off", "--nproc-per-node", 2)
    ended = launch(*options, "train.py", cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert 'safelaunch_up{run="' in ended.out
    assert 'script="train.py"' in ended.out
    assert list((tmp_path / "metrics").iterdir()) == []

"""A call that completes with wrong numbers is told of while the run goes on, and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import launch

pytestmark = pytest.mark.timeout(120)

ONE_REDUCES_OTHERWISE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 6):
    how = dist.ReduceOp.MAX if step == 4 and rank == 2 else dist.ReduceOp.SUM
    dist.all_reduce(torch.ones(1000), how)
dist.barrier()
dist.destroy_process_group()
"""


def test_a_reduction_that_differs_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ONE_REDUCES_OTHERWISE)
    ended = launch("--preflight", "off", "--nproc-per-node", 3, "train.py", cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert "warning[SL233]: rank 2 made all_reduce #4 with max, its peers with sum" in ended.err
    (finding,) = [one for one in ended.read("result.json")["findings"] if one["code"] == "SL233"]
    assert finding["where"] == "train.py:7"

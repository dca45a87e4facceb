"""The environment in which a command is run, changed at random: a kind of `mutations`."""

from __future__ import annotations

import json
import random
from pathlib import Path

from changed import of_bytes

NUMBERS = (
    "OMP_NUM_THREADS SLURM_NNODES SLURM_NTASKS SLURM_PROCID SLURM_RESTART_COUNT LOCAL_RANK RANK WORLD_SIZE MASTER_PORT"
)
OTHERS = {
    "CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/home/ada", "MASTER_ADDR": "node-a", "NCCL_DEBUG": "INFO",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_1", "NCCL_SOCKET_IFNAME": "eth0,^docker", "NCCL_TIMEOUT": "1800",
    "PET_NNODES": "1:2", "NCCL_ALGO": "Ring;allreduce:Tree",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "SAFELAUNCH_HANG_ABORT_AFTER": "10m", "SAFELAUNCH_SUPERVISOR": "17:99", "SAFELAUNCH_RUN_TOKEN": "3f",
    "TMPDIR": "/tmp", "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node[1-4,7]",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL", "LC_ALL": "C",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "480",
    "XDG_CACHE_HOME": "/nowhere",
}  # fmt: skip


def an_environment(folder: Path, chance: random.Random, real: dict[str, str]) -> list[str]:
    """Variables as users set them, some values and a name changed."""
    environ = dict(real)
    for name in chance.sample(sorted(environ), chance.choice((1, 2, 5))):
        environ[name] = of_bytes(environ[name].encode(), chance).decode("utf-8", "surrogateescape").replace("\0", "")
    name = of_bytes(chance.choice(sorted(environ)).encode(), chance).decode("utf-8", "surrogateescape")
    environ[name.replace("\0", "").replace("=", "") or "X"] = "1"
    (folder / "environ.json").write_text(json.dumps({**environ, "check": str(chance.random() < 0.1)}))
    return [str(folder / "environ.json")]


def of_users() -> dict[str, str]:
    """Variables of all kinds that are read."""
    return {**dict.fromkeys(NUMBERS.split(), "2"), **OTHERS}


def examined(paths: list[str]) -> None:
    """What `safelaunch env --check` and, for some, `safelaunch check` do with it.

    Raises:
        AssertionError: a check has failed itself.
    """
    from safelaunch.cli import check, findings
    from safelaunch.settings.lint.installed import ELSEWHERE
    from safelaunch.settings.resolve import resolve_profiles

    environ = json.loads(Path(paths[0]).read_text())
    node = environ.pop("check")
    findings.of_layers(resolve_profiles([], environ), ELSEWHERE, environ)
    if node == "True":
        report, _ = check._examine(check.parser().parse_args(["--nproc-per-node", "2"]), environ)
        failed = [finding for finding in report.findings if "itself failed" in finding.summary]
        assert not failed, failed

"""Launchers of several nodes that all have the number of the first one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.settings.lint.jobs.launch import identity
from safelaunch.settings.lint.jobs.launch.launchers import Launch
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark

# What else may give accelerate the number of its machine, or make it ask for none.
_OF_ACCELERATE = frozenset(
    {"config-file", "use-deepspeed", "deepspeed-hostfile", "deepspeed-multinode-launcher", "mpirun-hostfile"}
)
_OF_TORCH = re.compile(r"\bPET_(?:NODE_RANK|RDZV_)")
# Source: prepare_multi_gpu_env in accelerate/utils/launch.py of 0.27 to 1.15, int(args.machine_rank).
_OF_ITS_FILE = (
    "without it, accelerate takes the number in its configuration file, the same on all machines",
    "without such a file it ends with a TypeError, with whatever --rdzv_backend",
)
_STATIC = (
    "with a static rendezvous, the default, nobody else numbers the nodes",
    "both of two nodes without a number waited without end (measured, torch 2.13)",
)


def no_own_rank(scene: Scene) -> Iterator[Remark]:
    """Every node is node 0: the launcher is not told which one it is.

    With a static rendezvous, torchrun's default, nobody numbers the nodes: each has the number that it is given, and 0
    without a word. Two nodes 0 wait for a node 1 that never comes. `accelerate launch` wants --machine_rank with any
    rendezvous.

    How it is concluded: srun starts torchrun or `accelerate launch` on several nodes, with a master. There is neither
    --node-rank (--machine_rank) nor a rendezvous that numbers the nodes; or one number is given to all of them. A
    `--config_file`, which may say it, is not read.

    What to do: let the shell of each task fill it in: `srun bash -c '... --node-rank $SLURM_NODEID ...'`; or
    `--rdzv-backend=c10d`, with which torchrun needs none.
    """
    for launch in scene.of("torchrun", "torch.distributed.launch", "accelerate"):
        given, accelerate = launch.options.get("node-rank"), launch.name == "accelerate"
        if not _on_several(scene, launch) or (given is not None and launch.number("node-rank") is None):
            continue
        if identity.meets(launch.text("rdzv-backend") or "") and (given is not None or not accelerate):
            continue
        if given is None and _may_be_told(scene, launch):
            continue
        option = "--machine_rank" if accelerate else "--node-rank"
        other = "" if accelerate else "; or --rdzv-backend=c10d with --rdzv-endpoint, which numbers them itself"
        says = f"every node takes itself for node {given[0] if given else 0}: {option} is "
        says += f"{given[0]} on all of them" if given else "not given"
        if accelerate and not given:
            says = f"no machine has a number of its own: {option} is not given"
        yield scene.tell(
            "SL249",
            "error",
            says,
            _OF_ITS_FILE if accelerate and not given else _STATIC,
            f"write srun bash -c '... {option} $SLURM_NODEID ...' in single quotes, which the shell of each task fills "
            f"in{other}",
            scene.span_of(launch, "node-rank"),
        )


def _on_several(scene: Scene, launch: Launch) -> bool:
    """Whether one command is run on several nodes, as a launcher of several."""
    if launch.runner != "srun" or launch.command.loop or launch.open or launch.long_dash:
        return False
    if "standalone" in launch.options:
        return False
    nodes, told = scene.nodes(launch), launch.nnodes
    one = launch.step is not None and launch.step.number("ntasks") == 1
    return not one and bool(nodes and nodes > 1) and (told is None or told[0] > 1)


def _may_be_told(scene: Scene, launch: Launch) -> bool:
    """Whether it gets its number in another way, or another rule has told of the missing master."""
    if launch.script is None or any(" --" in text for text, _ in launch.given):
        return True  # some of its words were not read
    if launch.name == "accelerate":
        return bool(_OF_ACCELERATE & set(launch.options))
    return not {"master-addr", "rdzv-endpoint"} & set(launch.options) or bool(_OF_TORCH.search(scene.job.text))

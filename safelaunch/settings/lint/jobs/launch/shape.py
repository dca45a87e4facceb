"""How many ranks come of a job: its nodes, tasks and GPUs against what the launcher is told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.settings.lint.extract.words import UNKNOWN
from safelaunch.settings.lint.jobs.launch.launchers import Launch
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.sizes import plural

_EACH = re.compile(r"--n?tasks-per-node[= ](\S+)")
_JOB_EACH = re.compile(r"""["']?\$\{?SLURM_N?TASKS_PER_NODE\b""")
_JOB_ALL = re.compile(r"""(?:--ntasks[= ]|-n ?)["']?\$\{?SLURM_N(?:TASKS|PROCS)\b""")


def ranks_and_gpus(scene: Scene) -> Iterator[Remark]:
    """The launcher starts more or fewer ranks on a node than the job has GPUs there.

    With more ranks than GPUs, two ranks share a GPU or one fails with "invalid device ordinal"; with fewer, GPUs stay
    idle.

    How it is concluded: --nproc-per-node is a number, and so is what the job asks for: --gres=gpu:N, --gpus-per-node,
    --gpus or --gpus-per-task of Slurm, `nvidia.com/gpu` of Kubernetes, `gpuCount` of Beaker, `accelerators` of
    SkyPilot. A file that sets CUDA_VISIBLE_DEVICES, and values that only the run can tell, are left alone. Of
    `accelerate launch`, --num_processes counts the ranks of all machines: it is told where it is above their GPUs, or
    where several machines get as many ranks as one has GPUs. Fewer on one machine may be meant so.

    What to do: write the same number, or let it be counted: `--nproc-per-node=gpu`.
    """
    if any(setting.name == "CUDA_VISIBLE_DEVICES" for setting in scene.job.settings):
        return
    yield from _of_all_machines(scene)
    for launch in scene.of("torchrun", "torch.distributed.launch"):
        ranks, gpus = launch.number("nproc-per-node"), scene.gpus(launch)
        if "nproc-per-node" not in launch.options and gpus and gpus > 1 and not launch.open:
            ranks = 1
        if not ranks or not gpus or ranks == gpus or (launch.step and launch.step.number("ntasks-per-node") == gpus):
            continue
        if ranks < gpus and len(scene.launches) > 1:
            continue  # others may take the rest
        more = ranks > gpus
        said = "" if "nproc-per-node" in launch.options else ", for --nproc-per-node is not given"
        left = "some have none of their own" if more else f"{gpus - ranks} of them stay idle"
        asked = scene.asked
        where = f"line {asked.line_of_gpus} asks for them" if asked and asked.line_of_gpus else "the job asks for them"
        yield scene.tell(
            "SL240",
            "error" if more else "warning",
            f"{plural(ranks, 'rank')} on each node and {plural(gpus, 'GPU')}: {left}{said}",
            (where,),
            f"write --nproc-per-node={gpus}, or --nproc-per-node=gpu",
            scene.span_of(launch, "nproc-per-node"),
        )


def _of_all_machines(scene: Scene) -> Iterator[Remark]:
    for launch in scene.of("accelerate"):
        ranks, gpus, told = launch.number("num-processes"), scene.gpus(launch), launch.nnodes
        nodes = told[0] if told is not None and "nnodes" in launch.options else scene.nodes(launch) or 1
        if not ranks or not gpus or (told is None and nodes == 1):
            continue
        more = ranks > nodes * gpus
        if not more and not (nodes > 1 and ranks == gpus):
            continue
        left = "some have no GPU of their own" if more else f"{nodes * gpus - ranks} GPUs stay idle"
        yield scene.tell(
            "SL240",
            "error" if more else "warning",
            f"{plural(ranks, 'rank')} on {plural(nodes, 'node')} with {plural(gpus, 'GPU')} each: {left}",
            ("--num_processes counts the ranks of all machines",),
            f"write --num_processes={nodes * gpus}",
            scene.span_of(launch, "num-processes"),
        )


def nodes_differ(scene: Scene) -> Iterator[Remark]:
    """The launcher waits for another number of nodes than the job has.

    With more, it waits until the rendezvous times out; with fewer, nodes stay idle, or fail to join.

    How it is concluded: --nnodes (`--num_machines` of accelerate) is a number or a range, and the nodes that the job
    asks for are outside of it: --nodes of Slurm, `num_nodes` of SkyPilot, `replicas` of Beaker. Only launchers that
    are started on all nodes are looked at.

    What to do: write the same number; under Slurm `--nnodes=$SLURM_NNODES` is always right.
    """
    for launch in scene.of("torchrun", "torch.distributed.launch", "accelerate"):
        nodes, told = scene.nodes(launch), launch.nnodes
        given = "nnodes" in launch.options
        if nodes is None or told is None or told[0] <= nodes <= told[1] or launch.runner in ("remote", "submitted"):
            continue
        everywhere = launch.runner == "srun" or (scene.asked is None and bool(launch.command.resources))
        if (not given and (nodes == 1 or not everywhere)) or (not everywhere and nodes > 1):
            continue  # those that are started on one node only are told of by another rule
        if launch.command.loop or (not given and (launch.open or launch.name == "accelerate")):
            continue
        wants = plural(told[0], "node") if told[0] == told[1] else f"{told[0]} to {told[1]} nodes"
        more = told[0] > nodes
        if not given:
            summary = f"each of {nodes} nodes starts a job of its own, for --nnodes is not given"
        elif more:
            summary = f"the launcher waits for {wants}, and the job has {nodes}"
        else:
            summary = f"the launcher takes {wants} of the {nodes} that the job has"
        line = scene.asked.line("nodes") if scene.asked else 0
        slurm = scene.asked is not None or launch.runner == "srun"
        yield scene.tell(
            "SL241",
            "error",
            summary,
            (f"line {line} asks for them",) if line else (),
            "write --nnodes=$SLURM_NNODES" if slurm else f"write --nnodes={nodes}",
            scene.span_of(launch, "nnodes"),
        )


def one_node_only(scene: Scene) -> Iterator[Remark]:
    """The job has several nodes, and the launcher is started on the first of them only.

    A batch script runs on one node. torchrun starts ranks on its own node and none on others: with --nnodes it waits
    for nodes that never come, without it the other nodes stay idle.

    How it is concluded: #SBATCH --nodes is 2 or more, and torchrun, or `accelerate launch`, is called by the batch
    shell itself: not by srun, mpirun, ssh, pdsh or a program that is not known. deepspeed starts its own ranks on
    other nodes, and is left alone.

    What to do: put srun before it. `srun safelaunch train.py` needs no other option.
    """
    if not scene.several_nodes or scene.asked is None:
        return
    for launch in scene.of("torchrun", "torch.distributed.launch", "accelerate"):
        if launch.runner or (launch.text("nnodes") or "") == "1" or launch.options.get("standalone"):
            continue
        srun = "srun" if scene.asked.tasks_per_node == 1 else "srun --ntasks-per-node=1"
        yield scene.tell(
            "SL242",
            "error",
            f"{launch.name} runs on the first of {scene.asked.text('nodes')} nodes only: nothing starts it on the rest",
            (f"line {scene.asked.line('nodes')} asks for them, and a batch script runs on one",),
            f"write {scene.with_before(launch, srun)}",
            scene.span(launch.word),
        )


def ranks_multiplied(scene: Scene) -> Iterator[Remark]:
    """srun starts the launcher several times on each node, and each of them starts all ranks of the node.

    With 8 tasks a node and --nproc-per-node=8 that is 64 processes for 8 GPUs, and launchers that fight for a port.

    How it is concluded: the job asks for several tasks a node (--ntasks-per-node, or --ntasks above --nodes), and srun
    takes that over. What it starts is torchrun, accelerate or torch.distributed.launch, which make a rank for each GPU
    themselves.

    What to do: give srun one task a node, or start the script without a launcher, with a rank for each task.
    """
    for launch in scene.launches:
        if launch.runner != "srun" or launch.step is None or launch.name == "deepspeed":
            continue
        step = launch.step
        own = ("ntasks-per-node" in step or "ntasks" in step) and not _as_the_job(launch)
        if own:
            tasks = _tasks_of(scene, step.number("ntasks"), step.number("ntasks-per-node"))
        else:
            tasks = scene.asked.tasks_per_node if scene.asked else None
        if tasks is None or tasks < 2 or launch.number("nproc-per-node") == 1:
            continue
        ranks = launch.text("nproc-per-node") or ""
        each = f"{plural(tasks * int(ranks), 'rank')}" if ranks.isdecimal() else f"{tasks} times the ranks"
        asked = scene.asked
        line = 0 if own or asked is None else asked.line("ntasks-per-node", "ntasks")
        yield scene.tell(
            "SL245",
            "error",
            f"srun starts {launch.name} {tasks} times on each node: {each} there",
            (f"line {line} asks for {tasks} tasks a node",) if line else (),
            f"write srun --ntasks-per-node=1 {' '.join(_after_srun(scene.source(launch)))}".rstrip(),
            scene.span(launch.word),
        )


def _as_the_job(launch: Launch) -> bool:
    """Whether srun starts as many tasks a node as the job has: it is given the variables that Slurm sets."""
    before = " ".join(word.raw for word in launch.command.words[: launch.at])
    each = _EACH.search(before)
    return bool(_JOB_EACH.match(each[1]) if each else _JOB_ALL.search(before))


def _tasks_of(scene: Scene, ntasks: int | None, each: int | None) -> int | None:
    if each is not None:
        return each
    nodes = scene.asked.nodes if scene.asked and "nodes" in scene.asked else None
    return ntasks // nodes if ntasks and nodes and ntasks % nodes == 0 else None


def _after_srun(line: str) -> list[str]:
    words = line.split()
    return words[words.index("srun") + 1 :] if "srun" in words and UNKNOWN not in line else words

"""How many ranks come of a job: its nodes, tasks and GPUs against what the launcher is told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.settings.lint.extract.words import UNKNOWN
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch import identity
from safelaunch.settings.lint.jobs.launch.launchers import Launch
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.sizes import plural

# What each launcher calls the ranks that one start of it makes.
_RANKS_OF_ONE = {"deepspeed": "--num_gpus"}
_PER_NODE = "--nproc-per-node"
# The number of tasks that holds beside whatever a batch script asks for: measured with Slurm 22.05.
ONE_A_NODE = "--ntasks=$SLURM_NNODES --ntasks-per-node=1"
TASK = re.compile(r"SLURM_(?:PROCID|NODEID|LOCALID)\b")


def ranks_and_gpus(scene: Scene) -> Iterator[Remark]:
    """The launcher starts more or fewer ranks on a node than the job has GPUs there.

    With more ranks than GPUs, two ranks share a GPU or one fails with "invalid device ordinal"; with fewer, GPUs stay
    idle.

    How it is concluded: --nproc-per-node (`--num_gpus` of deepspeed) is a number, and so is what the job asks for:
    --gres=gpu:N, --gpus-per-node, --gpus or --gpus-per-task of Slurm, `nvidia.com/gpu` of Kubernetes, `gpuCount` of
    Beaker, `accelerators` of SkyPilot. They are compared for one start of the launcher: with --gpus-per-task, it sees
    the GPUs of its task. --gpus is a total, which several nodes share unevenly: it is told where all of them together
    start more ranks. A file that sets CUDA_VISIBLE_DEVICES, and values that only the run can tell, are left alone. Of
    `accelerate launch`, --num_processes counts the ranks of all machines: it is told where it is above their GPUs, or
    where several machines get as many ranks as one has GPUs. Fewer on one machine may be meant so.

    It is also told where the tasks of a node need more GPUs (--gpus-per-task) than are asked for of it: sbatch then
    refuses the job.

    What to do: write the same number, or let it be counted: `--nproc-per-node=gpu`.
    """
    yield from _more_than_the_node(scene)
    if any(setting.name == "CUDA_VISIBLE_DEVICES" for setting in scene.job.settings):
        return
    yield from _of_all_machines(scene)
    for launch in scene.of("torchrun", "torch.distributed.launch", "deepspeed"):
        ranks, gpus, given = launch.number("nproc-per-node"), scene.gpus(launch), "nproc-per-node" in launch.options
        if not given and gpus and gpus > 1 and not launch.open and launch.name != "deepspeed":
            ranks = 1
        if not ranks or (launch.name != "deepspeed" and multiplied(scene, launch)):
            continue
        if gpus:
            yield from _of_one_start(scene, launch, ranks, gpus)
        elif given:
            yield from _of_a_total(scene, launch, ranks)


def _of_one_start(scene: Scene, launch: Launch, ranks: int, gpus: int) -> Iterator[Remark]:
    shared = launch.runner == "srun" and not scene.shares_out(launch)
    tasks = scene.tasks(launch) if shared else 1
    together = ranks * (tasks or 1)
    if together == gpus or (together < gpus and (len(scene.launches) > 1 or tasks != 1)):
        return  # others may take the rest
    more = together > gpus
    said = "" if "nproc-per-node" in launch.options else f", for {_PER_NODE} is not given"
    idle = f"{gpus - ranks} of them {'stays' if gpus - ranks == 1 else 'stay'} idle"
    of_each = f"{plural(tasks, 'task')} of {plural(ranks, 'rank')}" if tasks and tasks > 1 else plural(ranks, "rank")
    where = "in each task" if scene.shares_out(launch) else "on each node"
    option = _RANKS_OF_ONE.get(launch.name, _PER_NODE)
    remedy = f"write {option}={gpus}" + (f", or {option}=gpu" if option == _PER_NODE else ", or leave it out")
    if tasks and tasks > 1:
        remedy = f"ask for {plural(together, 'GPU')} a node, or for {plural(gpus // ranks, 'task')}"
    yield scene.tell(
        "SL240",
        "error" if more else "warning",
        f"{of_each} {where} and {plural(gpus, 'GPU')}: {'some have none of their own' if more else idle}{said}",
        (_asked_for(scene),),
        remedy,
        scene.span_of(launch, "nproc-per-node"),
    )


def _asked_for(scene: Scene) -> str:
    asked = scene.asked
    return f"line {asked.line_of_gpus} asks for them" if asked and asked.line_of_gpus else "the job asks for them"


def _of_a_total(scene: Scene, launch: Launch, ranks: int) -> Iterator[Remark]:
    """`--gpus` of several nodes: how many each of them gets is Slurm's choice."""
    asked, nodes = scene.asked, scene.nodes(launch)
    total = asked.gpus_in_all if asked and asked.line("gpus") == asked.line_of_gpus else None
    if asked is None or not total or not nodes or (launch.step and launch.step.asks_for_gpus):
        return
    everywhere = launch.runner == "srun" or launch.text("hostfile") is not None
    if everywhere and nodes > 1 and ranks * nodes > total:
        yield scene.tell(
            "SL240",
            "error",
            f"{plural(ranks, 'rank')} on each of {nodes} nodes and {plural(total, 'GPU')} on all of them together: "
            "some have none of their own",
            (f"line {asked.line('gpus')} asks for a total, which Slurm shares out as it likes",),
            f"write #SBATCH --gpus-per-node={ranks} in its place",
            scene.span_of(launch, "nproc-per-node"),
        )


def _more_than_the_node(scene: Scene) -> Iterator[Remark]:
    asked = scene.asked
    if asked is None:
        return
    tasks, each, gpus = asked.tasks_per_node, asked.gpus_per_task, asked.gpus_of_node
    if tasks and each and gpus and tasks * each > gpus:
        line = asked.line("gpus-per-task")
        yield scene.tell(
            "SL240",
            "error",
            f"{plural(tasks, 'task')} on each node with {plural(each, 'GPU')} each, and {plural(gpus, 'GPU')} there: "
            "sbatch refuses the job",
            (f"line {asked.line('gpus-per-node', 'gres')} asks for {gpus} of each node",),
            f"ask for {tasks * each} there, or leave out --gpus-per-task",
            remark.whole(scene.job.lines, line),
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
        yield scene.tell(
            "SL242",
            "error",
            f"{launch.name} runs on the first of {scene.asked.text('nodes')} nodes only: nothing starts it on the rest",
            (f"line {scene.asked.line('nodes')} asks for them, and a batch script runs on one",),
            _written(scene, launch, "srun" if scene.asked.tasks_per_node == 1 else f"srun {ONE_A_NODE}")
            + _beside_srun(launch),
            scene.span(launch.word),
        )


def _beside_srun(launch: Launch) -> str:
    """What a launcher needs as well once it is started on all nodes: their number, and which of them it is."""
    rank = launch.options.get("node-rank")
    if rank is not None or launch.name == "accelerate":
        option = "--machine_rank" if launch.name == "accelerate" else "--node-rank"
        if rank is None and "config-file" in launch.options:
            return ""
        early = rank is None or TASK.search(rank[1].raw)
        return f", with {option} $SLURM_NODEID in the quotes of bash -c" if early else ""
    wanted = [] if "nnodes" in launch.options or launch.open else ["--nnodes=$SLURM_NNODES"]
    if not identity.meets(launch.text("rdzv-backend") or "") and not launch.open:
        wanted.append(identity.ENDPOINT)
    return f", with {' '.join(wanted)}" if wanted else ""


def ranks_multiplied(scene: Scene) -> Iterator[Remark]:
    """srun starts the launcher several times on a node, and each of them starts all ranks of the node.

    With 8 tasks a node and --nproc-per-node=8 that is 64 processes for 8 GPUs, and launchers that fight for a port.
    deepspeed starts the ranks of all nodes of its hostfile: one start of it is enough for the job. Without a
    hostfile it knows its own node only, and each start is a training of its own.

    How it is concluded: the job asks for several tasks a node (--ntasks-per-node, or --ntasks above --nodes), and srun
    takes that over. Beside another number of tasks, srun does not heed its own --ntasks-per-node; --ntasks it does
    (measured with Slurm 22.05). What it starts is torchrun, accelerate or torch.distributed.launch, which make a rank
    for each GPU themselves. A launcher that starts no more ranks than its task has GPUs (--gpus-per-task), and waits
    for as many nodes as there are tasks, is left alone; so is deepspeed with --no_ssh or a --launcher.

    What to do: give srun one task a node, `srun --ntasks=$SLURM_NNODES --ntasks-per-node=1`, or start the script
    without a launcher, with a rank for each task. deepspeed with a hostfile needs no srun.
    """
    for launch in scene.launches:
        tasks = multiplied(scene, launch)
        if not tasks:
            continue
        if launch.name == "deepspeed":
            yield _whole_job(scene, launch, tasks)
            continue
        ranks = launch.text("nproc-per-node") or ""
        each = f"{plural(tasks * int(ranks), 'rank')}" if ranks.isdecimal() else f"{tasks} times the ranks"
        asked, step = scene.asked, launch.step
        own = step is not None and "ntasks" in step and not launch.tasks_of_job
        line = 0 if own or asked is None else asked.line("ntasks-per-node", "ntasks")
        somewhere = scene.tasks(launch) is None
        unheeded = not own and step is not None and step.number("ntasks-per-node") not in (None, tasks)
        because: tuple[str, ...] = (
            (f"line {line} asks for {tasks} tasks{'' if somewhere else ' a node'}",) if line else ()
        )
        if unheeded:
            because += ("srun takes that over, and does not heed another --ntasks-per-node without --ntasks",)
        yield scene.tell(
            "SL245",
            "error",
            f"srun starts {launch.name} {tasks} times"
            + (f": {each} in all" if somewhere else f" on each node: {each} there"),
            because,
            _one_a_node(scene, launch, tasks, own),
            scene.span(launch.word),
        )


def multiplied(scene: Scene, launch: Launch) -> int:
    """How often srun starts a launcher where it should start it once: on each node, or a whole job; else 0."""
    if launch.runner != "srun" or launch.long_dash:
        return 0
    starts = scene.starts(launch)
    if launch.name == "deepspeed":
        alone = {"no-ssh", "node-rank", "launcher"} & set(launch.options) or launch.open
        elsewhere = "hostfile" not in launch.options and "/job/hostfile" in scene.job.text
        return 0 if alone or elsewhere or not starts or starts < 2 else starts
    if launch.number("nproc-per-node") == 1 or _for_each_task(scene, launch):
        return 0
    tasks = scene.tasks(launch)
    if tasks is None and launch.nnodes == (1, 1):
        tasks = starts  # wherever they come to, none of them waits for another
    return tasks if tasks and tasks > 1 else 0


def _for_each_task(scene: Scene, launch: Launch) -> bool:
    """Whether each task is a node to the launcher: it has GPUs of its own, and is counted as one."""
    gpus, ranks, nodes = scene.gpus(launch), launch.text("nproc-per-node") or "1", launch.options.get("nnodes")
    if not scene.shares_out(launch) or nodes is None:
        return False
    counted = "SLURM_NTASKS" in nodes[1].raw or "SLURM_NPROCS" in nodes[1].raw
    fits = ranks in ("gpu", "auto") or (ranks.isdecimal() and gpus is not None and int(ranks) <= gpus)
    return fits and (counted or (launch.nnodes is not None and launch.nnodes[1] == scene.starts(launch)))


def _whole_job(scene: Scene, launch: Launch, starts: int) -> Remark:
    if "hostfile" in launch.options:
        why = "each of them starts the ranks of all nodes"
        because = "deepspeed reaches the nodes of its hostfile itself"
        remedy = "take srun away: deepspeed is called once, by the batch script"
    else:
        why = f"that is {starts} trainings that know nothing of one another"
        because = "without --hostfile, deepspeed knows the GPUs of its own node only"
        remedy = "take srun away and give deepspeed a --hostfile, or start torchrun with srun"
    if not scene.several_nodes:
        remedy = "take srun away, or write srun --ntasks=1"
    return scene.tell(
        "SL245",
        "error",
        f"srun starts deepspeed {starts} times: {why}",
        (because,),
        remedy,
        scene.span(launch.word),
    )


def _one_a_node(scene: Scene, launch: Launch, tasks: int, own: bool) -> str:
    """The way to one task a node, which has all GPUs of it."""
    asked, step = scene.asked, launch.step
    if scene.shares_out(launch) and asked is not None:
        # One task would get the GPUs of one task, and srun cannot ask for more of them than the job did.
        gpus = scene.gpus(launch)
        instead = f"--gpus-per-node={gpus * tasks}" if gpus else "--gpus-per-node"
        return f"write #SBATCH --ntasks-per-node=1 and {instead}, in place of --gpus-per-task"
    if own or (step is not None and step.says_tasks):
        return f"give srun {ONE_A_NODE} in place of its number of tasks"
    return _written(scene, launch, f"srun {ONE_A_NODE}")


def _written(scene: Scene, launch: Launch, srun: str) -> str:
    """What to write before a launcher: the whole line, where it is one."""
    whole = launch.command.words[-1].line == launch.command.words[0].line
    line = scene.source(launch)
    if not whole or UNKNOWN in line or line.endswith("\\"):
        return f"write {srun} before {_called(launch)}"
    if launch.runner == "srun":
        return f"write {re.sub(r'(?<!-)srun(?= )', lambda _: srun, line, count=1)}"
    return f"write {scene.with_before(launch, srun)}"


def _called(launch: Launch) -> str:
    if launch.word.raw.endswith(launch.name):
        return "accelerate launch" if launch.name == "accelerate" else launch.name
    return f"{launch.word.raw} -m {launch.name.replace('torchrun', 'torch.distributed.run')}"

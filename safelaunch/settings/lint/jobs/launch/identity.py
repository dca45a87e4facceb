"""Who each process takes itself for: ranks, the master and its port, where a shell fills them in at the wrong place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.settings.lint.extract.words import Token
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch.launchers import Launch
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark, Span

_SRUN = re.compile(r"^(?:[^#\n]|(?<=[^\s;])#)*\bsrun\b", re.MULTILINE)  # in what is no comment
_OF_TASKS = r"SLURM_(?:PROCID|NODEID|LOCALID)"
_EXPANDED = re.compile(rf"\\.|\$\{{?({_OF_TASKS})\b", re.DOTALL)
_OUTSIDE = re.compile(rf"""\\.|'[^']*'|"((?:[^"\\]|\\.)*)"?|\$\{{?({_OF_TASKS})\b""", re.DOTALL)
_RANK = re.compile(r"(?:^|[\s\"'])(?:export\s+)?((?:[A-Z]+_)*RANK|NODE_?ID|PROC_?ID)=[\"']?$")
_RANK_OPTION = re.compile(r"--?(?:node|machine|global|local)?[-_]?rank[= \"']*$", re.IGNORECASE)
_RENDEZVOUS = re.compile(r"--rdzv[-_]backend[= ]+(?!static)")
_HOSTNAME = re.compile(r"\$\(\s*hostname\b|`\s*hostname\b|\$\{?HOSTNAME\b|\$\(\s*uname -n")
_SELF = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[?::1\]?)(?::\d+)?")


def expanded_early(scene: Scene) -> Iterator[Remark]:
    """The batch shell fills in the number of a task, so that all tasks get that of the batch shell, which is 0.

    `srun torchrun --node-rank $SLURM_PROCID` says `--node-rank 0` on every node, and so does an `export
    RANK=$SLURM_PROCID` above srun. The rendezvous then has several nodes 0 and none 1, and waits or fails.

    How it is concluded: the file has #SBATCH lines and calls srun; SLURM_PROCID, SLURM_NODEID or SLURM_LOCALID stands
    in what the batch shell itself expands. It does not expand what stands in single quotes, as `\\$`, or in a here
    document with a quoted end. And it becomes a rank: after --node-rank, or in a variable that is called so.

    With `--rdzv-backend=c10d` nothing is told: torchrun then does not heed --node-rank.

    A launcher that the batch shell runs on the first node only is told of by itself (SL242).

    What to do: let the shell of each task fill it in: `srun bash -c '... --node-rank $SLURM_NODEID ...'`. With
    `--rdzv-backend=c10d` torchrun needs no --node-rank.
    """
    asked = scene.asked
    if asked is None or not _SRUN.search(scene.job.text) or (asked.nodes == 1 and asked.tasks_per_node == 1):
        return
    if "nodes" not in asked and asked.tasks_per_node == 1:
        return
    told: set[tuple[int, int]] = set()
    for word, before in _batch_words(scene):
        for name, at in _early(word.raw):
            ahead = f"{before} {word.raw[:at]}"[-80:]
            if not _becomes_a_rank(scene, word, before, ahead):
                continue
            line = word.line + word.raw.count("\n", 0, at)
            span = _span(scene, line, name)
            if (span.line, span.start) in told:
                continue
            told.add((span.line, span.start))
            node = "LOCALID" not in name
            launch = next((each for each in scene.launches if word in each.command.words), None)
            if launch and not launch.runner and scene.several_nodes:
                continue
            elastic = node and any(each.name != "accelerate" for each in ([launch] if launch else scene.launches))
            yield scene.tell(
                "SL243",
                "error",
                f"the batch shell fills in ${name}, so that every {'node' if node else 'task'} takes itself for 0",
                ("srun starts its tasks after that; in the batch shell it is 0",),
                f"write srun bash -c '... ${name} ...' in single quotes, which the shell of each task fills in"
                + ("; torchrun needs no --node-rank with --rdzv-backend=c10d" if elastic else ""),
                span,
            )


def _becomes_a_rank(scene: Scene, word: Token, before: str, ahead: str) -> bool:
    """Whether what stands behind `ahead` is heeded as a rank: torchrun asks for --node-rank with a static rendezvous
    only, and gives its ranks RANK and LOCAL_RANK itself."""
    assigned = _RANK.search(ahead)
    if assigned is None:
        if not _RANK_OPTION.search(ahead):
            return False
        launch = next((each for each in scene.launches if word in each.command.words), None)
        return (
            not meets(launch.text("rdzv-backend") or "") if launch else not _RENDEZVOUS.search(f"{before} {word.raw}")
        )
    if not scene.launches:
        return True
    used = re.compile(rf"\$\{{?{assigned[1]}\b")
    return any(
        used.search(launch.options["node-rank"][1].raw) and not meets(launch.text("rdzv-backend") or "")
        for launch in scene.launches
        if "node-rank" in launch.options
    )


def meets(backend: str) -> bool:
    """Whether a rendezvous gives the nodes their ranks.

    Args:
        backend: as --rdzv-backend has it, "" where it is not given.
    """
    return backend not in ("", "static")


def _batch_words(scene: Scene) -> Iterator[tuple[Token, str]]:
    """The words that the batch shell expands, each with the words before it in its command; and here documents."""
    for command in scene.job.found.commands:
        if command.top:
            before = ""
            for word in command.words:
                yield word, before
                before = f"{before} {word.raw}"[-80:]
    for document, _ in scene.job.found.early:
        yield document._replace(raw=f'"{document.raw}'), ""


def _early(raw: str) -> Iterator[tuple[str, int]]:
    """The variables of tasks that are expanded where a word stands, and where in it."""
    if "SLURM_" not in raw:
        return
    for match in _OUTSIDE.finditer(raw):
        if match[2]:
            yield match[2], match.start()
        elif match[1]:
            for inner in _EXPANDED.finditer(match[1]):
                if inner[1]:
                    yield inner[1], match.start(1) + inner.start()


def _span(scene: Scene, line: int, name: str) -> Span:
    lines = scene.job.lines
    for wanted in (f"${{{name}}}", f"${name}"):
        if line <= len(lines) and wanted in lines[line - 1]:
            return remark.text(lines, line, wanted)
    return remark.text(lines, line, name)


ENDPOINT = '--rdzv-backend=c10d --rdzv-endpoint="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):29500"'
_ADDRESS = "--master-addr with the name or address of the first node, the same on all nodes"


def own_master(scene: Scene) -> Iterator[Remark]:
    """Every node takes itself for the master, and waits there for the others.

    How it is concluded: a launcher for several nodes gets `localhost` or 127.0.0.1 as its master or rendezvous
    endpoint; or torchrun gets neither, and takes 127.0.0.1, for it does not read MASTER_ADDR; or `$(hostname)`, in a
    place that each node fills in for itself: in single quotes behind srun, or in a script without #SBATCH lines that
    takes the number of its node from Slurm. In a batch script, `$(hostname)` is the first node, and right. Nothing is
    told of a missing master in YAML, where an operator may set PET_MASTER_ADDR.

    What to do: give all nodes the same name: `$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`.
    """
    for launch in scene.of("torchrun", "torch.distributed.launch", "accelerate"):
        if "standalone" in launch.options or not _several(scene, launch):
            continue
        if _has_none(scene, launch):
            yield scene.tell(
                "SL249",
                "error",
                "no master is named, so that each node takes 127.0.0.1: each waits for itself",
                (f"{launch.name} does not read MASTER_ADDR; it reads PET_MASTER_ADDR",),
                f"add {ENDPOINT if scene.asked or 'SLURM' in scene.job.text else _ADDRESS}",
                scene.span(launch.word),
            )
        for option in ("rdzv-endpoint", "master-addr"):
            if option not in launch.options:
                continue
            text, word = launch.options[option]
            if _SELF.fullmatch(text):
                why = (
                    f"the {'endpoint' if option[0] == 'r' else 'master'} is {text} on every node: each waits for itself"
                )
            elif _HOSTNAME.search(word.raw) and _on_each_node(scene, launch, word):
                why = "each node fills in its own name as the master: each waits for itself"
            else:
                continue
            yield scene.tell(
                "SL249",
                "error",
                why,
                (),
                'write "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)", filled in by the batch shell'
                if scene.asked or "SLURM" in scene.job.text
                else "write the name or address of the first node, the same on all nodes",
                scene.span(word),
            )


def _has_none(scene: Scene, launch: Launch) -> bool:
    """Whether torchrun certainly gets no master: neither by an option, nor by an operator of Kubernetes."""
    if launch.name == "accelerate" or launch.open or scene.job.kind == "yaml" or "PET_" in scene.job.text:
        return False
    if launch.script is None or any(" --" in text for text, _ in launch.given):
        return False  # some of its words were not read
    return not {"rdzv-endpoint", "master-addr"} & set(launch.options)


def _several(scene: Scene, launch: Launch) -> bool:
    """Whether a launcher certainly is one of several nodes."""
    nnodes = launch.nnodes
    if nnodes is not None:
        return nnodes[0] > 1
    return "nnodes" in launch.options and scene.several_nodes


def _on_each_node(scene: Scene, launch: Launch, word: Token) -> bool:
    if launch.command.top:
        return scene.asked is None and launch.number("node-rank") is None and launch.runner == ""
    if not any(
        {"srun", "mpirun", "mpiexec"} & {text.rsplit("/", 1)[-1] for text in texts} for texts in launch.command.around
    ):
        return False  # the shell that calls srun fills it in
    lines = scene.job.lines[max(word.line - 30, 0) : word.line]
    before = "\n".join(lines)
    at = max(before.rfind("$(hostname"), before.rfind("`hostname"), before.rfind("HOSTNAME"))
    return at > 0 and (before[at - 1] == "\\" or bool(re.search(r"-l?c\s+'[^']*$", before[:at])))


def fixed_port(scene: Scene) -> Iterator[Remark]:
    """All tasks of an array use the same port, and two of them on one node cannot.

    The second one fails with "address already in use", or joins the first one's job.

    How it is concluded: the script is an array (#SBATCH --array), its nodes are not exclusive, and the port of the
    master or of the rendezvous is a number.

    What to do: make the port from the job's id: `$((10000 + SLURM_JOB_ID % 50000))`. On one node `--standalone` finds a
    free one.
    """
    asked = scene.asked
    if asked is None or "array" not in asked or "exclusive" in asked or asked.text("array").endswith("%1"):
        return
    told = False
    for launch in scene.launches:
        for option in ("master-port", "rdzv-endpoint"):
            text, word = launch.options.get(option, ("", launch.word))
            match = re.search(r"(?:^|:)(\d{2,5})$", text)
            if match and match[1] != "0" and match[1] in word.raw:
                told = True
                yield _fixed(scene, match[1], scene.span(word))
    # torchrun does not look at MASTER_PORT itself.
    handed_on = any(
        "MASTER_PORT" in launch.options[option][1].raw
        for launch in scene.launches
        for option in ("master-port", "rdzv-endpoint")
        if option in launch.options
    )
    if told or (scene.launches and not handed_on):
        return
    for setting in scene.job.settings:
        if setting.name == "MASTER_PORT" and setting.value and setting.value.isdecimal():
            line = int(setting.origin.where.rpartition(":")[2])
            yield _fixed(scene, setting.value, remark.find(scene.job.lines, line, setting.name, setting.value))


def _fixed(scene: Scene, port: str, span: Span) -> Remark:
    line = scene.asked.line("array") if scene.asked else 0
    return scene.tell(
        "SL244",
        "warning",
        f"all tasks of the array use port {port}: two of them on one node cannot",
        (f"line {line} makes an array of it",),
        "write $((10000 + SLURM_JOB_ID % 50000)) as the port, or --standalone on one node",
        span,
    )

"""What a job file asks of Slurm and does not get: lines that sbatch does not read, variables that are not set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch import environment
from safelaunch.settings.lint.jobs.launch.launchers import LONG_DASH, Launch
from safelaunch.settings.lint.jobs.launch.rules import examples, guarded
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark

_VARIABLE = re.compile(r"(?<!\\)\$(?:\{[A-Za-z_]\w*[^}]*\}|[A-Za-z_]\w*|\()")
_TEMPLATE = re.compile(r"\{\{|\{%|<%|(?<!\$)\{[A-Za-z_]\w*\}|@[A-Z_]+@")
_TEMPLATE_NAME = re.compile(r"\.(?:j2|jinja2?|tmpl|tpl|template|in|erb|mustache)(?:\.|\Z)|template", re.IGNORECASE)
# Variables that Slurm sets only where an option asks for what they say. Source: man sbatch, output environment.
_ASKED_BY = {
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_TASK": "gpus-per-task",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS": "gpus",
}
_BROUGHT = re.compile(r"\b(SLURMD?_\w+)(?=:?[-=?+]|\+=)")  # X=1, ${X:-1}
_READS = re.compile(r"^[ \t]*(?:for|read|mapfile|readarray)\b[^$\n]*", re.MULTILINE)
_NAME_OF_SLURM = re.compile(r"\bSLURMD?_\w+")
MOST_NAMES = 32  # that Slurm does not have and that are looked at
_OF_SLURM = re.compile(r"(?<!\\)\$\{?(SLURMD?_\w+)")
_USED = re.compile(rf"\$\{{?({'|'.join(_ASKED_BY)})(?:\}}|(?![\w:]))")


def remarks(scene: Scene, severity: Mapping[str, str]) -> Iterator[Remark]:
    """What both rules find in a file that is submitted as it is; what a script writes has been filled in by it."""
    if scene.job.kind == "markdown":
        for example in examples(scene):
            if example.job.text.lstrip().startswith("#!"):  # the whole file, not a piece of one
                yield from remarks(example, severity)
    if scene.job.kind == "shell" and scene.asked is not None:
        for rule in (unread_directive, variable_not_set, misspelt_variable):
            yield from guarded(partial(rule, scene), rule.__name__, scene.job.path, severity)


def unread_directive(scene: Scene) -> Iterator[Remark]:
    """sbatch does not heed a #SBATCH line, or takes it otherwise than it was meant.

    sbatch reads these lines up to the first command and no further: the job then has one node, and no GPU. A file with
    an empty line above `#!`, or with a long dash in the place of `--`, it does not take. And it fills in no variables:
    `#SBATCH --nodes=$N` is an error, `--output=$HOME/log` a file of that very name.

    How it is concluded: by the lines of the file. Templates, by their names or by `{{`, are left alone, and so are
    lines that a script writes into another one.

    What to do: move the line above the first command; write the value, or give it on the command line,
    `sbatch --nodes="$N" job.sbatch`.
    """
    lines = scene.job.lines
    if _TEMPLATE_NAME.search(scene.job.path.rpartition("/")[2]):
        return
    yield from _no_first_line(scene)
    first = next((at for at, text in enumerate(lines, 1) if text.strip() and not text.lstrip().startswith("#")), 0)
    if first and _TEMPLATE.search(lines[first - 1]):
        first = 0
    for head, text, line in scene.job.found.directives:
        if head != "#SBATCH" or line > len(lines) or _TEMPLATE.search(text):
            continue
        if first and line > first:
            yield scene.tell(
                "SL250",
                "error",
                f"sbatch does not read this line: a command stands above it, on line {first}",
                ("sbatch reads #SBATCH lines up to the first line that is neither empty nor a comment",),
                f"move it above line {first}",
                remark.whole(lines, line),
            )
        elif match := LONG_DASH.match(text):
            yield scene.tell(
                "SL250",
                "error",
                "sbatch refuses the job for this line: a long dash is not two short ones",
                ("Invalid directive found in batch script (measured with Slurm 22.05)",),
                f"write #SBATCH --{text[match.end() :]}",
                remark.whole(lines, line),
            )
        elif match := _VARIABLE.search(re.split(r"\s#", text)[0]):
            yield scene.tell(
                "SL250",
                "error",
                f"sbatch fills in no variables: it takes {match[0]} as it stands",
                (),
                "write the value, or give the option to sbatch on its command line",
                remark.text(lines, line, match[0]),
            )


def _no_first_line(scene: Scene) -> Iterator[Remark]:
    """Blank lines above `#!`: sbatch refuses such a file."""
    lines = scene.job.lines
    at = next((at for at, text in enumerate(lines, 1) if text.strip()), 1)
    if at > 1 and scene.first == 1 and lines[at - 1].startswith("#!"):
        yield scene.tell(
            "SL250",
            "error",
            "sbatch does not take this for a batch script: its first line is empty",
            (),
            f"move line {at} to the top",
            remark.whole(lines, at),
        )


def variable_not_set(scene: Scene) -> Iterator[Remark]:
    """A launcher gets the value of a variable that Slurm does not set in this job.

    Slurm sets SLURM_GPUS_PER_NODE only for --gpus-per-node, not for --gres=gpu:8, and SLURM_NTASKS_PER_NODE only for
    --ntasks-per-node. Otherwise they are empty: torchrun then ends with "Unsupported nproc_per_node value".

    How it is concluded: an option of the launcher has such a variable without a default. Neither the #SBATCH lines nor
    srun have the option that makes Slurm set it, and the file does not set it itself.

    What to do: write SLURM_GPUS_ON_NODE, which every job with GPUs has, or the option that the message names.
    """
    for launch in scene.launches:
        for option, (_, word) in launch.options.items():
            for match in _USED.finditer(word.raw):
                name = match[1]
                if _ASKED_BY[name] in (scene.asked or ()) or _of_step(launch, name) or f"{name}=" in scene.job.text:
                    continue
                yield scene.tell(
                    "SL251",
                    "warning",
                    f"{name} is empty: Slurm sets it only where --{_ASKED_BY[name]} is given",
                    (),
                    _instead(scene, name, option),
                    scene.span(word),
                )


def _instead(scene: Scene, name: str, option: str) -> str:
    """What to write for a variable that is not set. An option that would set it is named only where it asks for what
    the job asks for now: --gpus is a total, and with --ntasks-per-node srun starts the launcher more often."""
    if option == "nproc-per-node":
        return "write $SLURM_GPUS_ON_NODE" + (
            ", or add #SBATCH --gpus-per-node" if name == "SLURM_GPUS_PER_NODE" else ""
        )
    if name == "SLURM_GPUS_PER_NODE":
        return "write $SLURM_GPUS_ON_NODE, or add #SBATCH --gpus-per-node"
    several = scene.several_nodes and name == "SLURM_GPUS"
    return "write the number of all nodes" if several else f"write the number, or add #SBATCH --{_ASKED_BY[name]}"


def misspelt_variable(scene: Scene) -> Iterator[Remark]:
    """A batch script takes a variable that Slurm does not have.

    It is empty. Where it is the list for `scontrol show hostnames`, that does no harm: without one, scontrol takes the
    nodes of the job.

    How it is concluded: the name is a slip of one of Slurm's, the file does not set it, and gives it no default.

    What to do: write the name that the message names.
    """
    told: set[str] = set(_BROUGHT.findall(scene.job.text))
    told.update(name for line in _READS.findall(scene.job.text) for name in _NAME_OF_SLURM.findall(line))
    most = len(told) + MOST_NAMES
    for number, text in enumerate(scene.job.lines, 1):
        for match in () if text.lstrip().startswith("#") else _OF_SLURM.finditer(text):
            name = match[1]
            if name in told or name in environment.KNOWN:
                continue
            if len(told) == most:
                return
            told.add(name)
            if instead := environment.meant(name):
                harmless = re.search(rf"\bshow\s+hostnames?\s+\$\{{?{name}\b", text)
                yield scene.tell(
                    "SL251",
                    "note" if harmless else "warning",
                    f"{name} is empty: Slurm has no variable of this name",
                    ("without a list, scontrol takes the nodes of the job",) if harmless else (),
                    f"did you mean {instead}?",
                    remark.find(scene.job.lines, number, name),
                )


def _of_step(launch: Launch, name: str) -> bool:
    return launch.step is not None and _ASKED_BY[name] in launch.step

"""The commands of a file that start ranks, and the options that they give their launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from safelaunch.settings.lint.extract.scope import Command, Found
from safelaunch.settings.lint.extract.words import UNKNOWN, Token
from safelaunch.settings.lint.jobs.launch import options as of_launchers
from safelaunch.settings.lint.jobs.launch import slurm

Name = Literal["torchrun", "torch.distributed.launch", "accelerate", "deepspeed"]
Runner = Literal["", "srun", "mpi", "remote", "submitted", "unknown"]

# The options of other launchers by the names of torchrun.
_AS_TORCHRUN = {
    "accelerate": {"num-machines": "nnodes", "machine-rank": "node-rank", "main-process-ip": "master-addr",
                   "main-process-port": "master-port"},
    "deepspeed": {"num-gpus": "nproc-per-node", "num-accelerators": "nproc-per-node"},
}  # fmt: skip
# What srun is given where it is to start as many tasks as the job has.
_EACH = re.compile(r"--n?tasks-per-node[= ](\S+)")
_JOB_EACH = re.compile(r"""["']?\$\{?SLURM_N?TASKS_PER_NODE\b""")
_JOB_ALL = re.compile(r"""(?:--ntasks[= ]|-n ?)["']?\$\{?SLURM_N(?:TASKS|PROCS)\b""")
_ALL_NODES = re.compile(r"""(?:--ntasks[= ]|-n ?)["']?\$\{?SLURM_(?:JOB_NUM_NODES|NNODES)\b""")
LONG_DASH = re.compile("[\u2010-\u2015\u2212][\u2010-\u2015\u2212-]*(?=[A-Za-z])")
_NO_LONGER = ("--use-env", "--use_env")  # of torch.distributed.launch, without a value
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*")
_REMOTE = frozenset({"ssh", "pdsh", "clush", "pssh", "parallel-ssh", "ansible", "dsh", "rsh", "gcloud", "xpk"})
_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "jsrun", "aprun", "horovodrun"})
_SAYS_ONLY = frozenset({"echo", "printf", "which", "pip", "alias", "export", "command", "type", "pkill", "killall"})
_SUBMITS = frozenset({"sbatch", "salloc", "kubectl", "submitit", "bsub", "qsub"})


@dataclass(frozen=True)
class Launch:
    """One launcher as a file calls it.

    `options` have the names of torchrun without dashes; each with its text, as far as it is known, and its word.
    `given` are all words up to the script; `open` is true where a variable that is not known may hold more of them, or
    a slip ends them.
    `runner` is what starts it on the nodes, `step` what `srun` is asked for, `script` the first word behind
    its options.
    """

    name: Name
    command: Command
    at: int
    options: dict[str, tuple[str, Token]] = field(default_factory=dict)
    given: tuple[tuple[str, Token], ...] = ()
    runner: Runner = ""
    open: bool = False
    step: slurm.Asked | None = None
    script: Token | None = None

    @property
    def word(self) -> Token:
        """The word of the launcher itself."""
        return self.command.words[self.at]

    @property
    def long_dash(self) -> Token | None:
        """The word at which the options of srun, or of the launcher, end early: it begins with a long dash."""
        words = self.command.words[: self.at] if self.runner == "srun" else ()
        return next((word for word in (*words, self.script) if word and LONG_DASH.match(word.raw)), None)

    @property
    def one_a_node(self) -> bool:
        """Whether srun is asked for as many tasks as there are nodes."""
        return bool(_ALL_NODES.search(" ".join(word.raw for word in self.command.words[: self.at])))

    @property
    def tasks_of_job(self) -> bool:
        """Whether srun starts as many tasks as the job has: it is given the variables that Slurm sets."""
        before = " ".join(word.raw for word in self.command.words[: self.at])
        each = _EACH.search(before)
        return bool(_JOB_EACH.match(each[1]) if each else _JOB_ALL.search(before))

    def text(self, name: str) -> str | None:
        """The value of an option: None where it is not given, "\\0" in it where it is not known."""
        return self.options[name][0] if name in self.options else None

    def number(self, name: str) -> int | None:
        """The value of an option as a number; None where it is not given or no plain number."""
        text = self.text(name) or ""
        return int(text) if re.fullmatch(r"\d{1,7}", text) else None

    @property
    def nnodes(self) -> tuple[int, int] | None:
        """The fewest and the most nodes; None where that cannot be told. Without a word it is one."""
        text = self.text("nnodes")
        if text is None:
            return (1, 1)
        match = re.fullmatch(r"(\d{1,7})(?::(\d{1,7}))?", text)
        return (int(match[1]), int(match[2] or match[1])) if match else None


def launches(found: Found) -> Iterator[Launch]:
    """Every launcher that a file calls, in order; those in text that nobody runs are left out."""
    seen: set[tuple[int, int, str]] = set()
    for command in found.commands:
        launch = _of(command)
        key = (launch.word.line, launch.word.column, launch.name) if launch else (0, 0, "")
        if launch is not None and key not in seen:
            seen.add(key)
            yield launch


def _of(command: Command) -> Launch | None:
    texts = command.texts
    if not texts or texts[0].rsplit("/", 1)[-1] in (
        "echo",
        "printf",
        "which",
        "pip",
        "alias",
        "export",
        "command",
        "type",
    ):
        return None
    for at, text in enumerate(texts):
        base = text.rsplit("/", 1)[-1]
        name: Name | None = None
        after = at + 1
        if base == "torchrun" or (base in ("accelerate", "deepspeed") and at + 1 < len(texts)):
            name = base  # type: ignore[assignment]
            if base == "accelerate":
                if texts[at + 1] != "launch":
                    return None
                after += 1
            elif at and texts[at - 1] == "--launcher":  # of another program, which starts torchrun with what follows --
                if texts[after : after + 1] != ("--",):
                    return None
                after += 1
        elif _PYTHON.fullmatch(text) or (not text.strip(UNKNOWN) and text):
            name, after = _of_python(texts, at)
        if name is not None:
            runner, step = _runner(command, at)
            options, given, after = _options(command, after, name)
            script = command.words[after] if after < len(texts) else None
            unread = script is not None and (
                (texts[after].startswith(UNKNOWN) and script.raw.startswith("$")) or LONG_DASH.match(script.raw)
            )
            return Launch(name, command, at, options, given, runner, bool(unread), step, script)
        if base in ("bash", "sh") and at + 1 < len(texts) and not texts[at + 1].startswith("-"):
            return None
    return None


def _of_python(texts: Sequence[str], at: int) -> tuple[Name | None, int]:
    for index in range(at + 1, min(at + 8, len(texts) - 1)):
        if texts[index] == "-m":
            module = texts[index + 1]
            if module in ("torch.distributed.run", "torch.distributed.launcher"):
                return "torchrun", index + 2
            if module == "torch.distributed.launch":
                return "torch.distributed.launch", index + 2
            if module == "accelerate.commands.launch":
                return "accelerate", index + 2
            return None, at
        if not texts[index].startswith("-"):
            return None, at
    return None, at


def _options(
    command: Command, at: int, name: Name
) -> tuple[dict[str, tuple[str, Token]], tuple[tuple[str, Token], ...], int]:
    """The launcher's own options: up to the script, which is the first word that is none, and where that stands."""
    options: dict[str, tuple[str, Token]] = {}
    given: list[tuple[str, Token]] = []
    texts, words = command.texts, command.words
    own = of_launchers.OF[name]
    renamed = _AS_TORCHRUN.get(name, {})
    while at < len(texts):
        text, word = texts[at], words[at]
        if not text.startswith("-") or text == "-":
            break
        head, equals, value = text.partition("=")
        whole = own.full(head)
        flag = whole in own.flags or whole in _NO_LONGER
        takes = (whole in own.values or head.startswith("--")) and not flag
        # argparse takes what begins with a dash for the next option, whether it knows the one before or not.
        if takes and not equals and at + 1 < len(texts) and not texts[at + 1].startswith("-"):
            at += 1
            value, word = texts[at], words[at]
        given.append((text, words[at] if equals or flag else word))
        dashed = whole.lstrip("-").replace("_", "-")
        options[renamed.get(dashed, dashed)] = (value, word)
        at += 1
    return options, tuple(given), at


def _runner(command: Command, at: int) -> tuple[Runner, slurm.Asked | None]:
    """What starts a command on the nodes: what stands before it, or around it."""
    for texts, words in (
        (command.texts[:at], command.words[:at]),
        *((around, ()) for around in reversed(command.around)),
    ):
        names = [text.rsplit("/", 1)[-1] for text in texts]
        if "srun" in names:
            start = names.index("srun") + 1
            lines = [word.line for word in words] or [0] * len(texts)
            return "srun", slurm.of_words(list(zip(texts[start:], lines[start:], strict=False)))[0]
        if set(names) & _MPI:
            return "mpi", None
        if set(names) & _REMOTE:
            return "remote", None
        if set(names) & _SUBMITS:
            return "submitted", None
        if texts and (UNKNOWN in texts[0] or names[0] in ("cat", "tee")):
            return "unknown", None
    return "", None

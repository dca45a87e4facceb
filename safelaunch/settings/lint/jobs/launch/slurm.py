"""What a batch script asks Slurm for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from safelaunch.settings.lint.extract.scope import Found
from safelaunch.settings.lint.extract.words import blank_separated, expand

_SHORT = {
    "N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "t": "time", "a": "array", "w": "nodelist",
    "J": "job-name", "p": "partition", "o": "output", "e": "error", "A": "account", "q": "qos", "x": "exclude",
    "C": "constraint", "D": "chdir", "d": "dependency", "M": "clusters", "L": "licenses",
    "b": "begin", "m": "distribution",
}  # fmt: skip
_ALIASES = {"tasks-per-node": "ntasks-per-node"}
_FLAGS = frozenset(
    {"exclusive", "requeue", "no-requeue", "overcommit", "oversubscribe", "wait", "parsable", "contiguous"}
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Asked:
    """Options of Slurm by their long names, with the line of each; of an option that stands twice the last one."""

    options: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.options

    def text(self, name: str) -> str:
        """The value of an option, "" where it is not there."""
        return self.options.get(name, ("", 0))[0]

    def line(self, *names: str) -> int:
        """The line of the first of these options that is there, or 0."""
        return next((self.options[name][1] for name in names if name in self.options), 0)

    def number(self, name: str) -> int | None:
        """The value of an option as a number; None where it is no plain number."""
        text = self.text(name)
        return int(text) if _NUMBER.fullmatch(text) and len(text) < 8 else None

    @property
    def nodes(self) -> int | None:
        """The number of nodes; None where it cannot be told. `2-4` is no one number."""
        return self.number("nodes")

    @property
    def several_nodes(self) -> bool:
        """Whether there are certainly two nodes or more."""
        fewest, _, _ = self.text("nodes").partition("-")
        return bool(_NUMBER.fullmatch(fewest)) and len(fewest) < 8 and int(fewest) > 1

    @property
    def tasks(self) -> int | None:
        """The tasks of all nodes together; None where that cannot be told."""
        if "ntasks" in self:
            return self.number("ntasks")
        each, nodes = self.tasks_per_node, self.nodes if "nodes" in self else 1
        return each * nodes if each and nodes else None

    @property
    def tasks_per_node(self) -> int | None:
        """The tasks on each node; None where that cannot be told, 1 where nothing is said.

        Six tasks without a number of nodes may come to one node or to six.
        """
        if "ntasks-per-node" in self:
            return self.number("ntasks-per-node")
        if "ntasks-per-gpu" in self:
            return None
        if "ntasks" not in self:
            return 1
        tasks, nodes = self.number("ntasks"), self.nodes if "nodes" in self else None
        if tasks == 1 and nodes is None:
            return 1
        return tasks // nodes if tasks and nodes and tasks % nodes == 0 else None

    @property
    def says_tasks(self) -> bool:
        """Whether there is a word about tasks, which srun takes over from a batch script."""
        return "ntasks" in self or "ntasks-per-node" in self

    @property
    def gpus_of_node(self) -> int | None:
        """What is asked for of each node as such; None where that cannot be told or nothing is."""
        if "gpus-per-node" in self:
            return _count(self.text("gpus-per-node"))
        return next(
            (_count(piece) for piece in self.text("gres").split(",") if re.match(r"gpu\b", piece.strip())), None
        )

    @property
    def gpus_per_task(self) -> int | None:
        """What is asked for of each task, which sees no others; None where that cannot be told or nothing is."""
        return None if "gpu-bind" in self else _count(self.text("gpus-per-task"))

    @property
    def gpus_in_all(self) -> int | None:
        """What is asked for of all nodes together, which share it unevenly; None as above."""
        return _count(self.text("gpus"))

    @property
    def gpus_per_node(self) -> int | None:
        """The GPUs of each node; None where that cannot be told or nothing is asked for."""
        if (own := self.gpus_of_node) is not None or "gpus-per-node" in self:
            return own
        if "gpus-per-task" in self:
            each, tasks = _count(self.text("gpus-per-task")), self.tasks_per_node
            return each * tasks if each is not None and tasks else None
        one = self.nodes == 1 or ("nodes" not in self and self.number("ntasks") in (None, 1) and "nodelist" not in self)
        return self.gpus_in_all if one else None

    @property
    def asks_for_gpus(self) -> bool:
        """Whether an option about GPUs is there."""
        return any(name in self for name in ("gpus-per-node", "gres", "gpus-per-task", "gpus"))

    @property
    def line_of_gpus(self) -> int:
        """The line on which GPUs are asked for, or 0."""
        return self.line("gpus-per-node", "gres", "gpus-per-task", "gpus")


def _count(text: str) -> int | None:
    """4, a100:4, gpu:a100:4; gpu alone is one."""
    last = re.sub(r"\(.*\)", "", text).rpartition(":")[2].strip()
    if _NUMBER.fullmatch(last):
        return int(last)
    return 1 if text.strip() == "gpu" else None


def of_words(words: Iterable[tuple[str, int]]) -> tuple[Asked, int]:
    """The options at the beginning of a command line, and how many words they are.

    Args:
        words: what follows `srun` or `#SBATCH`, with lines.
    """
    options: dict[str, tuple[str, int]] = {}
    listed: Sequence[tuple[str, int]] = list(words)
    at = 0
    while at < len(listed):
        text, line = listed[at]
        if text == "--" or not text.startswith("-") or text == "-":
            break
        name, equals, value = text.lstrip("-").partition("=")
        if not text.startswith("--"):
            name, equals, value = _SHORT.get(text[1:2], text[1:2]), text[2:], text[2:].lstrip("=")
        name = _ALIASES.get(name, name)
        takes = name not in _FLAGS and not (not text.startswith("--") and len(name) == 1)
        if not equals and takes and at + 1 < len(listed) and not listed[at + 1][0].startswith("-"):
            at += 1
            value = listed[at][0]
        options[name] = (value, line)
        at += 1
    return Asked(options), at


def of_script(found: Found) -> Asked | None:
    """What the #SBATCH lines of a script ask for; None for a script without such lines."""
    options: dict[str, tuple[str, int]] = {}
    lines = [(text, line) for head, text, line in found.directives if head == "#SBATCH"]
    for text, line in lines:
        words: list[tuple[str, int]] = []
        for word in blank_separated(text, line):
            if word.raw.startswith("#"):
                break
            words.append((expand(word.raw), line))
        options |= of_words(words)[0].options
    return Asked(options) if lines else None

"""The files of `truth.txt`, each with what has to be told of it and what may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safelaunch.settings.lint.installed import stated
from safelaunch.settings.lint.jobs import look

HERE = Path(__file__).parent
Told = set[tuple[int, str]]


@dataclass
class Example:
    """One file: its text, and the lines and codes that have to be told, or may be."""

    name: str
    text: str
    wanted: Told
    allowed: Told

    def told(self, torch: str = "2.15", nccl: str = "2.30") -> Told:
        """What the lint says of it: a line and a code for each."""
        job = look.read(self.name, self.text)
        found = look.remarks(job, stated(torch, nccl), {})
        return {(line, one.finding.code) for one in found for line in (one.line, *one.more)}


def examples(file: str = "truth.txt") -> Iterator[Example]:
    """All of them."""
    _, *parts = (HERE / file).read_text().split("\n==> ")
    for part in parts:
        name, _, body = part.partition("\n")
        lines: list[str] = []
        marks: dict[str, Told] = {"#=": set(), "#~": set()}
        for line in body.rstrip("\n").split("\n"):
            if line[:2] in marks:
                marks[line[:2]] |= {(len(lines), code) for code in line[2:].split()}
            else:
                lines.append(line)
        yield Example(name, "\n".join(lines) + "\n", marks["#="], marks["#~"])


EXAMPLES_OF_ALL = [*examples("truth.txt"), *examples("blind.txt")]

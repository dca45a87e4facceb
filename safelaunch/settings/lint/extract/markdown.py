"""What the examples in a Markdown text set: its blocks between fences, each read as what its fence says."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.kinds import is_script, kind_of
from safelaunch.settings.lint.extract.readers import read_as
from safelaunch.settings.lint.extract.scope import Scope

_FENCE = re.compile(r"^([ \t>]*)(```+|~~~+)[ \t]*\{?\.?([\w+-]*)[^\n`]*$", re.MULTILINE)
_KINDS = {
    **dict.fromkeys(
        ("bash", "sh", "shell", "zsh", "console", "shell-session", "csh", "tcsh", "slurm", "terminal"), "shell"
    ),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("dockerfile", "docker"), "dockerfile"),
    **dict.fromkeys(("json", "jsonc", "json5"), "json"),
    **dict.fromkeys(("env", "dotenv", "properties"), "env"),
    **dict.fromkeys(("make", "makefile"), "makefile"),
    **dict.fromkeys(("python", "py"), "python"),
    "diff": "diff",
    "ini": "systemd",
    "systemd": "systemd",
}
EXAMPLES = -100  # the fork of the examples: what one sets, another one does not get
_PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?[$%][ \t]+", re.MULTILINE)
# A line that only a shell reads: a command that starts ranks, with what may be set before it.
_COMMAND = re.compile(
    r"^[ \t]*(?:[A-Z_][A-Z0-9_]*=\S*[ \t]+)*"
    r"(?:(?:torchrun|mpirun|mpiexec|srun|sbatch|deepspeed|accelerate[ \t]+launch)[ \t]"
    r"|python[0-9.]*[ \t]+-m[ \t]+torch\.\w)",
    re.MULTILINE,
)
_MORE = re.compile(r"[ \t]*>[ \t]")


def read(text: str, line: int, scope: Scope) -> None:
    """Note what the fenced blocks of a text set; see `readers.read_as`."""
    counted = 0
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match
        elif match[2].startswith(opened[2]) and not match[3]:
            start = opened.end() + 1
            line += text.count("\n", counted, start)
            counted = start
            _block(opened[3].lower(), opened[1], text[start : match.start()], line, scope)
            opened = None


def _typed(body: str) -> str:
    """What was typed at a prompt; what the programs printed becomes empty lines."""
    lines: list[str] = []
    goes_on = False
    for line in body.split("\n"):
        prompt = _PROMPT.match(line)
        typed = line[prompt.end() :] if prompt else _MORE.sub("", line, count=1) if goes_on else ""
        goes_on = typed.endswith("\\")
        lines.append(typed)
    return "\n".join(lines)


def _block(language: str, margin: str, body: str, line: int, scope: Scope) -> None:
    if margin.strip():  # a quotation
        body = re.sub(r"^[ \t]*>[ \t]?", "", body, flags=re.MULTILINE)
    elif margin:
        body = re.sub(rf"^{margin}", "", body, flags=re.MULTILINE)
    kind = _KINDS.get(language, "")
    if not language and (is_script(body) or _PROMPT.search(body) or kind_of("", body) != "shell"):
        kind = kind_of("", body)
    elif not language and _COMMAND.search(body):
        kind = "shell"
    if kind == "shell" and _PROMPT.search(body):
        body = _typed(body)
    if kind == "diff":  # as the file will be
        body = re.sub(r"(?m)^(?:\+\+\+.*|-.*|@@.*|[+ ])", "", body)
        kind = kind_of("", body)
    if kind:
        inner = Scope(scope.found, scope)
        inner.path = (*scope.path, scope.found.branch(EXAMPLES))
        read_as(kind, body, line, inner)
        scope.found.blocks.append((kind, line, line + body.count("\n")))

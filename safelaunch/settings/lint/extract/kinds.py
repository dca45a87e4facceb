"""Which kind of file a text is, by its name and by how it starts."""

from __future__ import annotations

import re

_TEMPLATE_SUFFIX = re.compile(
    r"\.(?:j2|jinja2?|tmpl|tpl|template|gotmpl|in|example|sample|dist|bak|orig|erb|mustache|txt)\Z", re.IGNORECASE
)
_NAMES = [
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r".*\.(?:sh|bash|zsh|ksh|csh|tcsh|sbatch|slurm|pbs|lsf|batch|bashrc|profile)", "shell"),
        (r"(?:docker|container)file(?:[._-].*)?", "dockerfile"),
        (r".*\.(?:dockerfile|containerfile)", "dockerfile"),
        (r"(?:singularity|apptainer)(?:\..*)?", "definition"),
        (r".*\.(?:def|singularity|apptainer)", "definition"),
        (r".*\.ya?ml(?:[-_]\w+)?", "yaml"),
        (r".*\.(?:jsonc?|code-workspace)", "json"),
        (r"\.?nccl\.conf|\.?deepspeed_env|environment", "plain-env"),
        (r"\.envrc", "shell"),
        (r"\.env(?:\..*)?|.*\.env(?:\.[\w-]+)?|env\.list", "env"),
        (r".*\.(?:service|socket|timer)", "systemd"),
        (r"(?:gnu)?makefile(?:\..*)?|.*\.(?:mk|make)", "makefile"),
        (r".*\.(?:md|markdown|mdx|qmd)", "markdown"),
        (r".*\.py", "python"),
        (r".*\.lua", "lua"),
        (r".*\.toml", "toml"),
    )
]
_LANGUAGE = re.compile(r"[/ ](python|node|perl|ruby|tclsh|lua|make)\b|[/ ](python|lua)[0-9]")
_DOCKERFILE = re.compile(r"(?:#[^\n]*\n|\s|ARG[ \t][^\n]*\n)*FROM[ \t]+\S+", re.IGNORECASE)
_DEFINITION = re.compile(r"(?:#[^\n]*\n|\s)*Bootstrap:", re.IGNORECASE)
_YAML = re.compile(
    r"""(?m)\A---\s*$|^(?:apiVersion|kind|services|version|jobs|spec|resources|envs|envVars|tasks):(?:\s|$)"""
)
_SYSTEMD = re.compile(r"(?m)^\[(?:Service|Unit)\]\s*$")
_TOML = re.compile(r"(?m)^\[env\]\s*$")  # a profile that comes through a pipe
_SCRIPT = re.compile(
    r"(?m)^#(?:SBATCH|PBS|BSUB|\$) |^[ \t]*(?:export[ \t]+[A-Za-z_]|setenv[ \t]|source[ \t]|module[ \t]+load)"
)
_STRANGER = re.compile(r"(?m)^#(?:SBATCH|PBS|BSUB|COBALT|FLUX:)[ \t]+-")
_INNER_SCRIPT = re.compile(r"""\b(?:ba|z|k)?sh[ \t]+-\w*c[ \t]+["'][^\n]*\bexport[ \t]+[A-Za-z_]\w*=""")
_ENV_LINE = re.compile(r"(?:export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=(?:\"[^\"]*\"|'[^']*'|[^\s\"';|&]*)[ \t]*(?:#.*)?")
_HEAD = 65536  # characters that are enough to tell


def kind_of(path: str, text: str) -> str:
    """The kind of a file, as `readers.READERS` has it; "" where no program can read settings from it.

    The name decides where it says something, but a first line `#!...python` or `#%Module` beats it.

    Args:
        path: its name, with or without folders; "" where it has none.
        text: what is in it.
    """
    head = text[:_HEAD]
    first, _, _ = head.lstrip().partition("\n")
    if first.startswith("#%Module"):
        return "modulefile"
    if first.startswith("#!"):
        match = _LANGUAGE.search(first.replace("!", " "))
        language = (match[1] or match[2]) if match else None
        if language in ("python", "lua"):
            return language
        return "shell" if language is None else "makefile" if language == "make" else ""
    return kind_by_name(path) or _by_content(head)


def kind_by_name(path: str) -> str:
    """The kind of a file as its name says it; "" where it says nothing."""
    name = re.split(r"[/\\]", path)[-1]
    while _TEMPLATE_SUFFIX.search(name):
        name = _TEMPLATE_SUFFIX.sub("", name)
    return next((kind for pattern, kind in _NAMES if pattern.fullmatch(name)), "")


def kind_of_stranger(head: str) -> str:
    """The kind of a file whose name says nothing, by its beginning: only what no other text begins with counts."""
    if head.startswith("#!"):
        return kind_of("", head)
    if head.startswith("#%Module"):
        return "modulefile"
    if _STRANGER.search(head):
        return "shell"
    return "definition" if _DEFINITION.match(head) else "dockerfile" if _DOCKERFILE.match(head) else ""


def is_script(text: str) -> bool:
    """Whether a text that is named by nothing sets variables as a shell script does."""
    return text.startswith("#!") or bool(_SCRIPT.search(text[:_HEAD]) or _INNER_SCRIPT.search(text[:_HEAD]))


def _by_content(head: str) -> str:
    start = head.lstrip()
    if _TOML.search(head):
        return "toml"
    if start[:1] in ("{", "[") and not start.startswith(("{{", "{%", "[ ", "[[")):
        return "systemd" if _SYSTEMD.match(start) else "json"
    if _DEFINITION.match(head):
        return "definition"
    if _DOCKERFILE.match(head):
        return "dockerfile"
    if _SYSTEMD.search(head):
        return "systemd"
    if _SCRIPT.search(head):
        return "shell"
    if _YAML.search(head):
        return "yaml"
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if lines and all(_ENV_LINE.fullmatch(line.strip()) for line in lines):
        return "env"
    return "shell"

"""What job specs in YAML or JSON set: Kubernetes, compose, Beaker, SkyPilot, Actions, ECS, Ray, and their like."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.kinds import is_script, kind_of
from safelaunch.settings.lint.extract.readers import DEEPEST, read_as
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.shell import read as read_shell
from safelaunch.settings.lint.extract.shell import read_words
from safelaunch.settings.lint.extract.tools import COMMAND_OPTION
from safelaunch.settings.lint.extract.tree import Mapping, Node, Scalar, Sequence, bracketed
from safelaunch.settings.lint.extract.words import UNKNOWN, Token, interpolate, quote, words_of
from safelaunch.settings.lint.extract.yaml import parse

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[.\- ]")
_ENV_KEY = re.compile(
    r"(?:\w+_)?(?:envs?|environ|environments?|env_?vars?|environment_?vars?|env(?:ironment)?_?variables?)"
    r"(?:_linux|_osx|_windows)?|variables"
)
_SHELL_KEY = re.compile(
    r"(?:\w+_)?(?:run|scripts?|commands?|args|arguments|cmd|runcmd|entry_?point|shell|bash|setup|exec|start|inline"
    r"|user_?data|pre_?run|post_?run|prologue|epilogue|prolog|epilog)"
)
_CERTAIN = re.compile(r"(?:TORCH_)?NCCL_[A-Z0-9_]+\Z|TORCH_FR_[A-Z_]+\Z|GLOO_[A-Z_]+\Z")  # under whatever key
_COMMAND = frozenset({"command", "args", "entrypoint", "cmd"})
SERVICES = -2  # the fork of those that stand side by side, on the first level; each level has its own
_OPTIONS_KEY = re.compile(r"(?:\w+_)?(?:run_options|docker_args|docker_options|container_options|options)")
_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FROM = ("valuefrom", "value_from", "secret", "secretkeyref", "from_secret", "from", "fieldref")


def read_yaml(text: str, line: int, scope: Scope) -> None:
    """Note what a YAML text sets; see `readers.read_as`."""
    for node in parse(text, line):
        _document(node, scope)


def read_json(text: str, line: int, scope: Scope) -> None:
    """Note what a JSON text sets, comments and trailing commas allowed; see `readers.read_as`."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    found = bracketed(text, start, line + text.count("\n", 0, start)) if start >= 0 else None
    if found:
        _document(found[0], scope)


def is_environment(key: str) -> bool:
    """Whether a key of a job spec holds variables: `env`, `envVars`, `environment_variables`."""
    return bool(_ENV_KEY.fullmatch(_snake(key)))


def _snake(key: str) -> str:
    return _HUMPS.sub("_", key).lower().replace("__", "_")


def _document(node: Node, scope: Scope) -> None:
    """A whole document; a list of variables alone is what stands below `env:`, taken out of its file."""
    if _named_list("", node):
        _environment(node, scope)
    else:
        _walk(node, scope)


def _walk(node: Node, scope: Scope) -> None:
    if isinstance(node, Sequence):
        for item in node.items:
            _walk(item, scope)
    elif isinstance(node, Mapping):
        scope = _apart(node, _with_resources(node, scope))
        kind = node.get("kind")
        config_map = isinstance(kind, Scalar) and kind.text == "ConfigMap"
        command = False
        for key, line, value in node.entries:
            name = _snake(key)
            if _ENV_KEY.fullmatch(name) or (config_map and name == "data"):
                _environment(value, scope, only_capitals=name == "variables")
                _walk(value, scope)
            elif name in _COMMAND and not isinstance(value, Mapping):
                if not command:
                    _command([found for other, _, found in node.entries if _snake(other) in _COMMAND], scope)
                command = True
            elif _OPTIONS_KEY.fullmatch(name):
                _container_options(value, scope)
            elif _SHELL_KEY.fullmatch(name) and not isinstance(value, Mapping):
                _lines(value, scope)
            elif isinstance(value, Scalar) and _CERTAIN.match(key) and not value.null:
                scope.found.add(key, _text(value, scope), line, path=scope.path)
            elif isinstance(value, Scalar):
                _embedded(key, value, scope)
            elif _named_list(name, value):
                _environment(value, scope)
            else:
                _walk(value, scope)


def _apart(node: Mapping, scope: Scope) -> Scope:
    """The scope of a container, a service or a job: what is set there, others beside it do not get."""
    if not any(is_environment(key) for key, _, _ in node.entries):
        return scope
    inner = Scope(scope.found, scope)
    inner.resources = scope.resources
    inner.path = (*scope.path, scope.found.branch(SERVICES - len(scope.path)))
    return inner


def _with_resources(node: Mapping, scope: Scope) -> Scope:
    """The scope of what a container or a task runs, with the GPUs of each node and the nodes that it asks for."""
    said: dict[str, str] = {}
    asked = node.get("resources")
    if isinstance(asked, Mapping):
        for table in (asked.get("limits"), asked.get("requests"), asked):
            if isinstance(table, Mapping) and "gpus" not in said:
                gpus = _gpus(table)
                said |= {"gpus": gpus} if gpus else {}
    for key, value in (("num_nodes", node.get("num_nodes")), ("replicas", asked and node.get("replicas"))):
        if isinstance(value, Scalar) and (value.text or "").isdecimal() and (key == "num_nodes" or "gpus" in said):
            said["nodes"] = value.text or ""
    if not said:
        return scope
    inner = Scope(scope.found, scope)
    inner.resources = tuple({**dict(scope.resources), **said}.items())
    return inner


def _gpus(table: Mapping) -> str:
    """8 of `nvidia.com/gpu: 8`, `gpuCount: 8`, `accelerators: A100:8` and `accelerators: {A100: 8}`."""
    for key, _, value in table.entries:
        if isinstance(value, Mapping) and key == "accelerators" and len(value.entries) == 1:
            value = value.entries[0][2]
        text = value.text or "" if isinstance(value, Scalar) else ""
        if key in ("nvidia.com/gpu", "amd.com/gpu", "gpuCount", "gpus", "gpu_count") and text.isdecimal():
            return text
        if key == "accelerators":
            count = text.rpartition(":")[2] if ":" in text else text if text.isdecimal() else ""
            return count if count.isdecimal() else "1" if text and ":" not in text else ""
    return ""


# ----------------------------------------------------------------------------------------- environments


def _named_list(key: str, node: Node) -> bool:
    """Whether a list under some other key can only be of variables, as `ncclSettings:` in the charts of GKE."""
    if not isinstance(node, Sequence) or not node.items or key in ("parameters", "params", "args", "labels", "headers"):
        return False
    for item in node.items:
        if not isinstance(item, Mapping) or {name for name, _, _ in item.entries} != {"name", "value"}:
            return False
        name = item.get("name")
        if not (isinstance(name, Scalar) and name.text and name.text.isupper() and "_" in name.text):
            return False
    return True


def _environment(node: Node, scope: Scope, only_capitals: bool = False) -> None:
    if isinstance(node, Scalar):
        if node.block and node.text:
            read_as("env", node.source, node.line, Scope(scope.found, scope))
        return
    if isinstance(node, Mapping):
        if not _named(node, scope):
            for key, line, value in node.entries:
                if key.isupper() or not only_capitals:  # ARM templates have variables of another kind
                    _entry(key, line, value, scope)
        return
    for item in node.items:
        if isinstance(item, Scalar):
            match = _NAME_VALUE.fullmatch(item.text or "")
            if match:
                scope.found.add(match[1], interpolate(match[2], scope.lookup), item.line, path=scope.path)
        elif isinstance(item, Mapping) and not _named(item, scope):
            for key, line, value in item.entries:
                _entry(key, line, value, scope)


def _entry(key: str, line: int, value: Node, scope: Scope) -> None:
    """X: 1. Keys like numEnvs or name are left out: under `env:` many files have settings of their own."""
    if not (key.isupper() or key.endswith("_proxy") or ("_" in key and key != key.lower())):
        if isinstance(value, Sequence) and key in ("cpu", "gpu", "cuda", "rocm"):  # as Determined has it
            _environment(value, scope)
    elif isinstance(value, Scalar):
        if not value.null:
            scope.found.add(key, _text(value, scope), line, path=scope.path)
    elif isinstance(value, Mapping):
        inner = value.get("value")
        if isinstance(inner, Scalar):
            scope.found.add(key, _text(inner, scope), line, path=scope.path)
        elif inner is not None or value.get(*_FROM) is not None:
            scope.found.add(key, UNKNOWN, line, path=scope.path)


def _named(node: Mapping, scope: Scope) -> bool:
    """name: X, value: 1, in either order."""
    names = {key.lower() for key, _, _ in node.entries}
    if not names & {"name", "key", "var"} or (not names & {"value", *_FROM} and len(names) > 1):
        return False
    name, value = node.get("name", "key", "var"), node.get("value")
    if not isinstance(name, Scalar) or name.text is None:
        return True
    if value is None and node.get(*_FROM) is None:
        value = Scalar("", name.line)
    scope.found.add(
        name.text, _text(value, scope) if isinstance(value, Scalar) else UNKNOWN, name.line, path=scope.path
    )
    return True


def _text(value: Scalar, scope: Scope) -> str:
    if value.text is None:
        return "" if value.null else UNKNOWN
    return interpolate(value.text, scope.lookup)


# -------------------------------------------------------------------------------------------- commands


def _command(parts: list[Node], scope: Scope) -> None:
    """`command` and `args` of one container, which are one command line; a shell reads what is one text."""
    words: list[Token] = []
    for part in parts:
        items = [] if isinstance(part, Mapping) else part.items if isinstance(part, Sequence) else [part]
        scalars = [item for item in items if isinstance(item, Scalar) and item.text is not None]
        texts = [item for item in scalars if not words and (isinstance(part, Scalar) or " " in (item.text or ""))]
        if texts and texts[0] is scalars[0]:
            _lines(part, scope)
        else:
            words += [Token(quote(item.source), item.line) for item in scalars]
    if words and words[0].raw.startswith("'-"):  # options for a program that the image names
        words = [Token("sh", words[0].line), *words] if COMMAND_OPTION.fullmatch(words[0].raw[1:-1]) else []
    if words:
        read_words(words, Scope(scope.found, scope))


def _lines(node: Node, scope: Scope) -> None:
    """Shell text, or a list of it that one shell reads."""
    inner = Scope(scope.found, scope)
    if inner.depth > DEEPEST:
        return
    for item in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(item, Scalar) and item.text is not None:
            read_shell(item.source, item.line, inner)
        elif not isinstance(item, Scalar):
            _walk(item, scope)


def _container_options(node: Node, scope: Scope) -> None:
    for item in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(item, Scalar) and item.text is not None:
            words = words_of(item.source, item.line)
            read_words([Token("docker", item.line), *words], Scope(scope.found, scope))
        else:
            _walk(item, scope)


def _embedded(key: str, value: Scalar, scope: Scope) -> None:
    """A file or a script in a block of text, such as a ConfigMap has."""
    if not value.block or value.text is None or scope.depth >= DEEPEST:
        return
    kind = kind_of(key, value.source) if "." in key else "shell" if is_script(value.source) else ""
    if kind:
        read_as(kind, value.source, value.line, Scope(scope.found, scope))

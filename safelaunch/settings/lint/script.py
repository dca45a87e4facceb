"""What the training script itself does with variables, read from its text: what it sets, and what it may read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch import regular
from safelaunch.model import Origin
from safelaunch.settings import syntax
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import Setting

NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+|RANK|LOGLEVEL")

# An attribute that no module below torch.distributed reads; measured with torch 2.13.
NO_TIMEOUT = "_DEFAULT_PG_TIMEOUT"
MODULES = frozenset({"distributed_c10d", "c10d", "distributed", "dist"})

# Calls below torch.cuda that ask without starting CUDA, and for which a script is no worse off.
ASKING = frozenset(
    {"is_available", "is_initialized", "is_bf16_supported", "manual_seed", "manual_seed_all", "empty_cache", "Stream"}
)


# What a script that starts processes has in it: it may set a variable for these. And the call that does for a running
# process what OMP_NUM_THREADS does for those to come.
_STARTS = re.compile(
    r"\b(?:subprocess|Popen|spawn|Process|start_processes|elastic_launch|launch_agent|torchrun|exec[lv]p?e?"
    r"|set_num_threads)\b"
)


@dataclass(frozen=True)
class Script:
    """What a script sets, the names that it may read, and where it sets a timeout of torch's that is none."""

    assignments: tuple[Setting, ...] = ()
    names: frozenset[str] = frozenset()
    dead_timeouts: tuple[str, ...] = ()


def read(script: str, *, module: bool = False) -> Script:
    """Look at a training script; nothing is run. What is no readable Python text gives nothing.

    Args:
        script: the path of the script, or the name of a module.
        module: whether it is a module's name, which is looked for below the working directory only.
    """
    for path in syntax.files(script) if module else (script,):
        text = regular.text(path, syntax.LONGEST)
        if text is None:
            continue
        if not any(word in text for word in (*catalogue.namespaces(), NO_TIMEOUT)):
            break  # most scripts: parsing a long one takes longer than a launch may lose
        return Script(assignments(text, path), names(text), dead_timeouts(text, path))
    return Script()


def assignments(source_text: str, file: str) -> tuple[Setting, ...]:
    """The variables that a script sets through os.environ and os.putenv, in the order of its text.

    A function counts at the place where it stands: what it sets comes after an `import torch` above it. Only imports
    and calls at module level count, for others may never run. In a script that starts processes, the import does not
    count: they get the variable in time. A text that is no Python gives nothing.

    Args:
        source_text: of the script.
        file: its path, for the origin of each setting.
    """
    tree = syntax.parse(source_text)
    if tree is None:
        return ()
    for_others = bool(_STARTS.search(source_text))
    imported = min((line for node, line in _module_level(tree) if _imports_torch(node)), default=None)
    started = min((line for node, line in _module_level(tree) if _starts_cuda(node)), default=None)
    found: list[Setting] = []
    for line, name, value, weak in sorted(_assigned(tree), key=lambda item: item[0]):
        after = {word for word, since in (("torch", imported), ("cuda", started)) if since is not None and since < line}
        after -= {"torch"} if for_others else set()
        found.append(Setting(name, value, Origin("file", f"{file}:{line}"), frozenset(after), weak))
    return tuple(found)


def names(source_text: str) -> frozenset[str]:
    """The words of a script that may be names of variables which it reads: text constants in upper case.

    A constant that only names what is set does not count. A text that is no Python gives nothing.
    """
    tree = syntax.parse(source_text)
    if tree is None:
        return frozenset()
    set_only = {id(node) for node in _names_of_targets(tree)}
    return frozenset(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAME.fullmatch(node.value)
        and id(node) not in set_only
    )


def dead_timeouts(source_text: str, file: str) -> tuple[str, ...]:
    """Where a script assigns `distributed_c10d._DEFAULT_PG_TIMEOUT`, as `file:line`.

    Args:
        source_text: of the script.
        file: its path.
    """
    tree = syntax.parse(source_text) if NO_TIMEOUT in source_text else None
    if tree is None:
        return ()
    return tuple(
        f"{file}:{target.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr == NO_TIMEOUT
        and syntax.dotted(target.value).rpartition(".")[2] in MODULES
    )


def _module_level(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    """Every node that runs when the script is run, and its line: nothing in functions, or for type checkers only."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node, getattr(node, "lineno", 0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and syntax.dotted(node.test).endswith("TYPE_CHECKING"):
            todo.extend(node.orelse)
        else:
            todo.extend(ast.iter_child_nodes(node))


def _imports_torch(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == "torch" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").partition(".")[0] == "torch"


def _starts_cuda(node: ast.AST) -> bool:
    """A call that may start CUDA: torch.cuda.set_device(...), x.cuda(), x.to("cuda"), torch.empty(device="cuda")."""
    if not isinstance(node, ast.Call):
        return False
    called = syntax.dotted(node.func)
    if called.startswith("torch.cuda."):
        return called.rpartition(".")[2] not in ASKING
    if called.endswith(".cuda"):
        return True
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "device")]
    on_gpu = any(isinstance(value, ast.Constant) and str(value.value).startswith("cuda") for value in values)
    return on_gpu and (called.endswith(".to") or called.startswith("torch.")) and called != "torch.device"


def _assigned(tree: ast.Module) -> Iterator[tuple[int, str, str | None, bool]]:
    """Line, name, value and whether another value is left alone."""
    for node in ast.walk(tree):
        for name, value, weak in syntax.of_node(node):
            text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
            if text:
                constant = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
                yield name.lineno, text, constant, weak


def _names_of_targets(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        for name, _, _ in syntax.of_node(node):
            yield name

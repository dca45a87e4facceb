"""The layers: who may import whom, who may speak, and that nothing lies outside its registry. Read by `ast`."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from harness import REPOSITORY, environment

from safelaunch import evidence, files, preflight
from safelaunch.cli import output
from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import rules
from safelaunch.preflight import between
from safelaunch.printable import Line
from safelaunch.run import pipeline
from safelaunch.run.console import Console
from safelaunch.run.output import Output
from safelaunch.settings import lint
from safelaunch.top import table

PACKAGE = REPOSITORY / "safelaunch"
FILES = sorted(PACKAGE.rglob("*.py"))
STAGES = ("preflight", "launch", "watch", "evidence", "diagnosis", "report")
BASE = {"model", "codec", "codes", "files", "procfs", "black_box", "pulse", "durations", "thresholds", "redaction"} | {
    "sizes", "deadline", "user_files", "import_variables", "output", "regular", "streams", "printable", "limits",
    "user_code", "black_box_reader", "shortened", "open_folder", "escapes", "bad_nodes", "stop_words", "trace_words",
    "history",
}  # fmt: skip

# Part of the package -> what it may import of the package, beside itself. A new part gets its line here.
LAYERS: dict[str, set[str]] = {
    "__init__": {"durations", "worker"},
    "__main__": {"cli", "streams"},
    "model": set(),
    "codes": set(),
    "procfs": set(),
    "injection": set(),
    "durations": set(),
    "thresholds": set(),
    "redaction": {"escapes", "shortened"},
    "escapes": set(),
    "printable": set(),
    "sizes": set(),
    "shortened": set(),
    "streams": set(),
    "deadline": set(),
    "user_code": set(),
    "python_tree": set(),
    "user_files": {"regular"},
    "import_variables": set(),
    "black_box": {"pulse", "stop_words", "trace_words"},
    "black_box_reader": {"black_box", "pulse", "regular", "stop_words", "trace_words"},
    "stop_words": set(),
    "trace_words": set(),
    "regular": set(),
    "open_folder": {"regular"},
    "bad_nodes": {"regular", "open_folder"},
    "history": {"regular", "user_files", "codec", "shortened"},
    "limits": set(),
    "toml": set(),
    "pulse": {"trace_words"},
    "codec": {"shortened"},
    "files": {"codec", "printable"},
    "output": {"files", "open_folder"},
    "settings": {
        "model",
        "codec",
        "codes",
        "durations",
        "thresholds",
        "files",
        "redaction",
        "deadline",
        "user_files",
        "import_variables",
        "regular",
        "toml",
        "schedulers",
        "sizes",
        "limits",
        "open_folder",
        "python_tree",
    },
    "schedulers": {"model", "codes"},
    "preflight": {
        "model",
        "codec",
        "codes",
        "thresholds",
        "redaction",
        "sizes",
        "deadline",
        "user_files",
        "procfs",
        "regular",
        "bad_nodes",
    },
    "launch": {
        "model",
        "codec",
        "codes",
        "procfs",
        "files",
        "injection",
        "user_files",
        "sizes",
        "streams",
        "redaction",
        "regular",
        "black_box",
    },
    "watch": {"model", "codes", "pulse"},
    "evidence": {
        "model",
        "codec",
        "codes",
        "procfs",
        "black_box",
        "black_box_reader",
        "pulse",
        "user_files",
        "regular",
        "open_folder",
        "limits",
        "toml",
        "user_code",
        "redaction",
        "shortened",
        "escapes",
    },
    "diagnosis": {"python_tree", "model", "codes", "durations", "sizes", "user_code", "shortened"},
    "cluster": {"model", "codec"},
    "report": {"model", "codes", "files", "redaction", "printable", "user_code"},
    "worker": {
        "black_box",
        "pulse",
        "stop_words",
        "trace_words",
        "import_variables",
        "user_code",
        "shortened",
        "__init__",
    },
    "agent": {"model", "codec", "procfs", "injection", "black_box"},
    "top": {
        "model",
        "codec",
        "printable",
        "redaction",
        "procfs",
        "regular",
        "sizes",
        "pulse",
        "black_box_reader",
        "watch",
        "evidence",
        "preflight",
        "report",
        "run",
    },
    "run": {*BASE, *STAGES, "cluster", "settings", "schedulers", "injection", "__init__"},
    "cli": {*BASE, *STAGES, "run", "top", "settings", "schedulers", "injection", "__init__"},
}

# Programs of their own: started as child processes, they answer on their own streams.
PROGRAMS = {"preflight/between/node_probe.py", "preflight/between/pair_probe.py",
            "preflight/active/collective_probe.py", "preflight/active/compute_probe.py",
            "preflight/machine/nvml_probe.py", "preflight/machine/storage_probe.py", "evidence/source_probe.py",
            "evidence/own_dump_probe.py", "evidence/cupti_probe.py",
            "settings/lint/scan.py", "agent/program.py", "__main__.py"}  # fmt: skip

# What a rule may use: no files, no processes, no clock, no environment.
PURE = {"__future__", "ast", "collections", "collections.abc", "dataclasses", "enum", "functools", "itertools", "math",
        "re", "signal", "statistics", "typing"}  # fmt: skip

WORKER_FILES = [
    *sorted((PACKAGE / "worker").rglob("*.py")),
    PACKAGE / "black_box.py",
    PACKAGE / "pulse.py",
    PACKAGE / "stop_words.py",
    PACKAGE / "trace_words.py",
    PACKAGE / "import_variables.py",
    PACKAGE / "shortened.py",
    PACKAGE / "user_code.py",
    PACKAGE / "__init__.py",
]


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(nodes: ast.AST, path: Path) -> set[str]:
    """All modules that are imported below `nodes`, by their full names."""
    found: set[str] = set()
    for node in ast.walk(nodes):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: relative import"
            module = node.module or ""
            # `from safelaunch import procfs` imports a module; `from safelaunch import __version__` does not.
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "safelaunch" else {module}
    return found


def own(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    modules = {module for module in imports(tree(path), path) if module.split(".")[0] == "safelaunch"}
    parts = {(module.split(".") + ["__init__"])[1] for module in modules}
    return {"__init__" if found == "__version__" else found for found in parts} - {part(path)}


def foreign(nodes: ast.AST, path: Path) -> set[str]:
    """Imported top-level packages that are neither ours nor of the standard library."""
    return {module.split(".")[0] for module in imports(nodes, path)} - sys.stdlib_module_names - {"safelaunch"}


def at_module_level(path: Path) -> ast.Module:
    """The file without its functions, which import when they are called, and without what only type checkers import."""
    module = ast.parse(path.read_text())
    for node in ast.walk(module):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                kept = [
                    item
                    for item in statements
                    if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
                    and not (isinstance(item, ast.If) and ast.unparse(item.test) == "TYPE_CHECKING")
                ]
                setattr(node, field, kept)
    return module


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_imports_only_what_lies_below_it(path: Path) -> None:
    assert part(path) in LAYERS, "a new part of the package: say in LAYERS what it may import"
    assert own(path) <= LAYERS[part(path)]


def test_stages_do_not_know_each_other() -> None:
    assert not any(LAYERS[stage] & {*STAGES, "cli", "run", "settings", "agent", "worker"} for stage in STAGES)


@pytest.mark.parametrize("path", [path for path in FILES if part(path) == "diagnosis"], ids=name)
def test_rules_do_no_io(path: Path) -> None:
    standard = {module for module in imports(tree(path), path) if not module.startswith("safelaunch")}
    called = {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert standard <= PURE
    assert not called & {"open", "input", "exec", "eval", "__import__"}


DRAWS = PACKAGE / "top" / "screen.py"  # with textual, which `safelaunch top` loads when there is a terminal


@pytest.mark.parametrize("path", [path for path in FILES if part(path) != "agent" and path != DRAWS], ids=name)
def test_only_the_agent_loads_more_than_the_standard_library(path: Path) -> None:
    assert foreign(at_module_level(path), path) <= {"tomli"}  # in place of tomllib before Python 3.11


@pytest.mark.parametrize("path", [path for path in FILES if part(path) in {"worker", *BASE}], ids=name)
def test_the_base_and_the_workers_need_the_standard_library_only(path: Path) -> None:
    assert foreign(tree(path), path) == set()


@pytest.mark.parametrize("path", WORKER_FILES, ids=name)
def test_what_runs_in_workers_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))
    if len(path.read_text().splitlines()) > 10 and path.name != "sitecustomize.py":
        assert "from __future__ import annotations" in path.read_text()


SILENT = [path for path in FILES if part(path) not in ("cli", "report") and name(path) not in PROGRAMS]


@pytest.mark.parametrize("path", SILENT, ids=name)
def test_only_the_command_line_speaks_and_exits(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node)
        where = f"{name(path)}:{node.lineno}: {call}"
        if part(path) in ("agent", "worker") and "stderr" in call:
            continue  # the agent's log, and a worker that says what is off
        assert not re.match(r"print\(|sys\.(exit|stdout\.write|stderr\.write)\(|exit\(|quit\(", call), where


DOORS = ("cli/output.py", "run/output.py")
SPEAKING = [path for path in FILES if part(path) in ("cli", "run", "report", "top") and name(path) not in DOORS]


@pytest.mark.parametrize("path", SPEAKING, ids=name)
def test_what_is_shown_goes_through_one_door(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            call = ast.unparse(node)
            assert not re.match(r"print\(|sys\.std(out|err)\.write|stream\.write\(", call), f"{node.lineno}: {call}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_line_that_may_be_shown_is_made_in_one_place(path: Path) -> None:
    makers = ("Line", "printable.Line", "cast", "typing.cast")
    made = [
        ast.unparse(node)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers and "Line" in ast.unparse(node)
    ]
    assert not made or name(path) == "printable.py"


@pytest.mark.parametrize("writes", [output.show, Output.write, files.write_lines, Console.print])
def test_what_writes_for_people_takes_such_lines_only(writes: Callable[..., None]) -> None:
    hints = [hint for argument, hint in get_type_hints(writes).items() if argument not in ("return", "stream", "path")]
    assert hints == [Iterable[Line]]


def test_what_is_drawn_goes_through_one_door_too() -> None:
    """Every text of a widget is made by `content`, or `plain`, from lines that may be shown."""
    calls = [node for node in ast.walk(tree(DRAWS)) if isinstance(node, ast.Call)]
    widgets = re.compile(r"(Static|Option|.*\.replace_option_prompt|self\.query_one\(.*\)\.update)")
    texts = [call.args[-1] for call in calls if widgets.fullmatch(ast.unparse(call.func)) and call.args]

    assert len(texts) >= 6
    assert {ast.unparse(text).partition("(")[0] for text in texts} == {"content", "plain"}
    assert [ast.unparse(call.func) for call in calls if "Content" in ast.unparse(call.func)] == ["Content.assemble"]
    assert get_type_hints(table.plain)["return"] == Iterator[table.Parts]
    assert table.Parts == tuple[tuple[Line, str], ...]


# Where a fault of ours is part of an answer that is given: `unknown: ...`, a recorder that could not be read.
GAPS = {"run/banner.py", "run/device_looks.py", "run/pages.py", "run/recorders.py"}


@pytest.mark.parametrize("path", [path for path in FILES if part(path) == "run" and name(path) not in GAPS], ids=name)
def test_faults_of_our_own_are_contained_by_one_guard(path: Path) -> None:
    handlers = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler)]
    assert not [node.lineno for node in handlers if node.type is None or ast.unparse(node.type) == "Exception"]


def assigned(attribute: str, folder: str) -> set[str]:
    """The files of a folder in which an attribute of that name is set."""
    targets = [
        (path, target)
        for path in FILES
        if part(path) == folder
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {name(path) for path, target in targets if isinstance(target, ast.Attribute) and target.attr == attribute}


def test_the_phases_of_a_run_and_of_a_suspicion_have_one_owner_each() -> None:
    assert assigned("_phase", "launch") == {"launch/supervisor.py"}
    assert assigned("phase", "watch") == {"watch/hang.py"}
    assert assigned("phase", "run") | assigned("_phase", "run") == set()


def test_the_steps_of_a_run_lie_in_the_order_in_which_they_run() -> None:
    written = [node.name for node in tree(PACKAGE / "run" / "steps.py").body if isinstance(node, ast.FunctionDef)]
    assert written == [step.__name__ for step in (*pipeline.RUN, *pipeline.AFTERWARDS)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_is_longer_than_a_head_can_hold(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


# ------------------------------------------------------------------------------------------------ registries


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_code_has_its_explanation(code: str) -> None:
    entry = CATALOGUE[code]
    for place in entry.text.split():
        module, _, path = place.partition(":")
        text = inspect.getdoc(reduce(getattr, path.split("."), import_module(f"safelaunch.{module}")))
        assert text
        assert len(text) > 80
    assert re.fullmatch(r"SL\d{3}", code)
    assert re.fullmatch(r"[a-z0-9-]+", entry.slug)
    assert "\n" not in entry.title


def test_slugs_are_not_used_twice() -> None:
    slugs = [entry.slug for entry in CATALOGUE.values()]
    assert sorted(slugs) == sorted(set(slugs))


def mentioned() -> dict[str, set[str]]:
    """Codes as they stand in string constants of the source and in signatures: code -> files."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        if part(path) == "codes":
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                for code in re.findall(r"\bSL\d{3}\b", node.value):
                    found.setdefault(code, set()).add(name(path))
    for path in PACKAGE.rglob("signatures.toml"):  # a known message leads to a code
        for code in re.findall(r'^code = "(SL\d{3})"', path.read_text(), re.MULTILINE):
            found.setdefault(code, set()).add(name(path))
    return found


def test_codes_are_catalogued_and_the_catalogue_is_used() -> None:
    assert {code: files for code, files in mentioned().items() if code not in CATALOGUE} == {}
    assert set(CATALOGUE) - set(mentioned()) == set()


def public_functions(folder: str) -> list[tuple[Path, ast.FunctionDef]]:
    return [
        (path, node)
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


def resolve(path: Path, node: ast.FunctionDef) -> object:
    module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    return getattr(import_module(module), node.name)


def annotation(node: ast.FunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns else ""


def test_every_rule_is_in_rules() -> None:
    found = {
        resolve(path, node)
        for path, node in public_functions("diagnosis")
        if [argument.arg for argument in node.args.args] == ["view"] and annotation(node).startswith("Verdict")
    }
    assert found == {rule.conclude for table in rules.BY_KIND.values() for rule in table}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_what_holds_of_several_codes_is_a_trait_of_the_catalogue(path: Path) -> None:
    if name(path) in ("codes/before.py", "codes/after.py", "diagnosis/rules.py"):
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
            items = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            named = [item for item in items if isinstance(item, str) and re.fullmatch(r"SL\d{3}", item)]
            assert len(named) < 2, f"{name(path)}:{node.lineno}: {named}"


def test_every_collector_is_in_collectors() -> None:
    found = {resolve(path, node) for path, node in public_functions("evidence") if node.name == "collect"}
    assert found == set(evidence.COLLECTORS)
    assert all(annotation(node) == "Evidence" for _, node in public_functions("evidence") if node.name == "collect")


def test_every_check_is_in_checks() -> None:
    found = {
        resolve(path, node)
        for path, node in public_functions("preflight")
        if [argument.arg for argument in node.args.args] == ["host"] and annotation(node) == "Iterator[Finding]"
    }
    assert found == {check.function for check in preflight.CHECKS}
    known = {check.code for check in preflight.CHECKS} | set(between.CODES)
    assert known == {code for code in CATALOGUE if code.startswith("SL1")}


def test_every_judge_between_nodes_is_in_judges() -> None:
    found = {
        resolve(path, node)
        for path, node in public_functions("preflight/between")
        if [argument.arg for argument in node.args.args] == ["picture"] and annotation(node) == "Iterator[Finding]"
    }
    assert found == {judge.function for judge in between.JUDGES}
    assert not set(between.CODES) & {check.code for check in preflight.CHECKS}


def test_every_rule_of_the_lint_is_in_rules() -> None:
    found = {
        resolve(path, node)
        for path, node in public_functions("settings/lint")
        if [argument.arg for argument in node.args.args] == ["context"] and annotation(node) == "Iterator[Finding]"
    }
    assert found == {rule.function for rule in lint.RULES}
    assert [rule.code for rule in lint.RULES] == sorted({rule.code for rule in lint.RULES})


def test_rules_of_the_lint_do_not_know_each_other() -> None:
    rules = {path for path, node in public_functions("settings/lint") if annotation(node) == "Iterator[Finding]"}
    modules = {".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in rules}
    assert {name(path): imports(tree(path), path) & modules for path in rules} == {name(path): set() for path in rules}


PURE_FILES = [
    path
    for path in FILES
    if name(path)
    in {f"preflight/between/{stem}.py" for stem in ("agreement", "facts", "pairs", "reach", "seats", "vote")}
]


@pytest.mark.parametrize("path", PURE_FILES, ids=name)
def test_judges_between_nodes_do_no_io(path: Path) -> None:
    standard = {module for module in imports(tree(path), path) if not module.startswith("safelaunch")}
    assert standard <= PURE | {"errno"}


# -------------------------------------------------------------------------------------------- what is loaded

SHOW = "import json, sys; json.dump({n: getattr(m, '__file__', None) for n, m in sys.modules.items()}, sys.stderr)"


def loaded(*command: str) -> dict[str, str | None]:
    done = subprocess.run(
        [sys.executable, *command], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    modules: dict[str, str | None] = json.loads(done.stderr)
    return modules


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_asking_for_help_loads_nothing_heavy(argument: str) -> None:
    source = f"import atexit\natexit.register(lambda: exec({SHOW!r}))\nimport sys\nsys.argv[1:] = [{argument!r}]\n"
    modules = loaded("-c", source + "from safelaunch.__main__ import main\nmain()")

    assert "safelaunch.cli.launch" in modules
    assert not {"torch", "rich", "textual", "psutil", "numpy", "pynvml", "jinja2"} & set(modules)


def test_a_table_of_a_run_loads_nothing_that_draws() -> None:
    source = f"import atexit\natexit.register(lambda: exec({SHOW!r}))\nimport sys\nsys.argv[1:] = ['top', '--help']\n"
    modules = loaded("-c", source + "from safelaunch.__main__ import main\nmain()")

    assert "safelaunch.top.table" in modules
    assert not {"torch", "rich", "textual", "psutil", "numpy", "pynvml"} & set(modules)


def test_the_parts_of_a_run_load_neither_checks_nor_archives() -> None:
    """The checks are loaded where they are made, beside the import of torch, and archives by `diagnose`."""
    modules = loaded("-c", f"import safelaunch.run.wiring\n{SHOW}")

    assert "safelaunch.run.hang" in modules
    assert not {"safelaunch.preflight", "tarfile", "zipfile", "torch"} & set(modules)


def test_workers_load_the_standard_library_only() -> None:
    targets = (
        "safelaunch.worker.bootstrap, safelaunch.worker.binding, safelaunch.worker.errors, "
        "safelaunch.worker.torch_hooks, safelaunch.black_box"
    )
    source = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import {targets}; {SHOW}"
    modules = loaded("-I", "-S", "-c", source)

    strangers = {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {"safelaunch", "__main__"}
    assert strangers == set()
    assert {module for module in modules if module.startswith("safelaunch")} == {
        "safelaunch", "safelaunch.worker", "safelaunch.worker.after_import", "safelaunch.worker.beat",
        "safelaunch.worker.binding", "safelaunch.worker.bootstrap", "safelaunch.worker.collectives",
        "safelaunch.worker.coroutines", "safelaunch.worker.signatures", "safelaunch.worker.stream_marks",
        "safelaunch.shortened", "safelaunch.worker.batches", "safelaunch.worker.device_times",
        "safelaunch.worker.devices", "safelaunch.worker.errors", "safelaunch.worker.exits",
        "safelaunch.worker.groups", "safelaunch.worker.import_hooks", "safelaunch.worker.progress",
        "safelaunch.worker.looks", "safelaunch.worker.places", "safelaunch.worker.rank",
        "safelaunch.worker.recorders", "safelaunch.worker.reducers", "safelaunch.worker.announcements",
        "safelaunch.worker.timeouts", "safelaunch.worker.torch_hooks", "safelaunch.worker.tracebacks",
        "safelaunch.user_code",
        "safelaunch.worker.user_code",
        "safelaunch.worker.self_report",
        "safelaunch.black_box", "safelaunch.pulse", "safelaunch.stop_words", "safelaunch.trace_words",
    }  # fmt: skip

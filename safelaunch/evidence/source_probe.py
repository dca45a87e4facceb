"""Runs in: a child process. Says what stands around lines of source files; a dead file system holds only this child.

On stdin a JSON list of [file, line], on stdout a line of JSON for each that could be read, as soon as it is known; for
line 0, one for each place where the file raises SystemExit. [file, line, 1] is a line to which no stack leads: the one
line that calls the function around it follows, and so on. The first argument is the root of a container, as it is seen
from here: the files are looked for below it. The second one, `uid:gid:group,...`, is for root: whose rights they are
read with.

A process that is looked at says itself which files its code is from, and may name those of others. So they are read
with the rights of its user, and nothing is told of what is no regular file below that root, or no Python.
"""

from __future__ import annotations

import ast
import errno
import itertools
import json
import os
import resource
import stat
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

LIMIT = 4 << 20  # bytes; no program of this size was written by hand
ROOM = 384 << 20  # bytes of memory: 1 MB of what was written by hand takes 100 MB as a tree
WIDTH = 120
MOST_CALLED = 100  # names that are kept of a branch; of one that calls more, nothing can be ruled out
MOST_EXITS = 16
MOST_BOUNDS = 8
MOST_CALLERS = 4  # above a line to which no stack leads
MOST_LINKS = 40  # as the kernel's own limit, path_resolution(7)
Loops = tuple[tuple[int, int], ...]
Condition = dict[str, Any]  # as `model.Condition`
Texts = tuple[tuple[int, str], ...]
Records = tuple[dict[str, Any], ...]


def main() -> None:
    root, rights = (*sys.argv[1:], "", "")[:2]
    if rights:
        root = _as_another(rights, root)
    resource.setrlimit(resource.RLIMIT_DATA, (ROOM, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    latest, source, module = "", "", None  # one tree at a time: they take a hundred times what is written
    for file, line, *alone in json.load(sys.stdin):
        if file != latest:
            module = None
            latest, (source, module) = file, _read(file, root)
        if module is not None and line == 0:
            for number, function, said, code in system_exits(module):
                record = {"file": file, "line": number, "function": function, "said": said, "code": code}
                print(json.dumps(record), flush=True)
        lines = source.split("\n")  # as Python counts them: splitlines knows further ends
        for _ in range(MOST_CALLERS if alone else 1):
            if module is None or not 0 < line <= len(lines):
                break
            around = around_line(module, source, line)
            text = lines[line - 1].strip()[:WIDTH]
            names = "loops", "conditions", "holds", "ahead", "exits", "caught", "bounds"
            record = {"file": file, "line": line, "text": text, **dict(zip(names, around, strict=True))}
            caller = only_caller(module, line) if alone else None
            print(json.dumps({**record, "caller": caller}), flush=True)
            line = caller[0] if caller is not None else 0


def _as_another(rights: str, root: str) -> str:
    """Take on the rights of another user for good, and nothing else of him. Returns the root by a name under which he
    reaches it as well: what /proc shows of a process may be closed to its own user."""
    uid, gid, groups = rights.split(":")
    if root:
        root = f"/proc/self/fd/{os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}"
    os.setgroups([int(group) for group in groups.split(",") if group])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    return root


def resolved(root: str, path: str) -> str:
    """A path below `root` without symbolic links, each of which leads where it leads for those who have this root.

    Raises:
        OSError: where links go in a circle.
    """
    done: list[str] = []
    left = path.split("/")[::-1]
    links = 0
    while left:
        part = left.pop()
        if part in ("", ".", ".."):
            done = done[:-1] if part == ".." else done
            continue
        try:
            target = os.readlink("/".join([root, *done, part]))
        except OSError:  # no link, or not there
            done.append(part)
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        done = [] if target.startswith("/") else done
        left += target.split("/")[::-1]
    return "/".join([root, *done])


def _read(file: str, root: str) -> tuple[str, ast.Module | None]:
    try:
        path, flags = (resolved(root, file), os.O_NOFOLLOW) if root else (file, 0)
        seen = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
        try:
            found = os.fstat(seen)
            # What has no size is made as it is read (/proc, tracefs), and reading may take it from others.
            if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= LIMIT:
                return "", None
            # What has been looked at, and nothing that has come in its place.
            here = f"/proc/self/fd/{seen}"
            with tokenize.open(here if os.path.exists(here) else path) as stream:
                source = stream.read(LIMIT)
        finally:
            os.close(seen)
        return source, ast.parse(source)
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError):  # LookupError: of its coding
        return "", None


def around_line(
    module: ast.Module, source: str, line: int
) -> tuple[Loops, tuple[Condition, ...], Texts, Texts, Records, Texts, Records]:
    """The loops that the line is inside of, in its own function, the conditions that it stands under, what the `with`
    statements around it hold, what the branches of each `if` around it still call, the ways out of the loops, the
    `except` clauses that catch what is raised there and go on, and what decides where the loops begin and end."""
    loops: Loops = ()
    conditions: tuple[Condition, ...] = ()
    holds: Texts = ()
    ahead: Texts = ()
    exits: Records = ()
    caught: Texts = ()
    bounds: Records = ()
    block: list[Any] = module.body
    scope = block
    while True:
        node = next((node for node in block if _first(node) <= line <= _last(node)), None)
        if node is None:
            return loops, conditions, holds, ahead, exits, caught, bounds
        # What stands behind an `if` that does not go on is its other branch.
        passed = [
            each
            for each in block[: block.index(node)]
            if isinstance(each, ast.If) and not each.orelse and _ends(each.body[-1])
        ]
        conditions += tuple(_condition(source, each, holds=False) for each in passed)
        ahead += tuple((each.lineno, name) for each in passed for name in _called(block, line))
        name, block = _block(node, line)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and name == "body":
            loops, conditions, holds, ahead = (), (), (), ()
            exits, caught, bounds, scope = (), (), (), block
        if isinstance(node, ast.Try) and name == "body":
            caught += tuple((each.lineno, _clause(source, each)) for each in node.handlers if not _passes_on(each))
        if isinstance(node, (ast.With, ast.AsyncWith)):
            items = node.items if name else node.items[:-1]  # in the head, the last one is not held yet
            holds += tuple((node.lineno, _text(source, item.context_expr)) for item in items)
        # The head of a loop is where it fetches its next item: a part of the loop. Its `else` is not.
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and name != "orelse":
            loops += ((node.lineno, _last(node.body[-1])),)
            exits += tuple(itertools.islice(_ways_out(node.body, source, {"loop": node.lineno}), MOST_EXITS))
            bounds += tuple(itertools.islice(_bounds(scope, source, node), MOST_BOUNDS))
        if isinstance(node, (ast.If, ast.While)) and name:
            conditions += (_condition(source, node, holds=name != "orelse"),)
            ahead += tuple((node.lineno, called) for called in _called(block, line))
        if not name:
            return loops, conditions + tuple(_choices(node, source, line)), holds, ahead, exits, caught, bounds


def only_caller(module: ast.Module, line: int) -> tuple[int, str] | None:
    """The one line of a module that calls the function which a line is in, and the function that it stands in itself;
    None for several, and where the function is handed on."""
    own = _function_at(module, line)
    named = [node for node in ast.walk(module) if own and _name(node) == own]
    called = [node.func for node in ast.walk(module) if isinstance(node, ast.Call) and _name(node.func) == own]
    if len(called) != 1 or named != called:
        return None
    return called[0].lineno, _function_at(module, called[0].lineno) or "<module>"


def _function_at(module: ast.Module, line: int) -> str:
    """The name of the innermost function that a line is in."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in ast.walk(module) if isinstance(node, kinds) and _first(node) <= line <= _last(node)]
    return max(around, key=_first).name if around else ""


def _name(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _ways_out(
    block: list[Any], source: str, around: dict[str, Any], *, inner: bool = False
) -> Iterator[dict[str, Any]]:
    """The statements of a loop that leave it, or cut a pass short. `inner`: the block is in a loop within that one,
    which `break` and `continue` there are about."""
    for node in block:
        word = type(node).__name__.lower()
        if word == "return" or (word in ("break", "continue") and not inner):
            yield {"line": node.lineno, "word": word, **around}
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        deeper = inner or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        own = {**around, "test": _text(source, node.test)} if isinstance(node, ast.If) else around
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, None)
            if isinstance(part, list):
                # What stands in the other branch stands below no condition that could be told in a word.
                yield from _ways_out(part, source, around if name != "body" else own, inner=deeper)
        for each in getattr(node, "handlers", []):
            yield from _ways_out(each.body, source, {**around, "handler": _clause(source, each)}, inner=deeper)


def _bounds(scope: list[Any], source: str, loop: Any) -> Iterator[dict[str, Any]]:
    """The assignments above a counted loop, each below a condition, to what its head reads."""
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    counted = isinstance(loop, ast.While) or (isinstance(head, ast.Call) and ast.unparse(head.func) == "range")
    read = {ast.unparse(each) for each in ast.walk(head) if isinstance(each, (ast.Name, ast.Attribute))}
    for node, test in _above(scope, source, loop.lineno) if counted else ():
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = (part for target in targets for part in getattr(target, "elts", [target]))
        value = node.value
        chosen = _text(source, value.test) if isinstance(value, ast.IfExp) else test
        for name in sorted({ast.unparse(part) for part in parts} & read if chosen else ()):
            text = " ".join((ast.get_source_segment(source, node) or ast.unparse(node)).split())[:WIDTH]
            yield {"line": node.lineno, "name": name, "text": text, "test": chosen, "loop": loop.lineno}


def _above(block: list[Any], source: str, line: int, test: str = "") -> Iterator[tuple[Any, str]]:
    """The assignments of one function above a line, each with the innermost condition that it stands below."""
    for node in block:
        if node.lineno >= line or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            yield node, test
        own = _text(source, node.test) if isinstance(node, ast.If) else test
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, None)
            other = f"not ({own})" if isinstance(node, ast.If) and name == "orelse" else own
            yield from _above(part if isinstance(part, list) else [], source, line, other)
        for each in getattr(node, "handlers", []):
            yield from _above(each.body, source, line, _clause(source, each))


def _clause(source: str, handler: ast.ExceptHandler) -> str:
    """`except ValueError`, as it is written."""
    if handler.type is None:
        return "except"
    return f"except {' '.join((ast.get_source_segment(source, handler.type) or ast.unparse(handler.type)).split())}"[
        :WIDTH
    ]


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a clause raises again, or ends the program."""
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler)) or (
        _ends(handler.body[-1]) and not isinstance(handler.body[-1], (ast.Continue, ast.Break, ast.Return))
    )


def system_exits(module: ast.Module) -> Iterator[tuple[int, str, str, int | None]]:
    """Where SystemExit is raised: line, function, a text that it is raised with, and the exit code where that can be
    read."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    left: list[tuple[Any, str]] = [(module, "<module>")]
    while left:
        node, function = left.pop()
        function = node.name if isinstance(node, functions) else function
        left += [(child, function) for child in ast.iter_child_nodes(node)]
        raised = node.exc if isinstance(node, ast.Raise) else None
        call = raised if isinstance(raised, ast.Call) else None
        if ast.unparse(call.func if call else raised or ast.Constant(None)) == "SystemExit":
            yield node.lineno, function, *_exit_code(call.args[0] if call and call.args else ast.Constant(None))


def _exit_code(argument: ast.expr) -> tuple[str, int | None]:
    """What Python prints and makes of an argument of SystemExit; None where that is not written there."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, (int, type(None))):
        return "", (argument.value or 0) & 255
    if isinstance(argument, ast.Constant):
        return str(argument.value)[:WIDTH], 1
    return "", 1 if isinstance(argument, ast.JoinedStr) else None


def _called(block: list[Any], line: int) -> tuple[str, ...]:
    """The names of what the statements of a block call, from the one that holds the line."""
    rest = [node for node in block if _last(node) >= line]
    calls = (each for node in rest for each in ast.walk(node) if isinstance(each, ast.Call))
    names = {ast.unparse(call.func)[:WIDTH] for call in calls}
    return tuple(sorted(names)) if len(names) <= MOST_CALLED else ("...",)


def _ends(node: ast.stmt) -> bool:
    """Whether nothing behind this statement is reached by who has come to it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("exit", "quit", "sys.exit", "os._exit")
    return isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _first(node: Any) -> int:
    if isinstance(node, ast.match_case):
        node = node.pattern
    return min(int(part.lineno) for part in (node, *getattr(node, "decorator_list", [])))


def _last(node: Any) -> int:
    return _last(node.body[-1]) if isinstance(node, ast.match_case) else int(node.end_lineno or node.lineno)


def _block(node: Any, line: int) -> tuple[str, list[Any]]:
    """The part of a compound statement that holds the line: its name and its statements (both empty: the head)."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and _first(block[0]) <= line <= _last(block[-1]):
            return name, block
    return "", []


def _choices(node: Any, source: str, line: int) -> Iterator[Condition]:
    """The tests of conditional expressions, outermost first, in whose branches the line stands."""
    head = [
        child
        for name, field in ast.iter_fields(node)
        if name not in ("body", "handlers", "orelse", "finalbody", "cases") or not isinstance(field, list)
        for child in (field if isinstance(field, list) else [field])
        if isinstance(child, ast.AST)
    ]
    for top in head:
        for child in ast.walk(top):
            if not isinstance(child, ast.IfExp):
                continue
            taken, other = (_runs_at(part, line) for part in (child.body, child.orelse))
            if taken or other:  # with calls of both at one line, which of them runs cannot be seen
                yield _condition(source, child, holds=taken)


def _runs_at(part: ast.AST, line: int) -> bool:
    """Whether something is called in a part of an expression that is at a line."""
    there = _first(part) <= line <= _last(part)
    return there and any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(part))


def _condition(source: str, node: Any, *, holds: bool) -> Condition:
    return {"line": node.lineno, "text": _text(source, node.test), "holds": holds}


def _text(source: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(source, node) or ast.unparse(node)).split())[:WIDTH]


if __name__ == "__main__":
    main()

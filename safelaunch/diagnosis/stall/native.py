"""What native code a thread is in, where its Python frames end at a call into C."""

from __future__ import annotations

import re

from safelaunch.model import Location, RankFacts, Stack

# Of the interpreter, of threads and of the C library: how every call looks from inside. What is of libraries tells.
PLAIN = re.compile(
    r"^(?:_?Py|_PyEval|cfunction_|method_|function_|builtin_|slot_|type_call|object_vacall|__libc_|_start)"
)
INTERPRETER = re.compile(r"(?:^|/)(?:lib)?python\d[\d.]*(?:\.so[\d.]*)?$")
SYSTEM = re.compile(r"(?:^|/)(?:libc|libpthread|ld-linux[-\w]*)[-.\d]*\.so|^\[vdso\]$")
PYTHON = re.compile(r"\.py$|^<")
WIDTH = 60


def native_frames(facts: RankFacts, stack: Stack | None) -> tuple[str, ...]:
    """The innermost native function of a thread, and the outermost of a library that leads there, as one line."""
    thread = stack.thread if stack is not None and stack.thread else facts.pid
    seen = next((each for each in facts.stacks if each.native and each.thread == thread), None)
    inner: list[Location] = []
    for frame in seen.frames if seen is not None else ():
        if PYTHON.search(frame.file):
            break
        if not INTERPRETER.search(frame.file) and not PLAIN.match(frame.function):
            inner.append(frame)
    library = next((frame for frame in reversed(inner) if not SYSTEM.search(frame.file)), None)
    if library is None:
        return ()  # a lock of the interpreter's own, or a call that the kernel has told of
    caller = f", called by {_name(library)}" if library != inner[0] else ""
    return (f"in native code it is in {_name(inner[0])}{caller}",)


def _name(frame: Location) -> str:
    function = frame.function if len(frame.function) <= WIDTH else frame.function[: WIDTH - 3] + "..."
    return f"{function} ({frame.file.rpartition('/')[2]})"

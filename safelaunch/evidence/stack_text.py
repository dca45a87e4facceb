"""What stands in a rank's `stack.txt`."""

from __future__ import annotations

import textwrap

from safelaunch.model import Child, RankFacts


def stack_text(facts: RankFacts) -> str:
    """The best stacks there are of a rank and of the processes below it, and where they come from. What a program has
    written is indented: names of files and functions may hold ends of lines, and no line of theirs looks like ours."""
    parts = []
    if facts.error is not None:
        parts.append(_part("uncaught exception, as the rank recorded it", facts.error.traceback))
    if facts.fault is not None:
        parts.append(_part("fatal signal, by faulthandler", facts.fault.text))
    if facts.stack is not None:
        parts.append(_part(f"all threads while the rank was alive, by {facts.stack.source}", facts.stack.text))
    native = "".join(stack.text for stack in facts.stacks if stack.native)
    if native:
        parts.append(_part("all threads with native frames, by py-spy, which stopped the rank for it", native))
    if not parts:
        parts.append(_part("no stack: " + (facts.gaps or "the rank ended without leaving one"), ""))
    parts += [_child(child) for child in facts.children]
    return "\n".join(parts)


def _child(child: Child) -> str:
    kernel = child.kernel
    call = f", in {kernel.syscall}" if kernel.syscall else ""
    file = f" of {kernel.file}" if kernel.file else ""
    what = f"process {child.pid} below the rank: {child.name}, state {kernel.state}{call}{file}"
    return _part(what, child.stack.text if child.stack is not None else "")


def _part(what: str, text: str) -> str:
    return "# " + " ".join(what.split("\n")) + "\n" + textwrap.indent(text, "  ", lambda _: True)

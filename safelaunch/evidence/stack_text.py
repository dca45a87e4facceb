"""What stands in a rank's `stack.txt`."""

from __future__ import annotations

from safelaunch.model import Child, RankFacts


def stack_text(facts: RankFacts) -> str:
    """The best stacks there are of a rank and of the processes below it, and where they come from."""
    parts = []
    if facts.error is not None:
        parts.append(f"# uncaught exception, as the rank recorded it\n{facts.error.traceback}")
    if facts.fault is not None:
        parts.append(f"# fatal signal, by faulthandler\n{facts.fault.text}")
    if facts.stack is not None:
        parts.append(f"# all threads while the rank was alive, by {facts.stack.source}\n{facts.stack.text}")
    native = "".join(stack.text for stack in facts.stacks if stack.native)
    if native:
        parts.append(f"# all threads with native frames, by py-spy, which stopped the rank for it\n{native}")
    if not parts:
        parts.append("# no stack: " + ("; ".join(facts.missing) or "the rank ended without leaving one") + "\n")
    parts += [_child(child) for child in facts.children]
    return "\n".join(parts)


def _child(child: Child) -> str:
    kernel = child.kernel
    call = f", in {kernel.syscall}" if kernel.syscall else ""
    file = f" of {kernel.file}" if kernel.file else ""
    lines = f"# process {child.pid} below the rank: {child.name}, state {kernel.state}{call}{file}\n"
    return lines + (child.stack.text if child.stack is not None else "")

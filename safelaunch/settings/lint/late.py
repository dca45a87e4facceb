"""Variables that are set when their program has read them already."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge.lateness import why_late
from safelaunch.settings.lint.judge.reading import is_read


def late_variable(context: LintContext) -> Iterator[Finding]:
    """A variable is set after it has been read, so that it does nothing.

    Libraries read some variables once: OpenMP when it is loaded, torch.distributed when it is imported, CUDA at its
    first call, the container runtime before there is any process in the container. A training script that sets
    os.environ["OMP_NUM_THREADS"] below `import torch` changes nothing, and neither does a profile that sets
    NVIDIA_VISIBLE_DEVICES.

    How it is concluded: the catalogue says when each variable is read. What a profile sets is there when ranks start,
    LD_LIBRARY_PATH included. In the training script, assignments to os.environ are put in order with its imports,
    without running it: only an `import torch` at module level, above the assignment, counts. An import by another
    module is not seen. Of a script that starts processes of its own, or calls set_num_threads, nothing of this is
    told: it may set the variable for these.

    What to do: set it where the message says, most often in [env] of a profile.
    """
    before: dict[str, str | None] = {}
    for setting in context:
        same = setting.value is not None and before.get(setting.name) == setting.value
        before[setting.name] = setting.value
        # What the program has read already is what the assignment says: nothing is lost.
        fault = why_late(setting) if not same and is_read(setting.name, context) else None
        if fault is not None:
            yield fault.finding("SL217", setting)

"""Which of torch's two NCCL backends reads a variable: since torch 2.15 `nccl` is nccl2."""

from __future__ import annotations

from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.lint.judge.wording import literal

CHOICE = "TORCH_DIST_USE_NCCL2"

# What comes after TORCH_NCCL_ in those that ProcessGroupNCCL reads and nccl2 does not: seen by tracing getenv in a
# run of torch 2.15 that was healthy, and in one that timed out.
OF_THE_OLD = frozenset({
    "BCAST_UNIQUEID", "COORD_CHECK_MILSEC", "DEBUG_INFO_PIPE_FILE", "DESYNC_DEBUG", "ENABLE_MONITORING",
    "EXTRA_DUMP_ON_EXEC", "HEARTBEAT_TIMEOUT_SEC", "LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "NAN_CHECK",
    "NONBLOCKING_TIMEOUT", "PROPAGATE_ERROR", "RETHROW_CUDA_ERRORS", "SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING",
    "TEARDOWN_ON_TIMEOUT", "USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
})  # fmt: skip


def is_of_the_other(name: str, context: LintContext) -> bool:
    """Whether only the NCCL backend reads a variable that is not in use: a torch that asks for `CHOICE` has both."""
    if name.removeprefix("TORCH_NCCL_") not in OF_THE_OLD:
        return False
    torch, choice = context.installed.torch, context.last().get(CHOICE)
    if torch is None or not torch.cuda or not _has_both(context):
        return False
    return choice is None or literal(choice) not in ("0", None)


def _has_both(context: LintContext) -> bool:
    """Whether the torch has both backends: by its names, or by its version where these cannot be read."""
    held = context.installed.holds(CHOICE)
    return bool(held) if context.installed.names is not None else versions.at_least("torch", context.installed, "2.15")

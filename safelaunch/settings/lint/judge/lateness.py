"""Settings that are made after their program has read the variable."""

from __future__ import annotations

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.judge.wording import Fault, source

BEFORE_TORCH = "set it before the first `import torch`, or in [env] of a profile"


def why_late(setting: Setting) -> Fault | None:
    """Why a setting comes too late; None where it is in time, or where that cannot be told."""
    variable = catalogue.variable(setting.name)
    if variable is None:
        return None
    read, why = variable.read, (source(variable.source),)
    in_script = setting.after is not None
    if read == "container" and (in_script or setting.origin.source == "profile"):
        says = "comes too late: the container runtime reads it when it starts the container"
        return Fault("warning", says, why, "give it to the container: docker run --env, or the job's specification")
    if not in_script:
        return None
    if read == "loader":
        says = "comes too late: the dynamic loader read it when this process started"
        return Fault("warning", says, why, "set it in [env] of a profile, or in the shell")
    if read == "agent":
        says = "comes too late: the launcher reads it before there are ranks"
        return Fault("warning", says, why, "set it in [env] of a profile, or in the shell")
    return _in_script(setting, read, why)


def _in_script(setting: Setting, read: str, why: tuple[str, ...]) -> Fault | None:
    after = setting.after or frozenset()
    if read == "load" and "torch" in after:
        says = "comes too late: it is read when the libraries of torch are loaded, and torch is imported above"
        return Fault("warning", says, why, BEFORE_TORCH)
    if read == "import" and "torch" in after:
        says = "comes too late: `import torch` above has read it"
        return Fault("warning", says, why, BEFORE_TORCH)
    if read == "cuda" and "cuda" in after:
        says = "may come too late: a call above can have started CUDA, which reads it then"
        return Fault("warning", says, why, "set it before the first use of a GPU, or in [env] of a profile")
    return None

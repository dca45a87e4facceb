"""Scenes of a lint, written as people write settings: `NCCL_DEBUG=INFO`."""

from __future__ import annotations

from typing import Any

from safelaunch.model import Finding, Origin
from safelaunch.settings.lint import lint
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.installed import Installed, Library

TORCH_CPU = Installed(Library("2.13.0+cpu", "/site-packages/torch"))


def cuda(torch: str = "2.13.0", nccl: str = "2.29.7", names: frozenset[str] | None = None) -> Installed:
    """A torch that was built for CUDA, and its NCCL. `names` are those that the libraries hold."""
    return Installed(
        Library(torch, "/site-packages/torch", cuda=True), Library(nccl, "/site-packages/libnccl.so.2"), lambda: names
    )


def setting(text: str, where: str = "job.sh:1", source: Any = "file", **more: Any) -> Setting:
    name, equals, value = text.partition("=")
    return Setting(name, value if equals else None, Origin(source, where), **more)


def context(*texts: str | Setting, installed: Installed | None = None, **more: Any) -> LintContext:
    settings = tuple(text if isinstance(text, Setting) else setting(text) for text in texts)
    return LintContext(settings, installed or cuda(), **more)


def findings(*texts: str | Setting, **more: Any) -> tuple[Finding, ...]:
    return lint(context(*texts, **more), {})


def told(*texts: str | Setting, **more: Any) -> list[tuple[str, str]]:
    """Code and severity of what is found."""
    return [(finding.code, finding.severity) for finding in findings(*texts, **more)]


def only(*texts: str | Setting, **more: Any) -> Finding:
    """The one finding that there is."""
    (found,) = findings(*texts, **more)
    return found

"""Two GPUs of the job: whether NVLinks join them, and what NVML says of their access to each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safelaunch.preflight.gpu.look import numbers, reason
from safelaunch.preflight.machine.nvml import Gpu, Pair, Unread
from safelaunch.preflight.machine.topology import hidden_nvlinks, may_lead, nvlinks
from safelaunch.sizes import plural

MOST_PAIRS = 8  # that a finding lists


@dataclass(frozen=True)
class Peers:
    """Two GPUs, and what NVML says of them as a pair."""

    a: Gpu
    b: Gpu
    status: Pair

    @property
    def linked(self) -> bool:
        """Whether active NVLinks are known to join them. A virtual machine may hide what the links lead to, but not
        that peers are reached over them."""
        hidden = self.status.p2p == 0 and not self._refused and hidden_nvlinks(self.a, self.b)
        return bool(nvlinks(self.a, self.b) or hidden)

    @property
    def unsupported(self) -> bool:
        """Whether NVML has no answer for such a pair."""
        return bool(self._no_status and self._no_status.unsupported)

    @property
    def why_unknown(self) -> str:
        """Why it is not known whether NVLinks join them, or whether they give access; empty where that is known."""
        if self.linked:
            return reason(self._no_status) if self._no_status and not self.unsupported else ""
        if self._refused:
            return reason(self._refused)
        if not hidden_nvlinks(self.a, self.b):
            return ""
        hidden = self.a.why_unread("link_ends") or self.b.why_unread("link_ends")
        return reason(hidden) if hidden else "NVML does not say where their NVLinks lead"

    @property
    def _no_status(self) -> Unread | None:
        return next((entry for entry in self.status.unread if entry.reading == "p2p"), None)

    @property
    def _refused(self) -> Unread | None:
        """What NVML refused to say of the links of one of them, if these may join them."""
        ends = ((self.a, self.b), (self.b, self.a))
        if nvlinks(self.a, self.b) or not all(_refusal(gpu) or may_lead(gpu, other) for gpu, other in ends):
            return None
        return _refusal(self.a) or _refusal(self.b)


def gpus_of(pairs: Sequence[Peers]) -> list[Gpu]:
    those = {gpu.index: gpu for pair in pairs for gpu in (pair.a, pair.b)}
    return [those[index] for index in sorted(those)]


def between(pairs: Sequence[Peers]) -> str:
    """`between 0 and 3, 1 and 3`, `between all of GPUs 0-7`."""
    gpus = gpus_of(pairs)
    if len(gpus) > 2 and len(pairs) == len(gpus) * (len(gpus) - 1) // 2:
        return f"between all of {numbers(gpus)}"
    text = "between " + ", ".join(f"{pair.a.index} and {pair.b.index}" for pair in pairs[:MOST_PAIRS])
    return text + (f" and {plural(len(pairs) - MOST_PAIRS, 'more pair')}" if len(pairs) > MOST_PAIRS else "")


def _refusal(gpu: Gpu) -> Unread | None:
    entries = (gpu.why_unread("links"), gpu.why_unread("link_ends"))
    return next((entry for entry in entries if entry and not entry.unsupported), None)

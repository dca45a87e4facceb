"""Which torch and NCCL the ranks will load, and which variables these really read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

_CUDA_ONLY = ("NCCL", "CUDA", "SYMM")  # names with these words are read by libtorch_cuda or its neighbours


@dataclass(frozen=True)
class Library:
    """One installed library: its version (`2.13.0`; "" where it cannot be told), where it lies, and whether torch was
    built for CUDA, or for GPUs of another kind (ROCm, XPU). The path is torch's own folder, or the file of NCCL."""

    version: str
    path: str
    cuda: bool = False
    other_gpu: bool = False

    @property
    def cpu_only(self) -> bool:
        """Whether this is a torch that was built for no kind of GPU."""
        return not (self.cuda or self.other_gpu)


class Installed:
    """The installed libraries, and the names of variables in them; these are read when first asked for.

    Args:
        torch: the torch that this Python would import, or None.
        nccl: the NCCL that it would load, or None. A torch that was built without CUDA loads none.
        names: reads all names, or gives None where they cannot be read (in the time there is).
    """

    def __init__(
        self,
        torch: Library | None = None,
        nccl: Library | None = None,
        names: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self.torch = torch
        self.nccl = nccl
        self._names = names

    @cached_property
    def names(self) -> frozenset[str] | None:
        """Every name that the libraries hold, or None."""
        return self._names()

    @cached_property
    def _ends(self) -> frozenset[str]:
        """The names without their first words."""
        ends = (held.split("_", at + 1)[-1] for held in self.names or () for at in range(held.count("_")))
        return frozenset(ends)

    def holds(self, name: str) -> bool | None:
        """Whether the installed libraries hold this name, as a whole word; None where that cannot be told.

        It cannot be told where a longer name ends with it: linkers fold `NCCL_X` into the end of `TORCH_NCCL_X`. The
        answer is about what is installed here, no more: `judges` tells whether a no means anything.
        """
        if self.names is None:
            return None
        if name in self.names:
            return True
        return None if name in self._ends else False

    def judges(self, name: str, owner: str) -> bool:
        """Whether what reads this variable is installed and was looked at, so that `holds` may say no.

        A torch without CUDA holds none of the names that its CUDA build reads, and there is no NCCL beside it: on a
        login node, or in a test, that says nothing about the node on which the job will run. Drivers, OpenMP runtimes
        and network plugins are never looked at.

        Args:
            name: of a variable.
            owner: its owner in the catalogue.
        """
        if self.names is None or self.torch is None:
            return False
        if owner == "nccl":
            return self.nccl is not None
        if owner in ("torch", "torch-cuda"):
            return self.torch.cuda or not (owner == "torch-cuda" or any(word in name for word in _CUDA_ONLY))
        return owner == "elastic"


NOTHING_INSTALLED = Installed()

# Another Python than this one runs the ranks: what it imports cannot be told.
ELSEWHERE = Installed()


def stated(torch: str, nccl: str) -> Installed:
    """Libraries of versions that somebody has named, built for CUDA; "" for one of which nothing is said.

    Raises:
        ValueError: a text is no version.
    """
    for name, text in (("torch", torch), ("NCCL", nccl)):
        if text and not re.match(r"\d+\.\d+", text):
            raise ValueError(f"{text} is no version of {name}")
    return Installed(
        Library(torch, "", cuda=True) if torch else None,
        Library(nccl, "") if nccl else None,
    )

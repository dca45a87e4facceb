"""mpirun of Open MPI and of MPICH's kin (hydra), which start processes and not nodes."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation
from safelaunch.schedulers.variables import misstart, number

# How many processes there are, and how many of them on this node: ompi_info's "Environment variables" of Open MPI,
# and what hydra sets (src/pm/hydra of MPICH, which Intel MPI shares).
SIZES = (("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("PMI_SIZE", "MPI_LOCALNRANKS"))


def mpi(environ: Mapping[str, str]) -> Allocation | None:
    """Nothing is taken from mpirun, which does not say where its first process is."""
    for name, of_node in SIZES:
        size, here = number(environ, name), number(environ, of_node)
        if size is None or here is None or size == 1:
            continue
        if here > 1:
            raise misstart(
                f"mpirun starts safelaunch {here} times on this node, and each would start all of its ranks",
                "write `safelaunch …` without mpirun for one node; for several one process a node "
                "(`mpirun --map-by ppr:1:node`), with --nnodes and --rdzv-endpoint",
                f"{of_node}={here}",
                of_all=True,
            )
        raise misstart(
            f"mpirun starts safelaunch on {size} nodes, and does not say where they meet",
            f"add `--nnodes {size} --rdzv-backend c10d --rdzv-endpoint HOST:PORT`, with a host of them",
            f"{name}={size}, {of_node}=1",
            of_all=True,
        )
    return None

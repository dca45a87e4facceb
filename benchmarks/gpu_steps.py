"""What watching costs a GPU job's step of 2 ms, against torchrun, with each of torch's NCCL backends.

GPUs are those of tests/rigs/fake_gpus, whose CUDA calls cost next to nothing: on real ones all of it takes longer but
what we add, so a ratio here is an upper bound. Without that rig's environment (see its README) nothing is measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figures, Row, parser
from pairs import HERE, REPOSITORY, compare, run

RIG = REPOSITORY / "tests" / "rigs" / "fake_gpus"
VENV = Path(os.environ.get("FAKE_GPUS_VENV", REPOSITORY / ".venv-gpus"))
BACKENDS = {"nccl2": "1", "nccl": "0"}  # the value of TORCH_DIST_USE_NCCL2
PROGRAMS = {
    "loop 1": "an all_reduce",
    "loop 4": "4 all_reduce",
    "ddp": "DDP",
}


def step_us(command: Sequence[str], folder: Path) -> float:
    """The median step that rank 0 prints, in microseconds."""
    output = run(command, folder)[1]
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith("step "))


def main() -> None:
    options = parser(__doc__, runs=3, ranks=1)
    options.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    options.add_argument("--steps", type=int, default=2000, help="of each run; what counts is their median")
    options.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    options.add_argument("--real", action="store_true", help="on the GPUs of this machine, a rank each")
    chosen = options.parse_args()
    gpus = "real GPUs" if chosen.real else "fake GPUs"
    figures = Figures(f"What watching costs a step of some 2 ms: {chosen.ranks} ranks on {gpus}", chosen.json)
    os.environ["FAKE_GPUS"] = str(chosen.ranks)
    if not chosen.real and not (VENV / "bin" / "python").exists():
        raise SystemExit(f"no environment for fake GPUs in {VENV}: run {RIG / 'setup'}")
    with_gpus: tuple[str, ...] = (sys.executable, "-m")
    if not chosen.real:
        with_gpus = (str(RIG / "with-fake-gpus"), str(VENV / "bin" / "python"), "-m")
    launchers = {"safelaunch": (*with_gpus, "safelaunch", "--preflight", "off")}
    launchers["torchrun"] = (*with_gpus, "torch.distributed.run")
    for name in chosen.programs:
        for backend in chosen.backends:
            os.environ["TORCH_DIST_USE_NCCL2"] = BACKENDS[backend]
            program = [str(HERE / "gpu_training.py"), str(chosen.steps), *name.split()]
            found = compare(["--nproc-per-node", str(chosen.ranks), *program], chosen.runs, step_us, launchers)
            # Four calls of 50 µs in 2 ms are more than a program makes that is worth a GPU: no target.
            figures.add(Row(f"{PROGRAMS[name]}, {backend}", "us", found, "" if name == "loop 4" else "<= 1.01"))
    figures.write()


if __name__ == "__main__":
    main()

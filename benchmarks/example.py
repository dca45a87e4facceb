"""`example.py STEPS`: the training of `examples/train_ddp.py`.

Rank 0 prints `rate N`: steps per second, without start-up.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import train_ddp

SLOW = 50  # steps at the beginning, which are slower
begun: list[float] = []  # when each step began
options = train_ddp.argument_parser().parse_args(["--steps", str(int(sys.argv[1]) + SLOW), "--eval-every", "0"])
data = train_ddp.make_datasets(options.seed)
train_ddp.train(options, *data, on_step=lambda _: begun.append(time.perf_counter()))
if os.environ["RANK"] == "0":
    print(f"rate {(len(begun) - SLOW - 1) / (begun[-1] - begun[SLOW]):.3f}", flush=True)

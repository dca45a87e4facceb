"""`first_line.py KIND [HOLD]`: prints `first` after what a script of that kind does before its first line.

KIND: `bare`, `torch` (imports it) or `gloo` (makes a process group). HOLD: a FIFO; the script reads it to its end.
"""

from __future__ import annotations

import os
import sys

if sys.argv[1] != "bare":
    import torch  # noqa: F401
if sys.argv[1] == "gloo":
    import torch.distributed as dist

    dist.init_process_group("gloo")
sys.stdout.write(f"first {os.environ['RANK']}\n")  # in one piece
sys.stdout.flush()
if len(sys.argv) > 2:
    with open(sys.argv[2]) as hold:
        hold.read()
if sys.argv[1] == "gloo":
    dist.destroy_process_group()

"""Two ranks that ask each other by RPC, and make no collective. `circle`: each has one thread, and all ask again."""

from __future__ import annotations

import os
import sys

import torch.distributed.rpc as rpc

RANK = int(os.environ["RANK"])


def weight() -> int:
    return RANK


def score(owner: str) -> int:
    return int(rpc.rpc_sync(owner, weight))


def main() -> None:
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=1 if "circle" in sys.argv else 8, rpc_timeout=1800)
    rpc.init_rpc(f"peer{RANK}", rank=RANK, world_size=2, rpc_backend_options=options)
    for _ in range(50):
        rpc.rpc_sync(f"peer{1 - RANK}", score, args=(f"peer{RANK}",))
    rpc.shutdown()


main()

"""A tiny distributed job in which ranks run out of something: `exhausted.py KIND RANK|all [ARGUMENT]`.

Each kind is an ordinary accident, written as a user would write it. CUDA's are raised with the words of real reports:
there is no GPU here.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

KIND, WHO = sys.argv[1], sys.argv[2]
ARGUMENT = sys.argv[3] if len(sys.argv) > 3 else ""
RANK = int(os.environ["RANK"])
STEP = 5
KEPT: list[socket.socket] = []

FULL_GPU = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.04 GiB is "
    "free. Process 41270 has 19.40 GiB memory in use. Process 41271 has 19.40 GiB memory in use. Process 41272 has "
    "19.40 GiB memory in use. Including non-PyTorch memory, this process has 19.91 GiB memory in use. Of the allocated "
    "memory 18.80 GiB is allocated by PyTorch, and 61.11 MiB is reserved by PyTorch but unallocated."
)
ILLEGAL = (
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some "
    "other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
NCCL_SYSTEM = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.27.5\nncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error. \nLast error:\nCall to ibv_reg_mr failed with error Cannot allocate memory"
)
NCCL_REMOTE = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, remote process exited or there was a "
    "network error, NCCL version 2.27.5\nncclRemoteError: A call failed possibly due to a network error or a remote "
    "process exiting prematurely."
)


class Samples(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if KIND == "worker_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if KIND == "worker_aborts":
            os.abort()
        if KIND == "worker_raises":
            return self.broken(index)
        return torch.zeros(500_000)

    def broken(self, index: int) -> torch.Tensor:
        raise ValueError(f"sample {index} is broken")


def open_files() -> None:
    soft = 64 + len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
    shards = [open(os.path.join(ARGUMENT, f"shard-{number}.bin"), "w") for number in range(1000)]
    print(len(shards))


def plain_write() -> None:
    with open(os.path.join(ARGUMENT, "model.bin"), "wb") as file:
        file.write(bytes(8 << 20))


def save() -> None:
    torch.save(torch.zeros(2_000_000), os.path.join(ARGUMENT, "model.pt"))


def little_memory() -> None:
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (100 << 20),) * 2)
    while True:
        KEPT.append(torch.ones(4 << 20) if ARGUMENT == "tensors" else bytearray(16 << 20))


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    save()


def listen() -> None:
    server = socket.socket()
    KEPT.append(server)
    port = int(ARGUMENT)
    server.bind(("127.0.0.1", port))


def store() -> None:
    dist.TCPStore("127.0.0.1", int(ARGUMENT), 1, is_master=True)


def load() -> None:
    for _ in DataLoader(Samples(), batch_size=8, num_workers=1):
        pass


def shared_tensor() -> None:
    torch.zeros(50_000_000).share_memory_()


def gpu_full() -> None:
    raise torch.OutOfMemoryError(FULL_GPU)


def gpu_kernel() -> None:
    raise torch.AcceleratorError(ILLEGAL)


def nccl_system() -> None:
    raise dist.DistBackendError(NCCL_SYSTEM)


def nccl_remote() -> None:
    raise dist.DistBackendError(NCCL_REMOTE)


def own_message() -> None:
    raise RuntimeError("quench of magnet 7")


FAULTS = {
    "worker_killed": load,
    "worker_aborts": load,
    "worker_raises": load,
    "shm": load,
    **{f.__name__: f for f in (open_files, plain_write, save, listen, store, shared_tensor, gpu_full, gpu_kernel)},
    **{f.__name__: f for f in (nccl_system, own_message, little_memory, small_files)},
}


def main() -> None:
    dist.init_process_group("gloo")
    weights = torch.zeros(1000)
    for step in range(200):
        if step == STEP:
            if KIND == "nccl_one_of_many" and WHO != "all":
                (nccl_system if int(WHO) == RANK else nccl_remote)()
            if KIND == "two_classes" and RANK < 2:
                time.sleep(0.0 if int(WHO) == RANK else 2.0)
                (gpu_full if int(WHO) == RANK else own_message)()
            if KIND in FAULTS and WHO in ("all", str(RANK)):
                FAULTS[KIND]()
        dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""The rig of fake GPUs: torch and both of its NCCL backends run on it as on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus, by_turns
from harness import FAULTS

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(240)]

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", 4)
SAFELAUNCH = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 4)
PROGRAMS = ("loop", "ddp", "fsdp2", "mesh", "pipeline")


def python(fake_gpus: FakeGpus, tmp_path: Path, source: str, **changes: str) -> None:
    """Run a program that asserts."""
    (tmp_path / "program.py").write_text(source)
    ended = fake_gpus.run("program.py", cwd=tmp_path, environ=fake_gpus.environment(**changes))
    assert ended.code == 0, ended.err


NUMBERS = """
import torch
def same(function, *inputs):
    want, got = function(*inputs), function(*(one.cuda() for one in inputs))
    assert torch.equal(got.cpu(), want), (function(*inputs), got)
for dtype in (torch.int64, torch.int32, torch.float32, torch.float64):
    few = torch.tensor([[3, 9, 4], [1, 2, 7]], dtype=dtype)
    for function in (torch.max, torch.min, lambda x: x.amax(0), lambda x: x + 1, lambda x: 2 - x, lambda x: x * 3,
                     lambda x: x > 3, lambda x: x == 9, lambda x: (x > 3).any(), lambda x: (x > 0).all(),
                     lambda x: torch.cat([x[0], x[1]]), lambda x: torch.full((5,), 7, device=x.device)):
        same(function, few)
    for function in (torch.add, torch.mul, torch.gt, torch.eq):
        same(function, few, few.flip(0))
same(torch.sum, torch.arange(5000.0))
same(lambda x: x.mean(1), torch.ones(3, 4))
assert not len(torch.ones(3, device="cuda").nonzero())  # what asks the GPU for a size is told 0
"""


def test_small_numbers_are_computed(fake_gpus: FakeGpus, tmp_path: Path) -> None:
    python(fake_gpus, tmp_path, NUMBERS)


TIMES = """
import os, time, pynvml, torch
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(3)]
def utilisation(): return [pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in gpus]
def milliseconds(device):
    torch.cuda.set_device(device)
    numbers, begin, end = torch.ones(4, device="cuda"), *(torch.cuda.Event(True) for _ in "ab")
    begin.record()
    for _ in range(200):
        numbers += 1
    end.record()
    assert not end.query()  # the host runs ahead
    end.synchronize()
    return begin.elapsed_time(end)
assert 199 < milliseconds(0) < 250, "200 kernels of a millisecond"
assert 999 < milliseconds(2) < 1250, "the same on a slow GPU"
torch.cuda.set_device(1)
torch.cuda._sleep(3_000_000_000)
deadline = time.monotonic() + 2.5
while utilisation()[1] < 100 and time.monotonic() < deadline:
    time.sleep(0.05)
assert utilisation()[1] == 100 and not torch.cuda.current_stream().query()
begin, numbers = time.monotonic(), torch.zeros(1, device="cuda")
for _ in range(1100):
    numbers += 1
assert not torch.cuda.current_stream().query() or time.monotonic() - begin > 0.1
torch.cuda.synchronize()
own = [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpus[1])
       if process.pid == os.getpid()]
assert own and own[0] > torch.cuda.memory_reserved()
"""


def test_kernels_take_their_time_and_nvml_knows(fake_gpus: FakeGpus, tmp_path: Path) -> None:
    python(fake_gpus, tmp_path, TIMES, FAKE_GPU_KERNEL_US="1000", FAKE_GPU_SLOW="2:5")


FAILURES = """
import os, pynvml, torch
small, failing = torch.device("cuda", 1), torch.device("cuda", 2)
torch.empty(1 << 31, dtype=torch.uint8, device="cuda:0")
try:
    torch.empty(1 << 31, dtype=torch.uint8, device=small)
except torch.OutOfMemoryError as error:
    assert "GPU 1 has a total capacity of 2.00 GiB" in str(error), error
else:
    raise AssertionError("no room, and no error")
numbers = torch.ones(3, device=failing)
os.environ["FAKE_GPU_FAULT"] = "214@2:1"
numbers + 1
for _ in range(2):  # it stays
    try:
        torch.cuda.synchronize(failing)
    except RuntimeError as error:
        assert "uncorrectable ECC error" in str(error), error
    else:
        raise AssertionError("the GPU has not failed")
torch.cuda.synchronize(small)
pynvml.nvmlInit()
errors = [pynvml.nvmlDeviceGetTotalEccErrors(pynvml.nvmlDeviceGetHandleByIndex(index), 1, 0) for index in range(4)]
assert errors == [0, 0, 1, 0], errors
os._exit(0)
"""


def test_gpus_run_out_of_memory_and_fail(fake_gpus: FakeGpus, tmp_path: Path) -> None:
    python(fake_gpus, tmp_path, FAILURES, FAKE_GPU_MEMORY="1:2048")


COMMUNICATION = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
def full(value, count=4): return torch.full((count,), float(value), device="cuda")

mine = full(rank)
dist.all_reduce(mine)
assert mine.tolist() == [6.0] * 4, mine
dist.all_reduce(mine, dist.ReduceOp.AVG)
gathered = torch.zeros(2 * size).cuda()
dist.all_gather_into_tensor(gathered, full(rank, 2))
assert gathered.tolist() == [0, 0, 1, 1, 2, 2, 3, 3], gathered
part = full(-1, 2)
dist.reduce_scatter_tensor(part, torch.arange(2.0 * size).cuda())
assert part.tolist() == [8.0 * rank, 8.0 * rank + 4], part
swapped = torch.zeros(size).cuda()
dist.all_to_all_single(swapped, torch.tensor([10.0 * rank + to for to in range(size)]).cuda())
assert swapped.tolist() == [10.0 * by + rank for by in range(size)], swapped

sums = [full(rank), full(2 * rank)]
with dist._coalescing_manager(device=torch.device("cuda", rank)):
    for one in sums:
        dist.all_reduce(one)
assert [one[0].item() for one in sums] == [6, 12]

received = full(-1)
ring = [dist.P2POp(dist.isend, full(rank), (rank + 1) % size), dist.P2POp(dist.irecv, received, (rank - 1) % size)]
for work in dist.batch_isend_irecv(ring):
    work.wait()
assert received[0].item() == (rank - 1) % size
passed = full(0)
if rank > 0:
    dist.recv(passed, rank - 1)
passed += 1
if rank < size - 1:
    dist.send(passed, rank + 1)
assert passed[0].item() == rank + 1

mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
rows, columns = full(rank), full(rank)
dist.all_reduce(rows, group=mesh.get_group("tp"))
dist.all_reduce(columns, group=mesh.get_group("dp"))
assert (rows[0].item(), columns[0].item()) == ([1, 1, 5, 5][rank], [2, 4, 2, 4][rank])
pair = dist.new_group([1, 3])
if rank in (1, 3):
    both = full(rank)
    dist.all_reduce(both, group=pair)
    assert both[0].item() == 4

objects = [None] * size
dist.all_gather_object(objects, "x" * 10 ** rank)
assert [len(one) for one in objects] == [1, 10, 100, 1000]
told = [{"from": rank}, "x" * rank] if rank == 1 else [None, None]
dist.broadcast_object_list(told, src=1)
assert told == [{"from": 1}, "x"]
dist.barrier()
dist.destroy_process_group()
print("right", flush=True)
"""


@pytest.mark.parametrize("backend", NCCL)
def test_what_is_communicated_arrives(fake_gpus: FakeGpus, tmp_path: Path, backend: str) -> None:
    (tmp_path / "train.py").write_text(COMMUNICATION)
    ended = fake_gpus.run(*TORCHRUN, "train.py", cwd=tmp_path, environ=fake_gpus.environment(backend=backend))

    assert ended.code == 0, ended.err
    assert ended.out.count("right") == 4


@pytest.mark.parametrize(("program", "backend"), by_turns((program,) for program in PROGRAMS))
def test_healthy_programs_end_in_peace(fake_gpus: FakeGpus, tmp_path: Path, program: str, backend: str) -> None:
    environ = fake_gpus.environment(backend=backend)
    ended = fake_gpus.run(*SAFELAUNCH, FAULTS / f"gpu/{program}.py", cwd=tmp_path, environ=environ)

    assert ended.code == 0, ended.err
    assert ended.out.count("is done") == 4
    assert not [line for line in ended.err.splitlines() if "[SL3" in line or "[SL5" in line], ended.err


@pytest.mark.long
@pytest.mark.parametrize("backend", NCCL)
@pytest.mark.parametrize("program", PROGRAMS)
def test_so_they_do_under_torchrun(fake_gpus: FakeGpus, tmp_path: Path, program: str, backend: str) -> None:
    environ = fake_gpus.environment(backend=backend)
    ended = fake_gpus.run(*TORCHRUN, FAULTS / f"gpu/{program}.py", cwd=tmp_path, environ=environ)

    assert ended.code == 0, ended.err
    assert ended.out.count("is done") == 4


@pytest.mark.parametrize("backend", NCCL)
def test_an_abort_ends_ranks_though_a_kernel_does_not(fake_gpus: FakeGpus, tmp_path: Path, backend: str) -> None:
    environ = fake_gpus.environment(backend=backend, FAULT="kernel", PG_TIMEOUT="6")
    ended = fake_gpus.run(*TORCHRUN, FAULTS / "gpu/loop.py", cwd=tmp_path, environ=environ)

    assert ended.code == 1
    assert "is done" not in ended.out
    assert "imeout" in ended.err or "timed out" in ended.err, ended.err

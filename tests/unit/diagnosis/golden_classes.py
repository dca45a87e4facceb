"""Golden cases of exceptions that the signatures know, with what the rank and the node recorded of them."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import call, hang, waiting
from scenes import LOOP, STEP, TORCH, T, case, crashed, lost_peer, raised, rank

from safelaunch.model import (
    Case,
    GpuState,
    Location,
    Memory,
    OpenFiles,
    Port,
    PyError,
    RankFacts,
    Reducer,
    Share,
    Space,
    Stack,
    Surroundings,
    Tenant,
)
from safelaunch.model.logs import Known

GIB = 1 << 30
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.04 GiB is free."
)
KILLED = (
    "DataLoader worker (pid 5117) is killed by signal: Killed. ",
    "DataLoader worker (pid(s) 5117) exited unexpectedly",
)
BUS = (
    "DataLoader worker (pid 5117) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory. Please try to raise your shared memory limit."
)
NCCL = (
    "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL "
    "version 2.27.5\nncclSystemError: System call failed. \nLast error:\nCall to ibv_reg_mr failed with error Cannot "
    "allocate memory"
)
DCP = (
    "CheckpointException ranks:dict_keys([1])\nTraceback (most recent call last): (RANK 1)\n"
    "OSError: [Errno 28] No space left on device"
)
NO_SPACE = "[Errno 28] No space left on device"
UNUSED = "Expected to have finished reduction in the prior iteration before starting a new one."


def known(
    facts: RankFacts, code: str, kind: str, message: str, *, around: Surroundings | None = None, **how: object
) -> RankFacts:
    """The rank raised what a signature knows."""
    facts = raised(facts, kind, message, **how)  # type: ignore[arg-type]
    assert facts.error is not None
    error = dataclasses.replace(facts.error, known=Known("golden", "cause", code, "what it means"), around=around)
    return dataclasses.replace(facts, error=error)


def wrote(
    number: int, message: str = NO_SPACE, *, kind: str = "OSError", t: float = T, line: str = "", **how: object
) -> RankFacts:
    """The rank raised that a disk is full; with `line`, which is what stands at its innermost line."""
    facts = known(rank(number), "SL423", kind, message, t=t, **how)  # type: ignore[arg-type]
    assert facts.error is not None
    trace = facts.error.traceback.replace(f"\n{kind}: ", f"\n    {line}\n{kind}: ") if line else facts.error.traceback
    return dataclasses.replace(facts, error=dataclasses.replace(facts.error, traceback=trace))


def told_of(number: int, culprit: int, t: float = T + 0.02) -> RankFacts:
    """The program has told the rank of the culprit's trouble, and the rank raises it again."""
    said = f"checkpoint failed on rank {culprit}: {NO_SPACE}"
    return wrote(
        number, said, kind="RuntimeError", t=t, at=LOOP, line="raise RuntimeError(f'checkpoint failed on ...')"
    )


def passed_on(number: int, t: float = T + 0.02) -> RankFacts:
    """The same, in words that name nobody: the exception itself was sent and raised again."""
    return wrote(number, t=t, at=LOOP, line="raise status[0]")


def full(number: int, t: float = T, at: Location = STEP) -> RankFacts:
    return known(rank(number), "SL420", "torch.OutOfMemoryError", FULL, t=t, at=at)


def contained(pid: int, at: float) -> str:
    return f"[{at:.3f}] NVRM: Xid (PCI:0000:4b:00): 94, pid={pid}, name=python, Contained memory error"


def in_backward(facts: RankFacts) -> PyError:
    """What a rank raised that had waited for DDP's reduction."""
    error = lost_peer(facts).error
    assert error is not None
    inner = f'  File "{TORCH}/autograd/graph.py", line 824, in _engine_run_backward\n'
    return dataclasses.replace(error, traceback=error.traceback.replace("RuntimeError: ", f"{inner}RuntimeError: ", 1))


def without_gradients(*, tolerant: bool = False, backward: bool = True) -> Case:
    """All ranks are inside the same all_reduce, ranks 0 and 1 in DDP's; rank 2 has none of some gradients."""
    ranks = []
    for number in range(3):
        facts = waiting(number, call(size=3))
        lacks = ("encoder.3.weight", "encoder.3.bias") if number == 2 else ()
        if number < 2 and backward:
            inner = Stack((Location(f"{TORCH}/autograd/graph.py", 824, "_engine_run_backward"), LOOP), "py-spy")
            facts = dataclasses.replace(facts, stack=inner, stacks=(inner,))
        ranks.append(dataclasses.replace(facts, reducers=(Reducer("Net", 10, lacks, tolerant=tolerant),)))
    return hang(*ranks)


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    crowd = tuple(Tenant(4100 + n, n, 19 * GIB) for n in range(4))
    gpus = (
        GpuState(0, ranks=(0, 1, 2, 3), memory_total=80 * GIB, memory_used=79 * GIB, tenants=crowd),
        GpuState(1, memory_total=80 * GIB, memory_used=GIB),
    )
    files = Surroundings(open_files=OpenFiles(1024, 1024, (Share("/data/shard-*.bin", 990), Share("sockets", 12))))
    disk = Surroundings(disk=Space("/ckpt", 100 * GIB, 0, file="/ckpt/step-10.pt"))
    shm = Surroundings(shm=Space("/dev/shm", 64 << 20, 0, holds=(Share("files without a name", 60 << 20),)))
    wide = Surroundings(shm=Space("/dev/shm", 64 * GIB, 60 * GIB))
    taken = Surroundings(port=Port(29500, True, 4100, "python train.py"))
    unused = dataclasses.replace(
        raised(rank(1), "RuntimeError", UNUSED),
        reducers=(Reducer("Net", 10, ("encoder.3.weight", "encoder.3.bias"), raised=True),),
    )
    relays = {
        "disk-full-relayed-by-a-peer": (
            case(wrote(0), told_of(1, 0)),
            Expected("SL423", (0,), place(STEP), secondary=(1,), mentions=("only because a peer had failed",)),
        ),
        "disk-full-relayed-while-another-lives": (
            case(wrote(0), told_of(1, 0), told_of(2, 0), rank(3, inside=())),
            Expected("SL423", (0,), place(STEP), secondary=(1, 2)),
        ),
        # The one that it happened to tells its peers first, and raises last.
        "disk-full-relayed-by-all": (
            case(*(told_of(n, 2, t=T) for n in (0, 1)), wrote(2, t=T + 3.0), told_of(3, 2, t=T)),
            Expected("SL423", (2,), place(STEP), secondary=(0, 1, 3)),
        ),
        "disk-full-passed-on-as-it-was": (
            case(passed_on(0, t=T - 0.01), wrote(1, line="torch.save(state, path)"), passed_on(2)),
            Expected("SL423", (1,), place(STEP), secondary=(0, 2)),
        ),
        "gpu-memory-relayed-by-a-peer": (
            case(
                full(0),
                known(rank(1), "SL420", "RuntimeError", f"forward failed on rank 0: {FULL}", t=T + 0.01, at=LOOP),
            ),
            Expected("SL420", (0,), place(STEP), secondary=(1,)),
        ),
        # Two that met it by themselves, and one that was told of the first.
        "disk-full-of-two-and-a-relay": (
            case(wrote(0), told_of(1, 0), wrote(2, t=T + 0.01)),
            Expected("SL423", (0, 2), place(STEP), secondary=(1,)),
        ),
    }
    return {
        **relays,
        "interrupted-by-the-program-itself": (
            case(
                dataclasses.replace(
                    raised(rank(0), "KeyboardInterrupt", ""),
                    error=dataclasses.replace(
                        raised(rank(0), "KeyboardInterrupt", "").error or PyError("", "", "", T),
                        known=Known("interrupted", "outside", "SL603", "the job was interrupted"),
                    ),
                ),
                lost_peer(rank(1)),
            ),
            Expected("SL401", (0,), place(STEP), secondary=(1,)),
        ),
        "gpu-fault-elsewhere-in-time-and-words": (
            dataclasses.replace(
                case(lost_peer(rank(0)), raised(rank(1), "RuntimeError", "CUDA_HOME is not set")),
                gpus=(GpuState(1, ranks=(1,), xids=(contained(4101, T - 3000.0),)),),
            ),
            Expected("SL401", (1,), place(STEP), secondary=(0,)),
        ),
        "gpu-fault-contained-in-another-process": (
            dataclasses.replace(
                case(lost_peer(rank(0)), raised(rank(1), "torch.AcceleratorError", "CUDA error: unknown error")),
                gpus=(GpuState(1, ranks=(1,), xids=(contained(77, T - 1.0),)),),
            ),
            Expected("SL401", (1,), place(STEP), secondary=(0,)),
        ),
        "unused-parameters-before-broken-connections": (
            case(
                dataclasses.replace(lost_peer(rank(0)), reducers=(Reducer("Net", 10),), error=in_backward(rank(0))),
                dataclasses.replace(
                    lost_peer(rank(1)), reducers=(Reducer("Net", 10, ("encoder.3.weight", "encoder.3.bias")),)
                ),
            ),
            Expected(
                "SL412",
                (),
                secondary=(0, 1),
                confidence="medium",
                mentions=("rank 1 had no gradients of encoder.3: 2 parameters", "find_unused_parameters=True"),
            ),
        ),
        "hang-for-want-of-gradients": (
            without_gradients(),
            Expected(
                "SL314",
                (2,),
                place(LOOP),
                confidence="medium",
                conclusive=False,
                mentions=("rank 2 used 2 of 10 parameters of Net in no loss", "find_unused_parameters=True"),
            ),
        ),
        # The model was told to expect it; nobody waits in a backward pass.
        "hang-with-unused-parameters-that-are-expected": (
            without_gradients(tolerant=True),
            Expected("SL310", (), place(LOOP), confidence="medium", conclusive=False),
        ),
        "hang-with-unused-parameters-and-no-backward": (
            without_gradients(backward=False),
            Expected("SL310", (), place(LOOP), confidence="medium", conclusive=False),
        ),
        # Nobody was in a backward pass.
        "connections-broken-with-unused-parameters": (
            case(
                dataclasses.replace(lost_peer(rank(0)), reducers=(Reducer("Net", 10),)),
                dataclasses.replace(lost_peer(rank(1)), reducers=(Reducer("Net", 10, ("encoder.3.weight",)),)),
            ),
            Expected("SL412", (), secondary=(0, 1), confidence="medium", mentions=("network interface",)),
        ),
        "gpu-memory-of-one-rank": (
            case(lost_peer(rank(0)), full(1), lost_peer(rank(2))),
            Expected("SL420", (1,), place(STEP), secondary=(0, 2), mentions=("asked for 2.00 GiB",)),
        ),
        # At other lines, and still the same: each rank fills its own GPU where it happens to be.
        "gpu-memory-of-two-ranks": (
            case(lost_peer(rank(0)), full(1), lost_peer(rank(2)), full(3, T + 0.02, LOOP)),
            Expected("SL420", (1, 3), place(STEP), secondary=(0, 2), confidence="medium"),
        ),
        "gpu-memory-of-every-rank": (
            case(*(full(n, T + n / 100) for n in range(4))),
            Expected("SL420", (), place(STEP), mentions=("every rank ran out of GPU memory",)),
        ),
        "gpu-memory-of-a-shared-gpu": (
            dataclasses.replace(case(rank(0), rank(1), full(2), rank(3)), gpus=gpus),
            Expected("SL420", (2,), place(STEP), mentions=("4 processes use GPU 0: ranks 0-3", "79 GiB of 80 GiB")),
        ),
        "open-files": (
            case(
                lost_peer(rank(0)), known(rank(1), "SL422", "OSError", "[Errno 24] Too many open files", around=files)
            ),
            Expected("SL422", (1,), place(STEP), secondary=(0,), mentions=("1024 of 1024", "990 /data/shard-*.bin")),
        ),
        "limit-of-memory": (
            case(
                lost_peer(rank(0)),
                known(rank(1), "SL404", "MemoryError", "", around=Surroundings(memory=Memory(GIB, 1, 9 * GIB, GIB))),
            ),
            Expected("SL404", (1,), place(STEP), secondary=(0,), mentions=("it may map 1 GiB (ulimit -v)",)),
        ),
        "host-without-memory": (
            case(
                lost_peer(rank(0)),
                known(rank(1), "SL404", "MemoryError", "", around=Surroundings(memory=Memory(3 * GIB, 2 * GIB, 1024))),
            ),
            Expected("SL404", (1,), place(STEP), secondary=(0,), mentions=("it had used 2 GiB", "1 KiB available")),
        ),
        "limit-of-files": (
            case(
                lost_peer(rank(0)),
                known(
                    rank(1),
                    "SL423",
                    "RuntimeError",
                    "unexpected pos 64 vs 0",
                    around=Surroundings(disk=Space("/ckpt", 9 * GIB, 5 * GIB, "/ckpt/last.pt", 1 << 20, 1 << 20)),
                ),
            ),
            Expected("SL423", (1,), place(STEP), secondary=(0,), mentions=("/ckpt/last.pt", "1 MiB each (ulimit -f)")),
        ),
        "disk-full-a-moment-ago": (
            case(
                lost_peer(rank(0)),
                known(
                    rank(1),
                    "SL423",
                    "OSError",
                    NO_SPACE,
                    around=Surroundings(disk=Space("/", 9 * GIB, 5 * GIB, "/scratch/out.bin")),
                ),
            ),
            Expected("SL423", (1,), place(STEP), secondary=(0,), mentions=("/scratch/out.bin", "room was made since")),
        ),
        "disk-full": (
            case(
                lost_peer(rank(0)),
                known(rank(1), "SL423", "OSError", "[Errno 28] No space left on device", around=disk),
            ),
            Expected("SL423", (1,), place(STEP), secondary=(0,), mentions=("/ckpt/step-10.pt", "0 B of 100 GiB free")),
        ),
        "disk-full-of-one-rank-told-to-all": (
            case(
                *(
                    known(rank(n), "SL423", "torch.distributed.checkpoint.api.CheckpointException", DCP, t=T + n / 100)
                    for n in range(3)
                )
            ),
            Expected("SL423", (1,), place(STEP), secondary=(0, 2)),
        ),
        "port-of-another-rank": (
            case(
                rank(0),
                *(
                    known(rank(n), "SL424", "OSError", "[Errno 98] Address already in use", around=taken)
                    for n in (1, 2)
                ),
            ),
            Expected("SL424", (1, 2), place(STEP), mentions=("rank 0 of this job holds it",)),
        ),
        "shared-memory": (
            case(lost_peer(rank(0)), known(rank(1), "SL421", "RuntimeError", BUS, around=shm)),
            Expected("SL421", (1,), place(STEP), secondary=(0,), mentions=("0 B of 64 MiB free", "pid 5117")),
        ),
        # The message only supposes so, and there was room.
        "shared-memory-with-room": (
            case(lost_peer(rank(0)), known(rank(1), "SL421", "RuntimeError", BUS, around=wide)),
            Expected("SL421", (1,), place(STEP), secondary=(0,), confidence="medium"),
        ),
        "shared-memory-of-the-rank-itself": (
            dataclasses.replace(
                case(lost_peer(rank(0)), crashed(rank(1), 7, STEP)), shm=Space("/dev/shm", 64 << 20, 0)
            ),
            Expected("SL421", (1,), place(STEP), secondary=(0,), confidence="medium"),
        ),
        "loader-worker-killed-for-memory": (
            case(
                lost_peer(rank(0)),
                known(rank(1), "SL429", "RuntimeError", KILLED[1], chain=(f"RuntimeError: {KILLED[0]}",)),
                oom_kills=1,
            ),
            Expected("SL429", (1,), place(STEP), secondary=(0,), mentions=("OOM killer", "pid 5117")),
        ),
        "nccl-system-error": (
            case(
                lost_peer(rank(0)),
                known(rank(1), "SL426", "torch.distributed.DistBackendError", NCCL),
                lost_peer(rank(2)),
            ),
            Expected(
                "SL426", (1,), place(STEP), secondary=(0, 2), mentions=("unhandled system error", "Call to ibv_reg_mr")
            ),
        ),
        "unused-parameters": (
            case(lost_peer(rank(0)), unused),
            Expected(
                "SL401",
                (1,),
                place(STEP),
                secondary=(0,),
                mentions=("2 of 10 parameters of Net", "encoder.3: 2 parameters"),
            ),
        ),
    }

"""Golden cases of the reason why a rank does not come: locks, batches, the other end of a call, native code."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from golden_hangs import among
from hang_scenes import (
    ASLEEP,
    BARRIER,
    BEHIND_LOOP,
    GATHER,
    INSIDE_LOOP,
    LOCKED,
    READING,
    TORCH,
    call,
    done,
    elsewhere,
    hang,
    in_cpp,
    in_torch,
    library,
    stack,
    waiting,
    world,
)
from scenes import LOOP, STEP, TRAIN, T, all_reduce, barrier, case, exited, lost_peer, rank, shutting_down

from safelaunch.model import (
    Case,
    Condition,
    Endpoint,
    Kernel,
    LoaderPass,
    Location,
    Process,
    ProcessGroup,
    RankFacts,
    SourceLine,
    ThreadCall,
)

Golden = dict[str, tuple[Case, Expected]]

TAKES = Location(TRAIN, 91, "train_step")
FILL = Location(TRAIN, 203, "fill_cache")
EVALUATE = Location(TRAIN, 140, "evaluate")
UPLOAD = Location(TRAIN, 150, "upload")
VISIT = Location(TRAIN, 160, "visit")
PARENT = Location(TRAIN, 162, "visit")
WAITS_FOR_A = SourceLine(TRAIN, TAKES.line, "with self.lock:")
HOLDS_A = SourceLine(TRAIN, FILL.line, "self.cache = read()", holds=((201, "self.lock"),))
WAITS_FOR_B = SourceLine(TRAIN, TAKES.line, "with log:", holds=((90, "lock"),))
HOLDS_B = SourceLine(TRAIN, FILL.line, "with lock:", holds=((201, "log"),))
WAITS_FOR_OWN = SourceLine(TRAIN, TAKES.line, "with self.log:", holds=((90, "self.lock"),))
HOLDS_OWN = SourceLine(TRAIN, FILL.line, "with self.lock:", holds=((201, "self.log"),))
TWICE = SourceLine(TRAIN, TAKES.line, "self.lock.acquire()", holds=((85, "self.lock"),))

DATA_LOADER, EVALUATION = 77, 78


def _locks() -> Golden:
    reads = dataclasses.replace(READING, peer=None, filesystem="nfs4", mount="/data")

    def beside(*source: SourceLine, kernel: Kernel | None = None) -> Case:
        facts = elsewhere(2, LOCKED, TAKES)
        other = stack(9102, FILL, library("threading.py", 975, "run"), name="filler")
        calls = (ThreadCall(9102, kernel),) if kernel is not None else ()
        facts = dataclasses.replace(facts, stacks=(*facts.stacks, other), threads=calls)
        return dataclasses.replace(among(facts), source=source)

    def visiting(lock: str) -> Case:
        source = (
            SourceLine(TRAIN, VISIT.line, f"with {lock}:", holds=()),
            SourceLine(TRAIN, PARENT.line, "child.visit()", holds=((160, lock),)),
        )
        return dataclasses.replace(among(elsewhere(2, LOCKED, VISIT, PARENT, STEP)), source=source)

    return {
        "hang-lock-of-another-thread": (
            beside(WAITS_FOR_A, HOLDS_A, kernel=reads),
            Expected(
                "SL301",
                (2,),
                place(FILL),
                conclusive=False,
                mentions=(
                    "one written the same way thread filler took at /home/ada/project/train.py:201",
                    "read() on /data/shard-17 (nfs4 at /data)",
                ),
            ),
        ),
        "hang-two-locks-in-a-circle": (
            beside(WAITS_FOR_B, HOLDS_B),
            Expected(
                "SL313",
                (2,),
                place(TAKES),
                conclusive=False,
                mentions=("`log`, which thread filler", "`lock`"),
            ),
        ),
        # The threads may work on two objects, of which each has its own locks.
        "hang-locks-of-two-objects": (
            beside(WAITS_FOR_OWN, HOLDS_OWN),
            Expected("SL301", (2,), place(TAKES), conclusive=False, mentions=("it may be another lock",)),
        ),
        # A tree whose nodes each have a lock: the parent's is held while the child's is waited for.
        "hang-lock-of-a-child": (
            visiting("self.lock"),
            Expected(
                "SL301",
                (2,),
                place(VISIT),
                conclusive=False,
                mentions=("one written the same way it took itself at /home/ada/project/train.py:160",),
            ),
        ),
        "hang-lock-that-is-an-argument": (
            visiting("lock"),
            Expected("SL301", (2,), place(VISIT), conclusive=False, mentions=("it may be another lock",)),
        ),
        "hang-lock-of-the-module-taken-twice": (
            visiting("TREE_LOCK"),
            Expected("SL313", (2,), place(VISIT), conclusive=False, mentions=("holds itself since line 160",)),
        ),
        "hang-lock-that-it-holds": (
            dataclasses.replace(among(elsewhere(2, LOCKED, TAKES)), source=(TWICE,)),
            Expected("SL313", (2,), place(TAKES), conclusive=False, mentions=("holds itself since line 85",)),
        ),
        # The same name in another file is another lock.
        "hang-lock-of-somebody-else": (
            beside(WAITS_FOR_A, dataclasses.replace(HOLDS_A, holds=((201, "self.other"),))),
            Expected("SL301", (2,), place(TAKES), conclusive=False, mentions=("waits for a lock",)),
        ),
        "hang-queue-that-nobody-fills": (
            among(elsewhere(2, LOCKED, library("threading.py", 320, "wait"), library("queue.py", 171, "get"), STEP)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("no other thread of rank 2",)),
        ),
    }


def _batches() -> Golden:
    def fed(facts: RankFacts, given: int, ended: float | None = None, length: int | None = None) -> RankFacts:
        # The evaluation in between says nothing, though it ended last on those that are in the loop.
        passes = (LoaderPass(DATA_LOADER, 2, given, length, ended), LoaderPass(EVALUATION, 4, 7, 7, T - 30.0))
        return dataclasses.replace(facts, loaders=passes)

    loop = (done(call(), 10), done(call(), 11), call())
    behind = waiting(3, *loop[:2], call("barrier", at=BARRIER))
    early = fed(behind, 11, ended=T + 0.01)
    others = [fed(waiting(n, *loop), 12, length=40) for n in range(3)]
    counts = ("rank 3 ran out of batches after 11; its peers have had 12 of 40",)
    # An evaluation that rank 3 came to the end of, and that its peers left by a `break`; all have gone on training.
    cut = (LoaderPass(EVALUATION, 1, 11), LoaderPass(DATA_LOADER, 2, 12))
    trained = [dataclasses.replace(waiting(n, *loop), loaders=cut) for n in range(3)]
    whole = (LoaderPass(EVALUATION, 1, 10, 10, T - 500.0), LoaderPass(DATA_LOADER, 2, 12))
    asleep = dataclasses.replace(elsewhere(3, ASLEEP, STEP), loaders=whole)
    # DistributedDataParallel's collectives are in no record but that of the Flight Recorder.
    in_ddp = dataclasses.replace(asleep, collectives=(done(call("init_process_group", 0, group="init", t=T - 900.0)),))
    return {
        "hang-fewer-batches": (
            hang(*others, early, source=(INSIDE_LOOP, BEHIND_LOOP)),
            Expected("SL303", (3,), place(BARRIER), conclusive=True, mentions=counts),
        ),
        "hang-fewer-batches-without-source": (
            hang(
                *others[:1],
                dataclasses.replace(fed(waiting(1, *loop[:2], call("all_gather", at=GATHER)), 11, T + 0.01)),
            ),
            Expected("SL303", (1,), place(GATHER), confidence="medium", conclusive=True),
        ),
        "hang-fewer-batches-and-an-upload": (
            hang(*others, fed(elsewhere(3, ASLEEP, UPLOAD), 11, ended=T + 0.01)),
            Expected("SL303", (3,), place(UPLOAD), conclusive=False, mentions=(*counts, "sleeps in upload")),
        ),
        "hang-after-an-evaluation-that-others-cut-short": (
            hang(*trained, asleep),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("sleeps in train_step",)),
        ),
        "hang-of-ddp-after-an-evaluation-that-others-cut-short": (
            hang(*trained, in_ddp),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("sleeps in train_step",)),
        ),
        # Its evaluation has ended, and that of others has given more: that is another loader.
        "hang-batches-of-another-loader": (
            hang(
                *others, dataclasses.replace(elsewhere(3, ASLEEP, STEP), loaders=(LoaderPass(EVALUATION, 4, 3, 7, T),))
            ),
            Expected("SL301", (3,), place(STEP), conclusive=False),
        ),
    }


def _one_rank() -> Golden:
    inside = waiting(0, done(call(), 11), call("barrier", at=EVALUATE))
    under = SourceLine(TRAIN, EVALUATE.line, "dist.barrier()", conditions=(Condition(139, "rank == 0"),))
    behind = Location(TRAIN, 144, "evaluate")
    passed = SourceLine(TRAIN, behind.line, "write()")
    other_branch = SourceLine(TRAIN, behind.line, "write()", conditions=(Condition(139, "rank == 0", holds=False),))
    mentions = ("below `rank == 0` (/home/ada/project/train.py:139)",)

    def ahead(*calls: str) -> SourceLine:
        return dataclasses.replace(other_branch, ahead=tuple((139, name) for name in calls))

    late = [elsewhere(n, ASLEEP, behind) for n in (1, 2)]
    away = [elsewhere(n, ASLEEP, STEP) for n in (1, 2)]

    # `if rank == 0: return serve()`, and the workers' part behind it: none of them has come to its broadcast.
    serves, works = Location(TRAIN, 30, "serve"), Location(TRAIN, 40, "work")
    starts, goes_on = Location(TRAIN, 139, "main"), Location(TRAIN, 144, "main")
    broadcast = dataclasses.replace(call("broadcast", at=serves), peer=0)
    master = waiting(0, done(call(), 11), broadcast)
    master = dataclasses.replace(master, stack=stack(4100, in_torch("broadcast"), serves, starts))
    assert master.stack is not None
    master = dataclasses.replace(master, stacks=(master.stack,))
    workers = [elsewhere(n, ASLEEP, works, goes_on) for n in (1, 2)]
    of_master = (
        SourceLine(TRAIN, serves.line, "dist.broadcast(work, 0)"),
        SourceLine(TRAIN, starts.line, "return serve()", conditions=(Condition(138, "rank == 0"),)),
        SourceLine(TRAIN, works.line, "time.sleep(60)"),
        SourceLine(TRAIN, goes_on.line, "work()"),
    )
    # The same, with both parts in one function: what stands behind an `if` that returns is its other branch.
    as_else = SourceLine(TRAIN, behind.line, "write()", conditions=(Condition(139, "rank == 0", holds=False),))

    def below(text: str) -> tuple[SourceLine, ...]:
        return (dataclasses.replace(under, conditions=(Condition(139, text),)), passed)

    return {
        "hang-barrier-of-rank-0-only": (
            hang(inside, *late, source=(under, passed)),
            Expected("SL302", (0,), place(EVALUATE), confidence="medium", conclusive=False, mentions=mentions),
        ),
        "hang-barrier-that-others-may-reach": (
            hang(inside, *away, source=(under,)),
            Expected("SL399", location=place(EVALUATE), confidence="low", conclusive=False, mentions=mentions),
        ),
        "hang-polls-in-the-other-branch": (
            hang(inside, *late, source=(under, ahead("os.path.exists", "time.sleep"))),
            Expected("SL302", (0,), place(EVALUATE), confidence="medium", conclusive=False, mentions=mentions),
        ),
        # C++ makes the call (DTensor.full_tensor): the stack alone has its line. Others like it were made elsewhere.
        "hang-polls-while-cpp-gathers": (
            hang(
                in_cpp(
                    waiting(0, done(call("all_gather"), 11), call("all_gather", at=EVALUATE)),
                    Location(f"{TORCH}/distributed/tensor/_api.py", 300, "full_tensor"),
                    EVALUATE,
                ),
                *(elsewhere(n, ASLEEP, behind, before=[done(call("all_gather"), 11)]) for n in (1, 2)),
                source=(under, ahead("os.path.exists", "time.sleep")),
            ),
            Expected("SL302", (0,), place(EVALUATE), confidence="medium", conclusive=False, mentions=mentions),
        ),
        "hang-barrier-ahead-in-the-other-branch": (
            hang(inside, *late, source=(under, ahead("dist.barrier", "time.sleep"))),
            Expected("SL301", (1, 2), place(behind), conclusive=False),
        ),
        "hang-calls-of-its-own-in-the-other-branch": (
            hang(inside, *late, source=(under, ahead("wait_for_file"))),
            Expected("SL399", location=place(EVALUATE), confidence="low", conclusive=False, mentions=mentions),
        ),
        "hang-barrier-in-both-branches": (
            hang(inside, *late, source=(under, other_branch)),
            Expected("SL301", (1, 2), place(behind), conclusive=False),
        ),
        "hang-master-whose-workers-do-not-come": (
            hang(master, *workers, source=of_master),
            Expected(
                "SL399", location=place(serves), confidence="low", conclusive=False, mentions=("may not hold on",)
            ),
        ),
        "hang-master-that-returns": (
            hang(
                dataclasses.replace(
                    inside,
                    collectives=(
                        *inside.collectives[:-1],
                        dataclasses.replace(inside.collectives[-1], op="broadcast", peer=0),
                    ),
                ),
                *late,
                source=(under, as_else),
            ),
            Expected("SL301", (1, 2), place(behind), conclusive=False),
        ),
        # Ranks 0 and 1 are the first stage of two pipelines: rank 1 should have come.
        "hang-barrier-of-the-first-stage": (
            hang(
                waiting(0, done(call(group="5"), 11), call("barrier", group="5", at=EVALUATE, size=2)),
                elsewhere(1, ASLEEP, behind),
                groups=(world(2), ProcessGroup("5", (0, 1))),
                source=below("pp_rank == 0"),
            ),
            Expected("SL301", (1,), place(behind), conclusive=False),
        ),
        "hang-barrier-of-a-rank-in-its-group": (
            hang(inside, *late, source=below("group.rank() == 0")),
            Expected("SL301", (1, 2), place(behind), conclusive=False),
        ),
        # A name that says `rank` and means another one than the global rank.
        "hang-barrier-below-another-rank": (
            hang(
                waiting(1, done(call(), 11), call("barrier", at=EVALUATE)),
                *[elsewhere(n, ASLEEP, behind) for n in (0, 2)],
                source=below("rank == 0"),
            ),
            Expected("SL301", (0, 2), place(behind), conclusive=False),
        ),
        "hang-barrier-below-the-local-rank": (
            hang(inside, *late, source=below("self.local_rank == 0")),
            Expected("SL302", (0,), place(EVALUATE), confidence="medium", conclusive=False),
        ),
        "hang-first-barrier-of-two-without-source": (
            hang(inside, elsewhere(1, ASLEEP, behind)),
            Expected("SL301", (1,), place(behind), confidence="low", conclusive=False, mentions=("cannot be read",)),
        ),
        "hang-first-barrier-of-three-without-source": (
            hang(inside, *late),
            Expected("SL399", location=place(EVALUATE), confidence="low", conclusive=False),
        ),
    }


def _of_ends() -> Golden:
    """One rank was in a barrier of its own when all others had ended in good order."""
    held = lost_peer(rank(0, inside=(all_reduce(11, done=True, t=T - 1.2), barrier(12))), t=T + 0.2)
    ended = [
        exited(shutting_down(rank(n, inside=(all_reduce(11, done=True, t=T - 1.2),))), 0, T + 0.05) for n in (1, 2)
    ]
    at = held.collectives[-1].location
    assert at is not None
    under = SourceLine(at.file, at.line, "dist.barrier()", conditions=(Condition(at.line - 1, "is_main_process()"),))
    # It is in what another function calls below that condition: the workers may have left without their part of it.
    serves = Location(TRAIN, 139, "main")
    assert held.error is not None
    frames = f'  File "{serves.file}", line {serves.line}, in main\n  File "{at.file}", line {at.line}, in serve\n'
    serving = dataclasses.replace(held, error=dataclasses.replace(held.error, traceback=frames))
    of_master = (
        SourceLine(at.file, at.line, "dist.barrier()"),
        SourceLine(serves.file, serves.line, "serve()", conditions=(Condition(138, "rank == 0"),)),
    )
    return {
        "early-exit-of-those-who-were-right": (
            dataclasses.replace(case(held, *ended), source=(under,)),
            Expected("SL408", (0,), place(at), confidence="low", mentions=("`is_main_process()`", "ranks 1 and 2")),
        ),
        "early-exit-of-workers-or-a-master-too-many": (
            dataclasses.replace(case(serving, *ended), source=of_master),
            Expected("SL408", location=place(at), secondary=(0,), confidence="low", mentions=("who is wrong",)),
        ),
    }


def _outside() -> Golden:
    connected = Kernel("S", "sk_wait_data", "recvfrom", "socket:[98311]", peer=Endpoint("connection", "10.0.0.5:443"))
    locked = Kernel(
        "S",
        "locks_lock_inode_wait",
        "flock",
        "/data/index.lock",
        peer=Endpoint("file lock", processes=(Process(77, "python"),)),
    )
    nfs = Kernel(
        "D", "rpc_wait_bit_killable", "openat", "/mnt/nfs/ckpt.pt", filesystem="nfs4", mount="/mnt/nfs",
        beside=("rsync (pid 812)",),
    )  # fmt: skip
    native = dataclasses.replace(
        stack(4102, Location("libcuda.so.1", 0, "cuCtxSynchronize"), Location("libtorch_cuda.so", 0, "at::item"), STEP),
        name="", native=True,
    )  # fmt: skip
    spinning = elsewhere(2, LOCKED, STEP)
    group = ProcessGroup("5", (0, 1, 2, 3))
    full = dataclasses.replace(
        elsewhere(2, LOCKED, in_torch("all_reduce"), STEP, before=()),
        overwritten=True,
        recording=False,
    )
    return {
        "hang-connection": (
            among(elsewhere(2, connected, STEP)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("on a connection to 10.0.0.5:443",)),
        ),
        "hang-file-lock": (
            among(elsewhere(2, locked, STEP)),
            Expected(
                "SL301", (2,), place(STEP), conclusive=False, mentions=("flock() on /data/index.lock: held by python",)
            ),
        ),
        "hang-mount-that-others-wait-for": (
            among(elsewhere(2, nfs, STEP)),
            Expected("SL306", (2,), place(STEP), conclusive=False, mentions=("on /mnt/nfs (nfs4)", "rsync (pid 812)")),
        ),
        "hang-native-call": (
            among(dataclasses.replace(spinning, stacks=(*spinning.stacks, native))),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("cuCtxSynchronize (libcuda.so.1)",)),
        ),
        # Its recorder had no room for what it did in that group, and its own record has ended.
        "hang-recorder-without-room": (
            hang(
                *(waiting(n, call(group="5")) for n in (0, 1)),
                full,
                waiting(3, call(group="5")),
                groups=(world(), group),
            ),
            Expected("SL399", location=place(LOOP), confidence="low", conclusive=False, mentions=("rank 2",)),
        ),
    }


def cases() -> Golden:
    """All of them by name."""
    return {**_locks(), **_batches(), **_one_rank(), **_of_ends(), **_outside()}

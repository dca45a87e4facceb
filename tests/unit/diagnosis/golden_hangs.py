"""Golden cases of one rank that does not come, for every reason, and in every shape of waiting."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    BUSY,
    COMPUTING,
    FETCH,
    FOR_CHILD,
    IDLE,
    IN_D,
    INIT,
    ITEM,
    LOADER_HERE,
    LOADER_WAIT,
    LOCKED,
    POLLING,
    READING,
    SAVE,
    SETUP,
    STOPPED,
    call,
    done,
    elsewhere,
    hang,
    in_cpp,
    in_torch,
    library,
    loader_worker,
    python,
    recv,
    send,
    stack,
    waiting,
    world,
)
from scenes import DATA, LOOP, MODEL, STEP, TORCH, TRAIN, T

from safelaunch.model import (
    Case,
    Child,
    Collective,
    Endpoint,
    Kernel,
    Location,
    Phase,
    ProcessGroup,
    RankFacts,
    SourceLine,
    Stack,
)

GUARDED = "with self.guard:"
Golden = dict[str, tuple[Case, Expected]]

DOWNLOAD = Location(DATA, 77, "download")
TOKENIZE = Location(DATA, 52, "tokenize")
EVALUATE = Location(TRAIN, 140, "evaluate")
WRITING = Kernel("S", "anon_pipe_write", "write", "pipe:[56737]", peer=Endpoint("pipe", processes=(python(2),)))


def among(culprit: RankFacts, size: int = 4) -> Case:
    """All other ranks wait for the culprit in the world's all_reduce #12."""
    return hang(*(culprit if n == culprit.rank else waiting(n, call(size=size)) for n in range(size)))


def _away() -> Golden:
    joins = elsewhere(2, LOCKED, library("threading.py", 1116, "join"), STEP)
    downloader = stack(9102, DOWNLOAD, library("threading.py", 975, "run"), name="Thread-1")
    requests = (library("socket.py", 706, "readinto"), library("http/client.py", 286, "_read_status"), DOWNLOAD)
    in_pool = (library("threading.py", 320, "wait"), library("multiprocessing/pool.py", 768, "ApplyResult.get"))
    waits = (library("subprocess.py", 1264, "wait"), library("subprocess.py", 349, "call"), STEP)
    inner = library("site-packages/tensorboard/compat/__init__.py", 12, "<module>")
    imports = (inner, Location("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"))
    imports += (library("site-packages/tensorboard/__init__.py", 3, "<module>"), imports[1], STEP)
    named = ("rank 2", "3 peers")
    return {
        "hang-sleep": (
            among(elsewhere(2, ASLEEP, STEP)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=(*named, "sleeps in train_step")),
        ),
        "hang-sleep-of-rank-0-of-two": (
            among(elsewhere(0, ASLEEP, STEP), size=2),
            Expected("SL301", (0,), place(STEP), conclusive=False, mentions=("rank 1 waits for it",)),
        ),
        "hang-socket": (
            among(elsewhere(2, Kernel("S", "sk_wait_data", "recvfrom", "socket:[98311]"), *requests)),
            Expected("SL301", (2,), place(DOWNLOAD), conclusive=False, mentions=("recvfrom() on socket:[98311]",)),
        ),
        "hang-poll": (
            among(elsewhere(2, POLLING, library("selectors.py", 415, "select"), DOWNLOAD)),
            Expected("SL301", (2,), place(DOWNLOAD), conclusive=False, mentions=("polls", "download")),
        ),
        "hang-lock": (
            among(elsewhere(2, LOCKED, STEP)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("waits for a lock",)),
        ),
        "hang-import-of-a-library": (
            among(elsewhere(2, LOCKED, library("threading.py", 320, "wait"), *imports)),
            Expected(
                "SL301",
                (2,),
                place(STEP),
                conclusive=False,
                mentions=("waits for a lock", f"it imports {inner.file}, and is at line 12 of it"),
            ),
        ),
        # It joins a thread of its own: the line that matters is that thread's.
        "hang-thread-of-its-own": (
            among(dataclasses.replace(joins, stacks=(*joins.stacks, downloader))),
            Expected("SL301", (2,), place(DOWNLOAD), conclusive=False),
        ),
        "hang-subprocess": (
            among(elsewhere(2, FOR_CHILD, *waits)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("waits for a process of its own",)),
        ),
        "hang-subprocess-whose-output-nobody-reads": (
            among(elsewhere(2, FOR_CHILD, *waits, children=(Child(5101, "tar", WRITING),))),
            Expected(
                "SL301",
                (2,),
                place(STEP),
                conclusive=False,
                mentions=(
                    "tar (pid 5101) writes into a pipe that the rank itself",
                    "communicate()",
                ),
            ),
        ),
        "hang-pool": (
            among(elsewhere(2, LOCKED, *in_pool, STEP)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("results of a pool",)),
        ),
        "hang-computing": (
            among(elsewhere(2, COMPUTING, TOKENIZE, STEP)),
            Expected("SL301", (2,), place(TOKENIZE), conclusive=False, mentions=("computes in tokenize",)),
        ),
        # Seen from outside, nothing says that it will not come.
        "attach-late-and-at-work": (
            dataclasses.replace(among(elsewhere(2, COMPUTING, TOKENIZE, STEP)), origin="attach"),
            Expected("SL399", location=place(TOKENIZE), confidence="low", mentions=("rank 2 has not come",)),
        ),
        # `if rank == 0: evaluate()`, as a phase of the script's own.
        "hang-phase-of-the-script": (
            among(elsewhere(0, COMPUTING, EVALUATE, phase="evaluate")),
            Expected("SL301", (0,), place(EVALUATE), conclusive=False, mentions=("evaluate",)),
        ),
        "hang-compile": (
            among(
                elsewhere(2, COMPUTING, Location(f"{TORCH}/_dynamo/convert_frame.py", 1, "f"), STEP, phase="compile")
            ),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("compiles for 8 s",)),
        ),
        "hang-two-late-ranks": (
            hang(waiting(0, call()), elsewhere(1, ASLEEP, STEP), elsewhere(2, ASLEEP, DOWNLOAD), waiting(3, call())),
            Expected(
                "SL301", (1, 2), place(STEP), conclusive=False, mentions=("ranks 1 and 2", "2 peers", "data.py:77")
            ),
        ),
    }


def _held() -> Golden:
    regex = library("re/__init__.py", 176, "search")
    reaches = (library("multiprocessing/connection.py", 430, "_poll"), FETCH)
    nfs = Kernel("D", "nfs_wait_bit_killable", "read", "/mnt/nfs/shard-17")
    children = (loader_worker(5101, *IDLE), loader_worker(5102, *BUSY, kernel=nfs))
    loading = elsewhere(2, POLLING, *reaches, *LOADER_WAIT, phase="loader", children=children)
    stuck_in_call = dataclasses.replace(waiting(2, call()), kernel=STOPPED, state="T", beat_age_s=8.0, recorded=None)
    return {
        "hang-stopped": (
            among(elsewhere(2, STOPPED, STEP, beat_age_s=8.0)),
            Expected("SL304", (2,), place(STEP), conclusive=False, mentions=("kill -CONT 4102", "stopped")),
        ),
        "hang-stopped-two": (
            hang(
                *(waiting(n, call()) for n in (0, 3)),
                *(elsewhere(n, STOPPED, STEP, beat_age_s=8.0) for n in (1, 2)),
            ),
            Expected("SL304", (1, 2), place(STEP), conclusive=False, mentions=("2 peers wait for them",)),
        ),
        # Its threads would have to carry the data: those who came later wait for it all the same.
        "hang-stopped-inside": (
            among(stuck_in_call),
            Expected("SL304", (2,), place(LOOP), conclusive=False, mentions=("is stopped",)),
        ),
        "hang-gil": (
            among(elsewhere(2, COMPUTING, regex, TOKENIZE, STEP, beat_age_s=7.9)),
            Expected("SL305", (2,), place(TOKENIZE), conclusive=False, mentions=("GIL", "8 s")),
        ),
        # In C that sleeps: the state is S, and only the beat tells that nobody else runs.
        "hang-gil-asleep": (
            among(elsewhere(2, ASLEEP, Location(MODEL, 40, "forward"), STEP, beat_age_s=7.9)),
            Expected("SL305", (2,), (MODEL, 40), conclusive=False, mentions=("GIL",)),
        ),
        "hang-uninterruptible": (
            among(elsewhere(2, IN_D, SAVE)),
            Expected(
                "SL306",
                (2,),
                place(SAVE),
                conclusive=False,
                mentions=("uninterruptible", "openat() on /mnt/nfs/ckpt/step-11.pt", "rpc_wait_bit_killable"),
            ),
        ),
        "hang-uninterruptible-loader-worker": (
            among(loading),
            Expected(
                "SL306",
                (2,),
                place(ITEM),
                conclusive=False,
                mentions=("read() on /mnt/nfs/shard-17", "pid 5102", "nfs_wait_bit_killable"),
            ),
        ),
    }


def _loaders() -> Golden:
    workers = [loader_worker(5100 + n, *IDLE) for n in range(4)]
    workers[2] = loader_worker(5102, *BUSY, kernel=READING)
    waits = elsewhere(2, POLLING, *LOADER_WAIT, phase="loader", children=tuple(workers))
    idle = tuple(loader_worker(5100 + n, *IDLE) for n in range(2))
    unseen = tuple(dataclasses.replace(one, stack=None) for one in idle)
    unseen_at_a_lock = dataclasses.replace(loader_worker(5102, *BUSY, kernel=LOCKED), stack=None)
    issued = call(seq=12, issued=True, t=T)
    last = dataclasses.replace(done(issued), issued=True)
    beside = stack(9102, DOWNLOAD, library("threading.py", 975, "run"), name="journal")

    def at_a_lock(kernel: Kernel, *threads: Stack) -> RankFacts:
        facts = elsewhere(
            2, POLLING, *LOADER_WAIT, phase="loader", children=(loader_worker(5102, *BUSY, kernel=kernel),)
        )
        return dataclasses.replace(facts, stacks=(*facts.stacks, *threads))

    return {
        "hang-loader-of-the-rank-itself": (
            among(elsewhere(3, READING, *LOADER_HERE, phase="loader")),
            Expected("SL307", (3,), place(ITEM), conclusive=False, mentions=("DataLoader", "read() on /data/shard-17")),
        ),
        "hang-loader-worker": (
            among(waits),
            Expected(
                "SL307",
                (2,),
                place(ITEM),
                conclusive=False,
                mentions=("pid 5102", "read() on /data/shard-17", f"{FETCH.file}:{FETCH.line}"),
            ),
        ),
        # A worker has none of the threads that could give back what they held as it was forked.
        "hang-loader-worker-at-a-lock": (
            dataclasses.replace(among(at_a_lock(LOCKED, beside)), source=(SourceLine(ITEM.file, ITEM.line, GUARDED),)),
            Expected(
                "SL307",
                (2,),
                place(ITEM),
                conclusive=False,
                mentions=("whose worker waits for the lock `self.guard`", "thread journal of the rank", DOWNLOAD.file),
            ),
        ),
        "hang-loader-worker-at-a-lock-of-an-unknown-line": (
            among(at_a_lock(LOCKED)),
            Expected(
                "SL307", (2,), place(ITEM), conclusive=False, mentions=("whose worker waits for a lock", "forked")
            ),
        ),
        # Where py-spy may not look, the kernel still shows that this worker waits for no index: those poll.
        "hang-loader-worker-at-a-lock-that-no-stack-shows": (
            among(dataclasses.replace(waits, children=(*unseen[:1], unseen_at_a_lock, *unseen[1:]))),
            Expected("SL307", (2,), place(FETCH), conclusive=False, mentions=("pid 5102", "lock", "py-spy dump")),
        ),
        "hang-loader-workers-idle-that-no-stack-shows": (
            among(dataclasses.replace(waits, children=unseen)),
            Expected("SL307", (2,), place(FETCH), conclusive=False, mentions=("none of them holds the batch",)),
        ),
        "hang-loader-workers-idle": (
            among(dataclasses.replace(waits, children=idle)),
            Expected("SL307", (2,), place(FETCH), conclusive=False, mentions=("none of them holds the batch",)),
        ),
        # It has issued #12, whose data its library moves without it, and then asked for a batch; its peers are in #13.
        "hang-loader-after-issued-collective": (
            hang(
                *(waiting(n, done(issued), call(seq=13)) for n in range(3)),
                elsewhere(3, READING, *LOADER_HERE, phase="loader", before=(done(call(), 11), last)),
            ),
            Expected("SL307", (3,), place(ITEM), conclusive=False, mentions=("wait for it in all_reduce #13",)),
        ),
        "hang-checkpoint": (
            among(
                elsewhere(
                    0,
                    Kernel("S", "", "fsync", "/ckpt/step-11.pt"),
                    Location(f"{TORCH}/serialization.py", 890, "save"),
                    SAVE,
                    phase="checkpoint save",
                )
            ),
            Expected(
                "SL308", (0,), place(SAVE), conclusive=False, mentions=("checkpoint save for 8 s", "/ckpt/step-11.pt")
            ),
        ),
        "hang-checkpoint-load": (
            among(
                elsewhere(
                    1, READING, Location(f"{TORCH}/serialization.py", 1500, "load"), SETUP, phase="checkpoint load"
                )
            ),
            Expected("SL308", (1,), place(SETUP), conclusive=False, mentions=("checkpoint load",)),
        ),
    }


def _init() -> Golden:
    entering = call("init_process_group", 1, group="init", at=INIT)
    late = elsewhere(2, POLLING, library("ssl.py", 1134, "read"), SETUP, before=())
    groups = (ProcessGroup("init", (0, 1, 2, 3)),)
    making = call("new_group", 1, group="new_group #1", at=INIT)
    before = (done(call(), 11),)
    return {
        "hang-init": (
            hang(*(waiting(n, entering) for n in (0, 1)), late, waiting(3, entering), groups=groups),
            Expected("SL309", (2,), place(SETUP), conclusive=False, mentions=("wait for it in init_process_group",)),
        ),
        "hang-init-of-two": (
            hang(
                waiting(0, entering), elsewhere(1, ASLEEP, SETUP, before=()), late, waiting(3, entering), groups=groups
            ),
            Expected("SL309", (1, 2), place(SETUP), conclusive=False, mentions=("ranks 1 and 2",)),
        ),
        "hang-init-stopped": (
            hang(
                waiting(0, entering),
                waiting(1, entering),
                elsewhere(2, STOPPED, SETUP, before=(), beat_age_s=8.0),
                waiting(3, entering),
                groups=groups,
            ),
            Expected("SL304", (2,), place(SETUP), conclusive=False),
        ),
        # Of ranks that somebody else starts, one that is not known need not be on another node.
        "hang-init-joined": (
            _joined(waiting(0, entering), groups=groups),
            Expected(
                "SL310",
                location=place(INIT),
                confidence="low",
                mentions=("ranks 1-3 have not joined on this node", "or not started", "were started, and where"),
            ),
        ),
        "hang-call-joined": (
            _joined(waiting(0, call()), waiting(1, call()), groups=groups),
            Expected(
                "SL310",
                location=place(LOOP),
                confidence="low",
                mentions=("ranks 2 and 3 have not joined on this node", "a process of this node that is not watched"),
            ),
        ),
        "hang-new-group": (
            hang(
                *(waiting(n, *before, making) for n in (0, 1)),
                elsewhere(2, ASLEEP, STEP),
                waiting(3, *before, making),
                groups=(world(), ProcessGroup("new_group #1", (0, 1, 2, 3))),
            ),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("new_group",)),
        ),
    }


def _joined(*ranks: RankFacts, groups: tuple[ProcessGroup, ...]) -> Case:
    return dataclasses.replace(hang(*ranks, groups=(*groups, world())), world_size=4, origin="joined")


def _shapes() -> Golden:
    pair = ProcessGroup("3", (2, 3))
    in_pair = call(seq=5, group="3", size=2)
    busy = [elsewhere(n, COMPUTING, STEP) for n in range(2)]
    grid = (world(), *(ProcessGroup(n, r) for n, r in (("1", (0, 1)), ("2", (2, 3)), ("3", (0, 2)), ("4", (1, 3)))))
    inner = ProcessGroup("5", (0, 1, 2))
    asleep = elsewhere(3, ASLEEP, STEP, before=())
    of_three = call(seq=4, group="5", size=3)
    steps = [done(call(seq=284, group="6", size=2)), call(seq=290, group="6", size=2)]
    gets_on = dataclasses.replace(waiting(1, *steps), collectives=(steps[0],), quiet_s=0.3)
    getting_on = (dataclasses.replace(elsewhere(0, ASLEEP, STEP, before=steps[:1]), quiet_s=0.3), gets_on)
    sends = dataclasses.replace(waiting(1, send(0, size=2)), kernel=LOCKED)
    return {
        "hang-subgroup": (
            hang(
                *busy,
                waiting(2, in_pair),
                elsewhere(3, ASLEEP, STEP, before=(done(in_pair, 4),)),
                groups=(world(), pair),
            ),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("rank 2 waits for it",)),
        ),
        # Ranks 0 and 1 get on: the recorder of rank 1 was read a moment after its own record, in its next step.
        "hang-subgroup-beside-one-that-gets-on": (
            hang(
                *getting_on,
                waiting(2, in_pair),
                elsewhere(3, ASLEEP, STEP, before=(done(in_pair, 4),)),
                groups=(world(), pair, ProcessGroup("6", (0, 1))),
            ),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("rank 2 waits for it",)),
        ),
        # Rows and columns: 2 waits in its row and 1 in its column for 3; 0 waits for 1.
        "hang-several-groups": (
            hang(
                waiting(0, call(seq=5, group="1", size=2)),
                waiting(1, call(seq=7, group="4", size=2)),
                waiting(2, call(seq=5, group="2", size=2)),
                elsewhere(
                    3, ASLEEP, STEP, before=(done(call(seq=6, group="4", size=2)), done(call(seq=4, group="2", size=2)))
                ),
                groups=grid,
            ),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("2 peers",)),
        ),
        "hang-message-chain": (
            hang(waiting(0, recv(2)), waiting(1, recv(2)), waiting(2, recv(3)), asleep),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("rank 2 waits for it in recv",)),
        ),
        "hang-message-below-a-collective": (
            hang(waiting(0, of_three), waiting(1, of_three), waiting(2, recv(3)), asleep, groups=(world(), inner)),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("rank 2 waits for it in recv",)),
        ),
        "hang-send-without-receiver": (
            hang(elsewhere(0, ASLEEP, STEP, before=()), sends),
            Expected("SL301", (0,), place(STEP), conclusive=False, mentions=("rank 1 waits for it in send to rank 0",)),
        ),
        # DDP's backward: its all_reduce is begun by C++, and Python's record ends before it.
        "hang-collective-of-cpp": (
            hang(
                *(in_cpp(waiting(n, call(at=None))) for n in (0, 1)),
                elsewhere(2, ASLEEP, STEP),
                in_cpp(waiting(3, call(at=None))),
            ),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("3 peers wait for it in all_reduce #12",)),
        ),
        "hang-collective-of-cpp-without-any-of-python": (
            hang(
                *(_only_recorded(in_cpp(waiting(n, call(at=None)))) for n in (0, 1, 2)),
                _only_recorded(elsewhere(3, READING, *LOADER_HERE, phase="loader")),
            ),
            Expected("SL307", (3,), place(ITEM), conclusive=False, mentions=("3 peers wait for it in all_reduce #12",)),
        ),
        "hang-late-rank-of-a-larger-job": (
            hang(
                *(waiting(n, call(size=8)) for n in (0, 1)),
                elsewhere(2, ASLEEP, STEP),
                waiting(3, call(size=8)),
                world_size=8,
            ),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("3 peers",)),
        ),
        **_threads(),
    }


def _only_recorded(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(facts, collectives=())


def _threads() -> Golden:
    """Ranks with a second thread that makes collectives."""
    main = stack(4102, library("threading.py", 1116, "join"), FETCH)
    second = stack(4102, STEP, library("threading.py", 975, "run"), thread=9102, name="Thread-1")
    from_thread: tuple[Collective, ...] = (dataclasses.replace(done(call(), 11), thread=9102),)
    culprit = elsewhere(2, LOCKED, before=from_thread)
    helper = dataclasses.replace(call("all_gather", 3, group="7", at=SAVE), thread=9103)
    background = ProcessGroup("7", (0, 1, 2, 3))
    sleeper = elsewhere(3, ASLEEP, STEP, before=(done(call(), 11), helper))
    in_helper = stack(4103, in_torch("all_gather"), SAVE, thread=9103, name="Thread-2")
    return {
        "hang-collectives-of-a-second-thread": (
            among(dataclasses.replace(culprit, stack=second, stacks=(main, second))),
            Expected("SL301", (2,), place(STEP), conclusive=False),
        ),
        # A helper that waits in a background group does not excuse the main thread.
        "hang-beside-a-background-group": (
            hang(
                *(waiting(n, call()) for n in range(3)),
                dataclasses.replace(
                    sleeper, stacks=(*sleeper.stacks, in_helper), phases=(Phase("async save", T, thread=9103),)
                ),
                groups=(world(), background),
            ),
            Expected("SL301", (3,), place(STEP), conclusive=False, mentions=("sleeps",)),
        ),
    }


def cases() -> Golden:
    """All of them by name."""
    return {**_away(), **_held(), **_loaders(), **_init(), **_shapes()}

"""Golden cases that further clues decide: which exception they are handling, what they
have passed by, and where nobody waits for anybody."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    BARRIER,
    LOCKED,
    READING,
    call,
    done,
    elsewhere,
    hang,
    library,
    python,
    stack,
    waiting,
)
from scenes import GLOO_RESET, LOOP, TRAIN, T, all_reduce, case, exited, lost_peer, rank

from safelaunch.model import Case, Condition, Endpoint, Kernel, Location, Process, PyError, RankFacts, SourceLine, Stack

Golden = dict[str, tuple[Case, Expected]]

UPLOAD = Location(TRAIN, 151, "upload")
READ = Location(TRAIN, 48, "read_shard")
EVALUATE = Location(TRAIN, 140, "evaluate")
CALLS_IT = Location(TRAIN, 62, "main")
SYNCED = Location(TRAIN, 64, "main")
FAILED = Location(TRAIN, 33, "tokenize")
RECEIVE = Location("/home/ada/project/pipeline.py", 28, "take_over")
NO_LABELS = PyError("KeyError", "'labels'", "", T, FAILED)


def _without_waits() -> Golden:
    def finished(number: int, *threads: Location) -> RankFacts:
        facts = elsewhere(number, LOCKED, library("threading.py", 1583, "_shutdown"))
        others = tuple(
            stack(
                9100 + place, library("threading.py", 327, "wait"), library("queue.py", 171, "get"), at, name="uploader"
            )
            for place, at in enumerate(threads)
        )
        return dataclasses.replace(facts, ended=True, stacks=(*facts.stacks, *others))

    def reading(number: int, kernel: Kernel = READING, **used: object) -> RankFacts:
        facts = elsewhere(number, dataclasses.replace(kernel, cpu_s=0.0, io_bytes=0, since_s=5.0, **used), READ)  # type: ignore[arg-type]
        return dataclasses.replace(facts, earlier=facts.stack)

    mounted = dataclasses.replace(READING, filesystem="nfs4", mount="/data", file="/data/shard-17")
    return {
        "hang-after-the-end": (
            hang(exited(rank(0), 0), finished(1, UPLOAD)),
            Expected(
                "SL315",
                (1,),
                place(UPLOAD),
                confidence="medium",
                conclusive=False,
                mentions=("thread uploader", "a queue"),
            ),
        ),
        "hang-after-the-end-of-one-that-is-waited-for": (
            hang(waiting(0, call(size=3)), finished(1, UPLOAD), waiting(2, call(size=3))),
            Expected(
                "SL301",
                (1,),
                place(UPLOAD),
                conclusive=False,
                mentions=("rank 1 has come to the end of its program", "thread uploader still runs"),
            ),
        ),
        # One of them still works: it is not known whether the other holds up anything.
        "hang-after-the-end-of-one-rank": (
            hang(finished(0, UPLOAD), elsewhere(1, ASLEEP, EVALUATE)),
            Expected("SL399", confidence="low", conclusive=False),
        ),
        "hang-dead-mount": (
            hang(*(reading(number, mounted) for number in range(3))),
            Expected("SL316", (), place(READ), conclusive=False, mentions=("ranks 0-2", "/data", "nfs4")),
        ),
        "hang-reads-slowly": (
            hang(
                reading(0, mounted),
                dataclasses.replace(
                    reading(1), kernel=dataclasses.replace(mounted, cpu_s=0.0, io_bytes=9 << 20, since_s=5.0)
                ),
            ),
            Expected("SL399", confidence="low", conclusive=False),
        ),
    }


def _handled() -> Golden:
    def handles(facts: RankFacts, error: PyError = NO_LABELS) -> RankFacts:
        return dataclasses.replace(facts, handling=error)

    apart = (waiting(0, call()), handles(waiting(1, call("barrier", at=BARRIER))))
    gave_up = PyError("RuntimeError", GLOO_RESET, "", T, LOOP)
    lost = (lost_peer(rank(0)), lost_peer(rank(1), message=GLOO_RESET))
    alive = dataclasses.replace(rank(2, inside=(all_reduce(11, done=True, t=T - 1.2),)), handling=NO_LABELS)
    return {
        "hang-barrier-in-a-handler": (
            hang(*apart),
            Expected(
                "SL302", (1,), place(FAILED), confidence="medium", conclusive=True, mentions=("KeyError: 'labels'",)
            ),
        ),
        # `__exit__` makes a barrier: the exception that is under way there is the cause, and nobody has seen it.
        "hang-barrier-of-a-named-rank-in-its-clean-up": (
            hang(*(waiting(n, call()) for n in range(3)), handles(waiting(3, call("barrier", at=BARRIER)))),
            Expected(
                "SL302",
                (3,),
                place(BARRIER),
                conclusive=True,
                mentions=("rank 3 is handling KeyError: 'labels'", "`__exit__`"),
            ),
        ),
        # What all ranks handle (`except ImportError: main()`) has led none of them away from its peers.
        "hang-barrier-where-all-handle": (
            hang(*(handles(waiting(n, call())) for n in range(3)), handles(waiting(3, call("barrier", at=BARRIER)))),
            Expected("SL302", (3,), place(BARRIER), conclusive=True, mentions=("rank 3 makes barrier #12",)),
        ),
        # The handler of a lost connection is where its peers' trouble has led it.
        "hang-handles-a-lost-peer": (
            hang(apart[0], handles(apart[1], gave_up)),
            Expected("SL302", (), place(LOOP), confidence="medium", conclusive=True),
        ),
        "hang-sleeps-in-a-handler": (
            hang(*(waiting(number, call()) for number in range(3)), handles(elsewhere(3, ASLEEP, UPLOAD))),
            Expected("SL301", (3,), place(UPLOAD), conclusive=False, mentions=("is handling KeyError",)),
        ),
        "crash-beside-a-handler": (
            case(*lost, alive, world_size=3),
            Expected(
                "SL401", (2,), place(FAILED), secondary=(0, 1), confidence="medium", mentions=("KeyError: 'labels'",)
            ),
        ),
    }


def _passed_by() -> Golden:
    below = SourceLine(TRAIN, CALLS_IT.line, loops=((58, 66),), conditions=(Condition(61, "rank == 0"),))
    behind = SourceLine(TRAIN, SYNCED.line, loops=((58, 66),))
    other = SourceLine(TRAIN, SYNCED.line, loops=((58, 66),), conditions=(Condition(61, "rank == 0", holds=False),))

    def inside(number: int, op: str, *frames: Location, step: int = 11) -> RankFacts:
        facts = waiting(number, done(call(), 11), call(op, at=frames[0]))
        own = stack(facts.pid, *facts.stack.frames[:1], *frames)  # type: ignore[union-attr]
        return dataclasses.replace(facts, stack=own, stacks=(own,), step=step)

    first = inside(0, "all_reduce", EVALUATE, CALLS_IT)
    later = inside(1, "broadcast", SYNCED)
    return {
        "hang-main-rank-evaluates": (
            hang(first, later, source=(below, behind)),
            Expected("SL302", (0,), place(EVALUATE), confidence="medium", conclusive=True, mentions=("`rank == 0`",)),
        ),
        "hang-main-rank-evaluates-in-another-round": (
            hang(first, inside(1, "broadcast", SYNCED, step=10), source=(below, behind)),
            Expected("SL302", (), place(EVALUATE), confidence="medium", conclusive=True),
        ),
        "hang-each-branch-of-its-own": (
            hang(first, later, source=(below, other)),
            Expected("SL302", (), place(EVALUATE), confidence="medium", conclusive=True),
        ),
    }


def _gone_on() -> Golden:
    """Of those who are right, one is still inside the call, and the other has gone on from it."""
    average, share, loop = (
        Location(TRAIN, line, name) for line, name in ((20, "average"), (24, "share"), (31, "step"))
    )
    source = (
        SourceLine(TRAIN, 31, conditions=(Condition(30, "i % every == 0"),)),
        SourceLine(TRAIN, 33, conditions=(Condition(30, "i % every == 0", holds=False),)),
        SourceLine(TRAIN, 20),
        SourceLine(TRAIN, 24),
    )

    def at(number: int, own: Location, from_line: int, *calls: object) -> RankFacts:
        facts = waiting(number, *calls)  # type: ignore[arg-type]
        seen = stack(facts.pid, *facts.stack.frames[:1], own, dataclasses.replace(loop, line=from_line))  # type: ignore[union-attr]
        return dataclasses.replace(facts, stack=seen, stacks=(seen,))

    averaged = [done(call(at=average), seq) for seq in (9, 10, 11)]
    shared = call("broadcast", at=share, peer=0)
    return {
        "hang-one-goes-on-as-before": (
            hang(
                at(0, share, 31, *averaged, shared),
                at(1, average, 33, *averaged, call(at=average)),
                at(2, average, 33, *averaged[1:], done(shared), call(seq=13, at=average)),
                source=source,
            ),
            Expected("SL302", (1,), place(average), conclusive=True, mentions=("all_reduce #12", "broadcast #12")),
        ),
    }


def _store() -> Golden:
    asks = Kernel("S", "do_sys_poll", "poll", "socket:[98311]", peer=Endpoint("store", "127.0.0.1:29500"))

    def asking(number: int, own: str, *wanted: str) -> RankFacts:
        """Has set its key of each round before, and this one now, and waits for these."""
        facts = elsewhere(number, asks, READ, phase=f"store.wait({wanted[0]})")
        before = tuple(f"shard/{each}/{number}" for each in range(8, 11))
        return dataclasses.replace(facts, store_keys=(*before, *filter(None, [own])), store_wants=wanted)

    def looking_up(number: int, key: str) -> RankFacts:
        return dataclasses.replace(elsewhere(number, asks, READ, phase=f"store.get({key})"), store_wants=(key,))

    return {
        "hang-for-a-key-that-nobody-sets": (
            hang(
                waiting(0, call(size=3)),
                *(looking_up(number, "lr/39") for number in (1, 2)),
            ),
            Expected(
                "SL311",
                (),
                place(READ),
                confidence="medium",
                conclusive=False,
                mentions=("ranks 1 and 2 wait in store.get(lr/39)", "rank 0 waits"),
            ),
        ),
        "hang-all-for-keys-of-their-own": (
            hang(*(asking(number, f"shard/11/{number}", f"shard/11/{(number + 1) % 3}") for number in range(3))),
            Expected("SL399", confidence="low", conclusive=False),
        ),
        "hang-all-for-keys-that-nobody-has-set": (
            hang(*(asking(number, "", "shard/11/3") for number in range(3))),
            Expected("SL399", (), place(READ), confidence="low", conclusive=False, mentions=("shard/11/3",)),
        ),
        "hang-one-has-passed-a-key-by": (
            hang(
                *(asking(number, f"shard/11/{number}", "shard/11/2") for number in range(2)),
                asking(2, "shard/12/2", "shard/12/0", "shard/12/1"),
            ),
            Expected(
                "SL311",
                (2,),
                place(READ),
                confidence="medium",
                conclusive=False,
                mentions=("rank 2 has set shard/12/2, and not shard/11/2",),
            ),
        ),
        "hang-for-a-key-that-another-does-not-need": (
            hang(
                dataclasses.replace(waiting(0, call(size=3)), store_keys=("lr/35", "lr/36", "lr/37")),
                looking_up(1, "lr/38"),
                waiting(2, call(size=3)),
            ),
            Expected("SL311", (), place(READ), confidence="medium", conclusive=False, mentions=("lr/38",)),
        ),
        # One rank alone has always set such keys, and has gone on without this one.
        "hang-for-a-key-that-one-always-sets": (
            hang(
                dataclasses.replace(waiting(0, call(size=3)), store_keys=("lr/35", "lr/36", "ready", "lr/37")),
                *(looking_up(number, "lr/38") for number in (1, 2)),
            ),
            Expected(
                "SL311", (0,), place(LOOP), confidence="medium", conclusive=False, mentions=("lr/37", "not lr/38")
            ),
        ),
        "hang-for-a-key-of-a-late-rank": (
            hang(
                waiting(0, call(size=3)),
                looking_up(1, "lr/39"),
                elsewhere(2, ASLEEP, UPLOAD),
            ),
            Expected("SL301", (2,), place(UPLOAD), conclusive=False, mentions=("rank 1 waits in store.get(lr/39)",)),
        ),
    }


def _between_ranks() -> Golden:
    def flock(holder: int) -> Kernel:
        return Kernel(
            "S",
            "locks_lock_inode_wait",
            "flock",
            "/data/index",
            peer=Endpoint("file lock", processes=(python(holder),)),
        )

    pipe = Kernel("S", "pipe_read", "read", "pipe:[77]", peer=Endpoint("pipe", processes=(python(0),)))
    of_a_tool = Endpoint("pipe", processes=(Process(7001, "indexer"),))
    queued = Endpoint("connection", "127.0.0.1:9000", (python(0),), accepted=False)
    asks = Kernel("S", "", "recvfrom", "socket:[88]", peer=queued)
    answered = Endpoint("connection", "127.0.0.1:9000", (python(0),), receives=True)
    both_ask = dataclasses.replace(asks, peer=answered)
    serve = Location(TRAIN, 19, "serve")
    lost = PyError("KeyError", "130", "", T - 1, serve)
    answers = stack(9100, Location(TRAIN, 12, "read"), Location(TRAIN, 40, "serve"), name="serve")
    within = SourceLine(TRAIN, BARRIER.line, "dist.barrier()", holds=((68, "self.mutex"),))
    first = waiting(0, call("barrier", at=BARRIER, size=3))
    return {
        "hang-lock-held-in-a-barrier": (
            hang(first, elsewhere(1, flock(0), READ), elsewhere(2, flock(0), READ)),
            Expected(
                "SL311",
                (0,),
                place(BARRIER),
                confidence="medium",
                conclusive=False,
                mentions=("lock on /data/index",),
            ),
        ),
        "hang-lock-of-a-rank-that-sleeps": (
            hang(first, elsewhere(1, flock(2), READ), elsewhere(2, ASLEEP, UPLOAD)),
            Expected("SL301", (2,), place(UPLOAD), conclusive=False, mentions=("in flock() on",)),
        ),
        "hang-server-of-a-waiting-rank": (
            hang(first, elsewhere(1, asks, READ), elsewhere(2, asks, READ)),
            Expected("SL311", (), place(BARRIER), confidence="medium", conclusive=False, mentions=("the other end",)),
        ),
        "hang-both-ends-wait-for-a-word": (
            hang(first, waiting(2, call("barrier", at=BARRIER, size=3)), elsewhere(1, both_ask, RECEIVE)),
            Expected(
                "SL311",
                (),
                place(RECEIVE),
                confidence="medium",
                conclusive=False,
                mentions=("rank 1 and a thread of rank 0", "flushed"),
            ),
        ),
        # It holds the lock that its own answers need, while it waits for those who have asked.
        "hang-server-locked-by-its-main-thread": (
            dataclasses.replace(
                hang(
                    dataclasses.replace(first, stacks=(*first.stacks, answers)),
                    elsewhere(1, asks, READ),
                    elsewhere(2, asks, READ),
                ),
                source=(within, SourceLine(TRAIN, 12, "with self.mutex:")),
            ),
            Expected(
                "SL311",
                (0,),
                place(BARRIER),
                confidence="medium",
                conclusive=False,
                mentions=("waits at", "for `self.mutex`: one written the same way the main thread took"),
            ),
        ),
        "hang-server-that-has-failed": (
            hang(dataclasses.replace(first, lost_thread=lost), elsewhere(1, asks, READ), elsewhere(2, asks, READ)),
            Expected(
                "SL311",
                (0,),
                place(serve),
                confidence="medium",
                conclusive=False,
                mentions=("ended with KeyError: 130",),
            ),
        ),
        "hang-thread-has-failed": (
            hang(waiting(0, call(size=2)), dataclasses.replace(elsewhere(1, LOCKED, READ), lost_thread=lost)),
            Expected("SL301", (1,), place(READ), conclusive=False, mentions=("ended with KeyError: 130, raised at",)),
        ),
        "hang-reads-what-a-process-of-its-own-writes": (
            hang(waiting(0, call(size=2)), elsewhere(1, dataclasses.replace(pipe, peer=of_a_tool), READ)),
            Expected(
                "SL301", (1,), place(READ), conclusive=False, mentions=("indexer (pid 7001)", "waits for a newline")
            ),
        ),
        "hang-pipe-of-a-waiting-rank": (
            hang(waiting(0, call(size=2)), elsewhere(1, pipe, READ)),
            Expected("SL311", (), place(LOOP), confidence="medium", conclusive=False, mentions=("the other end",)),
        ),
    }


def _semaphores() -> Golden:
    """What others wait for at `with sem:` while rank 0 is inside of one: native frames tell what `sem` is."""
    row = Location(TRAIN, 69, "main")

    def at_with(number: int, *native: Location) -> RankFacts:
        facts = elsewhere(number, LOCKED, row)
        inner = dataclasses.replace(stack(facts.pid, Location("libc.so.6", 0, "sem_wait"), *native, row), native=True)
        return dataclasses.replace(facts, stacks=(*facts.stacks, inner))

    def case_of(held: Location, *native: Location, taken: str = "with sem:") -> Case:
        source = (
            SourceLine(TRAIN, row.line, taken),
            SourceLine(TRAIN, held.line, "", holds=((row.line, "sem"),)),
        )
        return hang(first, *(at_with(number, *native) for number in (1, 2)), source=source)

    first = waiting(0, call("barrier", at=BARRIER, size=3))
    library_of = Location("/opt/venv/lib/python3.11/site-packages/posix_ipc.cpython-311-x86_64-linux-gnu.so", 0, "?")
    named = (Location("posix_ipc_module.c", 642, "Semaphore_acquire"), Location("posix_ipc_module.c", 807, "_enter"))
    plain = Location("libpython3.11.so.1.0", 0, "PyThread_acquire_lock_timed")
    sleeping = hang(
        elsewhere(0, ASLEEP, UPLOAD, before=()),
        at_with(1, *named),
        waiting(2, call("barrier", at=BARRIER, size=3)),
        source=case_of(UPLOAD).source,
    )
    in_barrier = Expected(
        "SL311",
        (0,),
        place(BARRIER),
        confidence="medium",
        conclusive=False,
        mentions=("ranks 1 and 2 wait for the named semaphore `sem`, which rank 0 has",),
    )
    return {
        "hang-semaphore-held-in-a-barrier": (case_of(BARRIER, *named), in_barrier),
        "hang-semaphore-of-a-library-without-symbols": (
            case_of(BARRIER, library_of, taken="sem.acquire()"),
            in_barrier,
        ),
        # Whoever has called `acquire` is not seen to have it: then nobody is late either, for all that is known.
        "hang-semaphore-that-nobody-is-seen-to-hold": (
            dataclasses.replace(case_of(BARRIER, *named), source=(SourceLine(TRAIN, row.line, "sem.acquire()"),)),
            Expected("SL399", confidence="low", conclusive=False, mentions=("does not say for whom they wait",)),
        ),
        # Written the same way, `sem` is a lock of `threading`: each process has its own.
        "hang-lock-written-like-that-of-another-rank": (
            case_of(BARRIER, plain),
            Expected("SL301", (1, 2), place(row), conclusive=False, mentions=("rank 1 waits for a lock",)),
        ),
        # Who has it waits for nobody.
        "hang-semaphore-of-a-rank-that-sleeps": (
            sleeping,
            Expected("SL301", (0,), place(UPLOAD), conclusive=False),
        ),
    }


def _own_waits() -> Golden:
    """What a rank waits for in its own process."""
    polls = Kernel("S", "do_epoll_wait", "epoll_wait")
    report = stack(9102, Location(TRAIN, 18, "Reporter.run"), library("threading.py", 975, "run"), name="reporter")
    hook = Location(TRAIN, 28, "on_grad")
    waits = elsewhere(2, LOCKED, hook)
    source = (
        SourceLine(TRAIN, 28, "with sink.lock: sink.rows.append(row)", holds=((25, "reg.lock"),)),
        SourceLine(TRAIN, 18, "with self.reg.lock:", holds=((16, "self.sink.lock"),)),
    )
    peers = [waiting(number, call(size=3)) for number in (0, 1)]
    fetching = Stack((library("asyncio/streams.py", 750, "readexactly"), FAILED), "asyncio", name="Task-3")
    loop = (library("selectors.py", 468, "select"), library("asyncio/base_events.py", 1915, "_run_once"), READ)
    return {
        "hang-locks-that-were-handed-in": (
            hang(*peers, dataclasses.replace(waits, stacks=(*waits.stacks, report)), source=source),
            Expected(
                "SL301",
                (2,),
                place(hook),
                conclusive=False,
                mentions=("`sink.lock`: one written the same way thread reporter took", "`self.reg.lock`"),
            ),
        ),
        "hang-in-asyncio": (
            hang(*peers, dataclasses.replace(elsewhere(2, polls, *loop), tasks=(fetching,))),
            Expected(
                "SL301",
                (2,),
                place(FAILED),
                conclusive=False,
                mentions=("what its tasks wait for", "its task Task-3 waits in tokenize"),
            ),
        ),
    }


def cases() -> Golden:
    return {
        **_own_waits(),
        **_store(),
        **_between_ranks(),
        **_semaphores(),
        **_without_waits(),
        **_handled(),
        **_passed_by(),
        **_gone_on(),
    }

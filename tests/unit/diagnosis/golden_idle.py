"""Golden cases of ranks that wait for one another outside of torch.distributed, and of nobody in a collective."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import ASLEEP, COMPUTING, condition, elsewhere, hang, library, python, stack
from scenes import TORCH, TRAIN, T

from safelaunch.model import Case, Endpoint, Kernel, Location, Phase, PyError, RankFacts, SourceLine

ASKS = Location(TRAIN, 30, "fetch")
SERVES = Location(TRAIN, 22, "serve")
MEETS = Location(TRAIN, 17, "meet")
WORKS = Location(TRAIN, 55, "work")
LOOKS = Location(TRAIN, 45, "wait_for_data")


def asks(number: int, of: int, receives: bool = False) -> RankFacts:
    """A rank that waits for a line on a connection whose other end another rank has."""
    there = Endpoint("connection", "127.0.0.1:4001", (python(of),), receives=receives)
    return elsewhere(number, Kernel("S", "sk_wait_data", "recvfrom", "socket:[81]", peer=there), ASKS)


def looks(number: int, key: str) -> RankFacts:
    """A rank that looks at a key of the store every 50 ms, and has set those before it."""
    return dataclasses.replace(elsewhere(number, ASLEEP, MEETS), store_polls=(key,), store_keys=(f"{key[:-1]}1",))


def counts(number: int, of: int = 4) -> RankFacts:
    """A rank that looks at the keys of so many ranks, one after the other, and has set its own."""
    polls = tuple(f"actor/{rank}" for rank in range(of))
    return dataclasses.replace(elsewhere(number, ASLEEP, MEETS), store_polls=polls, store_keys=(f"actor/{number}",))


def publishes(number: int, own: str, wanted: str = "manifest/2/2") -> RankFacts:
    """A rank that has set its part, or none, and waits for a key."""
    asked = Kernel("S", "", "poll", "socket:[9]", peer=Endpoint("store", "127.0.0.1:29500"))
    facts = elsewhere(number, asked, MEETS, phase=f"store.get({wanted})")
    return dataclasses.replace(facts, store_keys=tuple(filter(None, ["manifest/1", own])), store_wants=(wanted,))


def sleeps(number: int, *frames: Location, paths: tuple[tuple[str, str], ...] = ()) -> RankFacts:
    """A rank that sleeps there, with the paths that it has names for."""
    return dataclasses.replace(elsewhere(number, ASLEEP, *(frames or (LOOKS,))), looks_at=paths)


def looking_cases() -> dict[str, tuple[Case, Expected]]:
    """All ranks look for a file, or for a lock file to go, and nobody is in a collective."""
    flag = condition(44, "not os.path.exists(flag)")
    loop = SourceLine(TRAIN, LOOKS.line, "time.sleep(0.5)", ((44, 45),), (flag,), ahead=((44, "time.sleep"),))
    leaves = SourceLine(
        TRAIN,
        LOOKS.line,
        "time.sleep(1)",
        ((42, 45),),
        (condition(43, "else: marker.is_file()"),),
        ahead=((43, "time.sleep"),),
    )
    works = dataclasses.replace(loop, ahead=((44, "step"), (44, "time.sleep")))
    baton = (
        Location(f"{TORCH}/utils/file_baton.py", 50, "wait"),
        Location(f"{TORCH}/utils/cpp_extension.py", 2400, "_jit_compile"),
    )
    path, lock = (("flag", "/data/ready"),), (("", "/tmp/ext/lock"),)
    told = Expected(
        "SL317",
        (),
        place(LOOKS),
        confidence="medium",
        conclusive=False,
        mentions=("/data/ready", "not os.path.exists(flag)"),
    )
    return {
        "hang-all-look-for-a-file": (
            hang(*(sleeps(number, paths=path) for number in range(3)), source=(loop,)),
            told,
        ),
        "hang-one-alone-looks-for-a-file": (
            hang(sleeps(0, paths=path), source=(loop,)),
            told,
        ),
        "hang-all-look-for-a-file-in-an-endless-loop": (
            hang(*(sleeps(number) for number in range(2)), source=(leaves,)),
            dataclasses.replace(told, mentions=("`marker.is_file()`",)),
        ),
        "hang-all-wait-for-a-stale-lock": (
            hang(*(sleeps(number, *baton, LOOKS, paths=lock) for number in range(2))),
            dataclasses.replace(told, mentions=("lock file that the build of a C++ extension holds", "/tmp/ext/lock")),
        ),
        # What a loop does besides looking may be its work.
        "hang-all-sleep-in-loops-that-work": (
            hang(*(sleeps(number, paths=path) for number in range(2)), source=(works,)),
            Expected("SL399", confidence="low", conclusive=False),
        ),
        "hang-one-looks-and-one-computes": (
            hang(sleeps(0, paths=path), elsewhere(1, COMPUTING, WORKS), source=(loop,)),
            Expected("SL399", confidence="low", conclusive=False),
        ),
    }


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    lost = PyError("KeyError", "402", "", 0.0, SERVES)
    server = dataclasses.replace(asks(0, 0), lost_thread=lost)
    serves = elsewhere(0, Kernel("S", "ep_poll", "epoll_wait"), SERVES)
    locked = stack(4100, library("asyncio/locks.py", 114, "Lock.acquire"), SERVES, name="Task-6")
    leads = stack(4100, SERVES)
    announced = dataclasses.replace(looks(0, "meet/4"), phases=(Phase("wait for data", T, 600.0),))
    untold = Expected("SL399", confidence="low", conclusive=False)
    idle = Expected("SL317", confidence="low", conclusive=False)
    return looking_cases() | {
        "hang-server-thread-died": (
            hang(server, *(asks(number, 0) for number in (1, 2, 3))),
            Expected("SL317", (0,), place(SERVES), confidence="medium", conclusive=False, mentions=("KeyError: 402",)),
        ),
        "hang-server-task-locked": (
            hang(dataclasses.replace(serves, tasks=(locked,)), asks(1, 0), asks(2, 0)),
            Expected("SL317", (0,), place(SERVES), confidence="medium", conclusive=False),
        ),
        # A service between two requests: ranks wait for work.
        "hang-service-without-requests": (hang(serves, asks(1, 0), asks(2, 0)), untold),
        "hang-service-asked-by-its-clients": (
            hang(server, asks(1, 0, receives=True), asks(2, 0)),
            untold,
        ),
        "hang-not-before-the-expected-end": (
            hang(announced, looks(1, "meet/4"), looks(2, "meet/4")),
            untold,
        ),
        "hang-asks-in-a-circle": (
            hang(asks(0, 1), asks(1, 2), asks(2, 0)),
            dataclasses.replace(idle, location=place(ASKS)),
        ),
        "hang-server-still-computes": (
            hang(elsewhere(0, COMPUTING, WORKS), asks(1, 0), asks(2, 0)),
            untold,
        ),
        # One counts to four in a world of three, and all others wait for what it sets behind that.
        "hang-one-looks-at-keys-and-all-others-ask-for-one": (
            hang(counts(0), publishes(1, "actor/1", "route"), publishes(2, "actor/2", "route")),
            Expected(
                "SL317", (0,), place(MEETS), confidence="medium", conclusive=False, mentions=("actor/3", "for route")
            ),
        ),
        "hang-one-looks-at-keys-that-are-there": (
            hang(counts(0, 3), publishes(1, "actor/1", "route"), publishes(2, "actor/2", "route")),
            dataclasses.replace(idle, location=place(MEETS)),
        ),
        "hang-one-looks-at-keys-and-another-has-its-answer": (
            hang(counts(0), publishes(1, "actor/1", "actor/0"), publishes(2, "actor/2", "route")),
            untold,
        ),
        "hang-looks-at-one-key": (
            hang(*(looks(number, "meet/4") for number in range(3))),
            dataclasses.replace(idle, location=place(MEETS), mentions=("looks again and again for meet/4",)),
        ),
        "hang-looks-at-another-key": (
            hang(*(looks(number, "meet/4") for number in range(3)), looks(3, "meet/2")),
            Expected("SL317", (3,), place(MEETS), confidence="medium", conclusive=False, mentions=("meet/2",)),
        ),
        "hang-two-look-at-two-keys": (
            hang(looks(0, "meet/4"), looks(1, "meet/2")),
            dataclasses.replace(idle, location=place(MEETS)),
        ),
        # The leader looks for the part of each of the others in turn, and they for its answer.
        "hang-looks-for-parts-elsewhere": (
            hang(
                dataclasses.replace(looks(0, "ready/1"), stack=leads, stacks=(leads,)),
                *(looks(n, "ready/0") for n in (1, 2)),
            ),
            dataclasses.replace(idle, location=place(SERVES)),
        ),
        # Nobody of this job has ever set such a key.
        "hang-looks-for-tasks-from-outside": (
            hang(*(dataclasses.replace(looks(number, "task/8"), store_keys=()) for number in range(3))),
            untold,
        ),
        # An actor and a learner, by design: which of them is late their keys do not say.
        "hang-looks-at-keys-of-another-kind": (
            hang(looks(0, "grads/7"), *(looks(number, "weights/8") for number in (1, 2, 3))),
            dataclasses.replace(idle, location=place(MEETS)),
        ),
        "hang-others-look-at-a-key": (
            hang(elsewhere(0, ASLEEP, WORKS), looks(1, "task/8"), looks(2, "task/8")),
            untold,
        ),
        "hang-says-not-what-it-looks-for": (
            hang(dataclasses.replace(looks(0, ""), store_polls=None), looks(1, "meet/4"), looks(2, "meet/4")),
            untold,
        ),
        "hang-one-has-left-out-its-part": (
            hang(publishes(0, "manifest/2/0"), publishes(1, "manifest/2/1"), publishes(2, "")),
            Expected(
                "SL311",
                (2,),
                place(MEETS),
                confidence="medium",
                conclusive=False,
                mentions=("rank 2 has not set manifest/2/2",),
            ),
        ),
        "hang-two-have-left-out-their-parts": (
            hang(publishes(0, "manifest/2/0"), publishes(1, ""), publishes(2, "")),
            dataclasses.replace(untold, location=place(MEETS)),
        ),
        # Nothing says that they wait for each other: data may be late, or a person.
        "hang-all-sleep": (hang(*(elsewhere(number, ASLEEP, WORKS) for number in range(3))), untold),
    }

"""Golden cases of ranks that look again and again for what another one is to do, or ask for it in the store."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import ASLEEP, call, condition, elsewhere, hang, waiting
from scenes import LOOP, TRAIN

from safelaunch.model import Case, Endpoint, Kernel, Location, SourceLine

LOOKS = Location(TRAIN, 55, "main")
ROUND = ((40, 62),)
UNTIL = "not os.path.exists(done)"
AGO = SourceLine(TRAIN, LOOP.line, "dist.all_reduce(g)", loops=ROUND)


def below(text: str, *called: str, until: str = UNTIL) -> SourceLine:
    """The line that sleeps, in a loop below a condition."""
    conditions = (condition(50, text), condition(54, until))
    ahead = tuple((54, name) for name in called or ("time.sleep",))
    return SourceLine(TRAIN, LOOKS.line, "time.sleep(0.05)", (*ROUND, (54, 55)), conditions, ahead=ahead)


def scheduled(*asking: int) -> Case:
    """Rank 0 has published one phase of a schedule, and waits for the ranks that ask for the next one; others wait."""
    asks = Kernel("S", "", "poll", "socket:[9]", peer=Endpoint("store", "127.0.0.1:29500"))
    ranks = [dataclasses.replace(waiting(0, call(size=4)), store_keys=("sched/0.0",))]
    for number in (1, 2, 3):
        asked = elsewhere(number, asks, LOOKS, phase="store.get(sched/1.0)")
        ranks.append(dataclasses.replace(asked, store_wants=("sched/1.0",)))
    return hang(*(facts if facts.rank in (0, *asking) else waiting(facts.rank, call(size=4)) for facts in ranks))


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    first = waiting(0, call(size=3))
    others = elsewhere(1, ASLEEP, LOOKS), elsewhere(2, ASLEEP, LOOKS)

    def looking(line: SourceLine, waits: SourceLine = AGO) -> Case:
        return hang(first, *others, source=(line, waits))

    named = Expected(
        "SL311",
        (0,),
        place(LOOKS),
        confidence="medium",
        conclusive=False,
        mentions=("ranks 1 and 2 wait for the file `done` to be made", "waits for ranks 1 and 2 in", UNTIL),
    )
    of_lock = dataclasses.replace(
        named, mentions=("ranks 1 and 2 wait for the lock file /data/lock to be removed", "`except OSError`")
    )
    tries = dataclasses.replace(below("rank != 0", until="os.path.exists(self.lock)"), caught=((60, "except OSError"),))
    at_a_lock = [dataclasses.replace(facts, looks_at=(("self.lock", "/data/lock"),)) for facts in others]
    late = Expected("SL301", (1, 2), place(LOOKS), conclusive=False)
    return {
        "hang-for-a-key-of-which-one-has-set-the-first": (
            scheduled(1, 2, 3),
            Expected("SL311", (0,), place(LOOP), confidence="medium", conclusive=False, mentions=("(sched/0.0)",)),
        ),
        # Rank 3 has gone on without it: who asks may be ahead of all.
        "hang-for-a-key-that-not-all-others-ask-for": (
            scheduled(1, 2),
            Expected("SL311", (), place(LOOKS), confidence="medium", conclusive=False),
        ),
        "hang-for-a-key-that-one-alone-asks-for": (
            scheduled(1),
            Expected("SL311", (), place(LOOKS), confidence="medium", conclusive=False),
        ),
        "hang-looks-for-a-file-of-rank-0": (looking(below("else: rank == 0")), named),
        "hang-looks-for-a-file-of-the-main-rank": (looking(below("not is_main_process()")), named),
        "hang-looks-where-rank-0-does-not-come": (looking(below("dist.get_rank() != 0")), named),
        "hang-waits-for-the-lock-of-rank-0-to-go": (hang(first, *at_a_lock, source=(tries, AGO)), of_lock),
        # It may do more there than look, or be kept by something else than what rank 0 does.
        "hang-fetches-where-rank-0-does-not-come": (looking(below("rank != 0", "time.sleep", "client.fetch")), late),
        # A condition that takes the next part of a file is none that is looked at again.
        "hang-copies-where-rank-0-does-not-come": (
            looking(below("rank != 0", until="chunk := source.read(4096)")),
            late,
        ),
        "hang-looks-for-a-file-of-anybody": (looking(below("step % 8 == 0")), late),
        "hang-looks-where-rank-1-does-not-come": (looking(below("rank != 1")), late),
    }

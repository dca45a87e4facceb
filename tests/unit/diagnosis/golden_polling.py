"""Golden cases of ranks that look again and again for what another one is to do."""

from __future__ import annotations

from expected import Expected, place
from hang_scenes import ASLEEP, call, elsewhere, hang, waiting
from scenes import LOOP, TRAIN

from safelaunch.model import Case, Location, SourceLine

LOOKS = Location(TRAIN, 55, "main")
ROUND = ((40, 62),)
UNTIL = "not os.path.exists(done)"
AGO = SourceLine(TRAIN, LOOP.line, "dist.all_reduce(g)", loops=ROUND)


def below(text: str, *called: str, until: str = UNTIL) -> SourceLine:
    """The line that sleeps, in a loop below a condition."""
    conditions = ((50, text), (54, until))
    ahead = tuple((54, name) for name in called or ("time.sleep",))
    return SourceLine(TRAIN, LOOKS.line, "time.sleep(0.05)", (*ROUND, (54, 55)), conditions, ahead=ahead)


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    first = waiting(0, call(size=3))
    others = elsewhere(1, ASLEEP, LOOKS), elsewhere(2, ASLEEP, LOOKS)

    def looking(line: SourceLine, waits: SourceLine = AGO) -> Case:
        return hang(first, *others, source=(line, waits))

    named = Expected(
        "SL311", (0,), place(LOOP), confidence="medium", conclusive=False, mentions=("ranks 1 and 2 look", UNTIL)
    )
    late = Expected("SL301", (1, 2), place(LOOKS), conclusive=False)
    return {
        "hang-looks-for-a-file-of-rank-0": (looking(below("else of: rank == 0")), named),
        "hang-looks-for-a-file-of-the-main-rank": (looking(below("not is_main_process()")), named),
        "hang-looks-where-rank-0-does-not-come": (looking(below("dist.get_rank() != 0")), named),
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

"""The golden cases: for each code an incident as it looks in a bundle, and the verdict that a person would give.

`python tests/unit/diagnosis/golden.py` writes them to tests/cases/golden.jsonl. The expectations are written by hand
here; they are never taken from what the rules say.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import golden_anew
import golden_apart
import golden_attach
import golden_bounds
import golden_classes
import golden_clues
import golden_details
import golden_devices
import golden_disagreements
import golden_dumps
import golden_ends
import golden_exits
import golden_habits
import golden_hangs
import golden_idle
import golden_messages
import golden_polling
import golden_reasons
import golden_rounds
import golden_skipped
import golden_slow
import golden_slow_nodes
import golden_stages
import golden_threads
import golden_timeouts
import golden_traps
import golden_unlike
from expected import Expected, place
from hang_scenes import world
from scenes import (
    DATA,
    GLOO_RESET,
    GLOO_SIZE,
    LOOP,
    MODEL,
    NCCL_REMOTE,
    STEP,
    STORE_GONE,
    TORCH,
    TRAIN,
    T,
    aborted_in_collective,
    all_reduce,
    barrier,
    called_exit,
    case,
    crashed,
    exited,
    lost_peer,
    raised,
    rank,
    shutting_down,
)

from safelaunch.codec import to_json
from safelaunch.model import Case, Location, RankFacts

FILE = Path(__file__).resolve().parents[2] / "cases" / "golden.jsonl"


def finished(number: int) -> RankFacts:
    """A rank that ended its program in good order, after its last all_reduce."""
    return shutting_down(rank(number, inside=(all_reduce(11, done=True, t=T - 1.2),)))


FORWARD = Location(MODEL, 40, "forward")
SHARD = Location(DATA, 12, "open_shard")
LINEAR = Location(f"{TORCH}/nn/modules/linear.py", 125, "forward")
APEX = Location(TRAIN, 7, "<module>")
BROKEN = Location("/home/ada/project/config.py", 3, "<module>")
GATHER = Location(TRAIN, 70, "main")


def _exceptions() -> dict[str, tuple[Case, Expected]]:
    nan = raised(rank(2), "ValueError", "loss is nan at step 1840")
    peers = (lost_peer(rank(0)), lost_peer(rank(1), message=GLOO_RESET), rank(3))
    shard = "[Errno 2] No such file or directory: '/data/shard-17'"
    relay = ("RuntimeError", "some rank failed: see its log")
    return {
        "exception-in-one-rank": (
            case(*peers[:2], nan, peers[2]),
            Expected("SL401", (2,), place(STEP), secondary=(0, 1)),
        ),
        # Its interpreter took two seconds to shut down: the victims were gone long before it.
        # Rank 0 makes it for all, and has not come to that yet.
        "exception-in-one-rank-that-misses-a-directory": (
            case(raised(rank(0), "RuntimeError", "Parent directory /ckpt/d20 does not exist."), rank(1), world_size=2),
            Expected("SL401", (0,), place(STEP), mentions=("see who makes that path",)),
        ),
        "exception-victims-exit-first": (
            case(lost_peer(rank(0)), raised(rank(1), "KeyError", "'label'", ended_after=2.0)),
            Expected("SL401", (1,), place(STEP), secondary=(0,)),
        ),
        "exception-still-raising": (
            case(exited(lost_peer(rank(0)), 1), raised(rank(1), "KeyError", "'label'", ended_after=None), rank(2)),
            Expected("SL401", (1,), place(STEP), secondary=(0,)),
        ),
        # Every rank raises the same after an all_reduce of an error flag; only one of them knows why.
        "exception-relayed-by-all": (
            case(
                raised(rank(0), *relay, t=T + 0.01, at=LOOP),
                raised(rank(1), *relay, t=T + 0.03, at=LOOP, chain=("OSError: [Errno 5] Input/output error",)),
                raised(rank(2), *relay, t=T + 0.02, at=LOOP),
                raised(rank(3), *relay, t=T + 0.04, at=LOOP),
            ),
            Expected("SL401", (1,), place(LOOP), secondary=(0, 2, 3), confidence="medium"),
        ),
        "exception-in-two-ranks-alike": (
            case(
                lost_peer(rank(0)),
                raised(
                    rank(1), "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", at=FORWARD
                ),
                lost_peer(rank(2)),
                raised(
                    rank(3),
                    "torch.OutOfMemoryError",
                    "CUDA out of memory. Tried to allocate 2.00 GiB.",
                    t=T + 0.02,
                    at=FORWARD,
                ),
            ),
            Expected("SL401", (1, 3), place(FORWARD), secondary=(0, 2), confidence="medium"),
        ),
        # Rank 3 fails differently from the crowd that follows it.
        "exception-before-a-crowd": (
            case(
                *(
                    raised(rank(n), "AssertionError", "peer sent no batch", t=T + 0.2 + n / 100, at=LOOP)
                    for n in range(3)
                ),
                raised(rank(3), "PermissionError", "[Errno 13] Permission denied: '/data/shard-3'", at=SHARD),
            ),
            Expected("SL401", (3,), place(SHARD), secondary=(0, 1, 2), confidence="medium"),
        ),
        "exception-everywhere": (
            case(*(raised(rank(n), "FileNotFoundError", shard, t=T + n / 100, at=SHARD) for n in range(4))),
            Expected("SL402", location=place(SHARD)),
        ),
        "import-error-in-one-rank": (
            case(
                raised(rank(0, inside=()), "ModuleNotFoundError", "No module named 'apex'", at=APEX),
                *(lost_peer(rank(n, inside=()), t=T + 4, message=STORE_GONE) for n in (1, 2, 3)),
            ),
            Expected("SL409", (0,), place(APEX), secondary=(1, 2, 3)),
        ),
        "import-syntax-error": (
            case(rank(0, inside=()), raised(rank(1, inside=()), "SyntaxError", "'(' was never closed", at=BROKEN)),
            Expected("SL409", (1,), place(BROKEN)),
        ),
    }


def _signals() -> dict[str, tuple[Case, Expected]]:
    killed = exited(rank(1), -9, T)
    aborts = (aborted_in_collective(rank(0)), aborted_in_collective(rank(2)))
    return {
        "killed": (
            case(lost_peer(rank(0)), killed, lost_peer(rank(2)), rank(3)),
            Expected("SL403", (1,), secondary=(0, 2)),
        ),
        "killed-two": (
            case(lost_peer(rank(0)), killed, exited(rank(2), -9, T + 0.1), rank(3)),
            Expected("SL403", (1, 2), secondary=(0,), mentions=("ranks 1 and 2 were killed by SIGKILL",)),
        ),
        "killed-no-oom-counter": (
            case(lost_peer(rank(0)), killed, oom_kills=None),
            Expected("SL403", (1,), secondary=(0,), confidence="medium"),
        ),
        "killed-sigterm": (case(rank(0), exited(rank(1), -15, T)), Expected("SL403", (1,))),
        "out-of-memory": (
            case(killed, lost_peer(rank(3), message=NCCL_REMOTE), oom_kills=1),
            Expected("SL404", (1,), secondary=(3,)),
        ),
        "out-of-memory-two-died-one-counted": (
            case(lost_peer(rank(0)), killed, exited(rank(2), -9, T + 0.2), oom_kills=1),
            Expected("SL404", (1, 2), secondary=(0,), confidence="medium"),
        ),
        "segfault": (
            case(lost_peer(rank(0)), crashed(rank(1), 11, LINEAR, FORWARD, STEP), lost_peer(rank(2))),
            Expected("SL405", (1,), place(FORWARD), secondary=(0, 2)),
        ),
        "segfault-without-python-stack": (
            case(lost_peer(rank(0)), exited(rank(1), -11, T)),
            Expected("SL405", (1,), secondary=(0,)),
        ),
        "abort": (
            case(lost_peer(rank(0)), crashed(rank(1), 6, FORWARD, STEP), lost_peer(rank(2))),
            Expected("SL406", (1,), place(FORWARD), secondary=(0, 2)),
        ),
        "abort-of-peers-follows-a-kill": (
            case(aborts[0], killed, aborts[1]),
            Expected("SL403", (1,), secondary=(0, 2)),
        ),
        # gloo: `terminate called without an active exception` in a process whose program had ended.
        "torn-down": (
            case(*(exited(finished(n), 0) for n in (0, 1, 2)), exited(finished(3), -6)),
            Expected("SL413", (3,)),
        ),
    }


def _exits() -> dict[str, tuple[Case, Expected]]:
    left = exited(finished(1), 0, T + 0.05)
    return {
        "silent-exit": (
            case(lost_peer(rank(0)), exited(called_exit(rank(1), "3"), 3, T + 0.01), lost_peer(rank(2))),
            Expected("SL407", (1,), place(STEP), secondary=(0, 2)),
        ),
        "silent-exit-native": (
            case(lost_peer(rank(0)), exited(rank(1), 255, T), lost_peer(rank(2))),
            Expected("SL407", (1,), secondary=(0, 2), confidence="medium"),
        ),
        # What the exit status says comes from libraries that were torn down; the program had asked for 4.
        "silent-exit-then-abort": (
            case(lost_peer(rank(0)), exited(called_exit(rank(1), "4"), -6, T + 0.4)),
            Expected("SL407", (1,), place(STEP), secondary=(0,)),
        ),
        "early-exit-peers-lose-it": (
            case(lost_peer(rank(0), t=T + 0.06), left, lost_peer(rank(2), t=T + 0.07), rank(3)),
            Expected("SL408", (1,), secondary=(0, 2)),
        ),
        "early-exit-peers-wait": (
            case(rank(0), exited(called_exit(finished(1), "0"), 0, T + 0.05), rank(2), rank(3), groups=(world(),)),
            Expected("SL408", (1,), place(STEP)),
        ),
        "early-exit-of-two": (
            case(rank(0), left, exited(finished(2), 0, T + 0.1), rank(3), groups=(world(),)),
            Expected("SL408", (1, 2), confidence="medium"),
        ),
    }


def _mismatches() -> dict[str, tuple[Case, Expected]]:
    small = rank(1, inside=(all_reduce(11, done=True, t=T - 1.2), all_reduce(numel=10)))
    skipped = rank(2, inside=(all_reduce(11, done=True, t=T - 1.2), barrier()))
    complains = lost_peer(rank(0), message=GLOO_SIZE)
    return {
        "size-mismatch": (
            case(complains, lost_peer(small), lost_peer(rank(2)), rank(3)),
            Expected("SL410", (1,), place(LOOP), secondary=(0, 2)),
        ),
        "size-mismatch-of-two-ranks": (
            case(complains, dataclasses.replace(small, state="R")),
            Expected("SL410", location=place(LOOP), secondary=(0,), confidence="medium"),
        ),
        # NCCL does not complain: a watchdog aborts a rank that may be the innocent one.
        "size-mismatch-watchdog-abort": (
            case(aborted_in_collective(rank(0)), small, rank(2), rank(3)),
            Expected("SL410", (1,), place(LOOP), secondary=(0,)),
        ),
        "operation-mismatch": (
            case(lost_peer(rank(0), message=GLOO_SIZE), rank(1), lost_peer(skipped), rank(3)),
            Expected("SL411", (2,), place(GATHER), secondary=(0,)),
        ),
    }


def _nobody() -> dict[str, tuple[Case, Expected]]:
    return {
        "connection-lost-to-another-node": (
            case(*(lost_peer(rank(n), t=T + n / 100, message=NCCL_REMOTE) for n in range(4)), world_size=16),
            Expected("SL412", secondary=(0, 1, 2, 3), confidence="medium"),
        ),
        # A bundle that was cut short: the exit that opened the incident is not in it.
        "cannot-tell": (case(rank(0), rank(1), blamed=(1,)), Expected("SL499", confidence="low")),
        # Who is not among them may have done what they all met.
        "some-raise-alike-and-one-has-not-spoken": (
            case(rank(0, inside=()), *(raised(rank(n), "OperationalError", "database is locked") for n in (1, 2, 3))),
            Expected(
                "SL499",
                location=place(STEP),
                secondary=(1, 2, 3),
                confidence="low",
                mentions=("ranks 1-3 raised OperationalError: database is locked", "may lie with rank 0"),
            ),
        ),
    }


def golden() -> dict[str, tuple[Case, Expected]]:
    """All golden cases by name."""
    crashes = {
        **_exceptions(),
        **_signals(),
        **_exits(),
        **golden_exits.cases(),
        **_mismatches(),
        **_nobody(),
        **golden_timeouts.cases(),
        **golden_classes.cases(),
    }
    hangs = {**golden_hangs.cases(), **golden_disagreements.cases(), **golden_ends.cases(), **golden_traps.cases()}
    others = (
        golden_attach,
        golden_bounds,
        golden_reasons,
        golden_clues,
        golden_devices,
        golden_dumps,
        golden_habits,
        golden_apart,
        golden_idle,
        golden_messages,
        golden_polling,
        golden_rounds,
        golden_anew,
        golden_details,
        golden_skipped,
        golden_slow,
        golden_slow_nodes,
        golden_stages,
        golden_threads,
        golden_unlike,
    )
    return {**crashes, **hangs, **{name: one for module in others for name, one in module.cases().items()}}


def write() -> None:
    """Write all of them to tests/cases/golden.jsonl. What lies in folders of its own stays as an older version wrote
    it: such a bundle must be read for ever."""
    lines = (
        {"name": name, "case": without_defaults(case), "expected": without_defaults(expected)}
        for name, (case, expected) in golden().items()
    )
    FILE.write_text("".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines))


def without_defaults(value: Any) -> Any:
    """As `to_json`, without the fields that are as by default."""
    if dataclasses.is_dataclass(value):
        fields = [(field.name, getattr(value, field.name), _default(field)) for field in dataclasses.fields(value)]
        return {name: without_defaults(own) for name, own, default in fields if own != default}
    if isinstance(value, (list, tuple)):
        return [without_defaults(item) for item in value]
    if isinstance(value, dict):
        return {str(key): without_defaults(item) for key, item in value.items()}
    return to_json(value)


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


if __name__ == "__main__":
    write()

"""Exceptions of torch whose message does not say which of its reasons holds, or that no peer has any part in."""

from __future__ import annotations

import dataclasses

import pytest
from scenes import C10D, STEP, TORCH, TRAIN, T, case, lost_peer, raised, rank

from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.wording import telling
from safelaunch.model import ProcessGroup, RankFacts

TWICE = (
    "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a "
    "module parameter outside the `forward` function. Please make sure model parameters are not shared. 2) Reused "
    "parameters in multiple reentrant backward passes.\nParameter at index 25 with name layers.3.proj.bias has been "
    "marked as ready twice."
)
NOT_A_MEMBER = "Global rank 0 is not part of group <torch.distributed.distributed_c10d.ProcessGroup object at 0x7f82>"


def raised_in(number: int, kind: str, message: str, file: str, function: str, *, t: float = T) -> RankFacts:
    """A rank with an exception whose innermost frame is torch's."""
    facts = raised(rank(number), kind, message, t=t)
    assert facts.error is not None
    frames = f'  File "{TRAIN}", line {STEP.line}, in {STEP.function}\n  File "{file}", line 331, in {function}\n'
    text = f"Traceback (most recent call last):\n{frames}    raise\n{kind}: {message}\n"
    return dataclasses.replace(facts, error=dataclasses.replace(facts.error, traceback=text))


def test_of_numbered_reasons_the_one_is_told_that_the_traceback_supports() -> None:
    checkpoint = f"{TORCH}/utils/checkpoint.py"

    verdict = diagnose(case(*(raised_in(n, "RuntimeError", TWICE, checkpoint, "backward") for n in range(2))))

    assert verdict.code == "SL402"
    assert "layers.3.proj.bias as ready twice" in verdict.summary
    assert "reentrant checkpoints" in verdict.summary
    assert "use_reentrant=False" in verdict.remedy
    assert "static_graph=True" in verdict.remedy


def test_without_a_reentrant_checkpoint_none_is_told_of() -> None:
    verdict = diagnose(case(rank(0), raised_in(1, "RuntimeError", TWICE, f"{TORCH}/autograd/graph.py", "backward")))

    assert verdict.culprit_ranks == (1,)
    assert "reentrant" not in f"{verdict.summary} {verdict.remedy}"
    assert "static_graph" in verdict.remedy


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (TWICE, "Expected to mark a variable ready only once."),
        (
            "Expected to have finished reduction in the prior iteration before starting a new one. This error says "
            "that your module has unused parameters. You can enable their detection by passing the keyword argument "
            "`find_unused_parameters=True` to the model, and by\nmaking sure of more",
            "Expected to have finished reduction in the prior iteration before starting a new one. This error says "
            "that your module has unused parameters.",
        ),
        ("loss is nan", "loss is nan"),
        ("No. " + "shard " * 40, "No. " + "shard " * 32 + "..."),
    ],
)
def test_a_headline_ends_with_a_whole_sentence(message: str, told: str) -> None:
    assert telling(message) == told


def test_refused_arguments_are_the_fault_of_those_who_gave_them() -> None:
    # Ranks 0 and 1, a group of their own, have neither failed nor entered a collective.
    healthy = (dataclasses.replace(rank(n), collectives=rank(n).collectives[:-1]) for n in (0, 1))
    refused = (raised_in(n, "ValueError", NOT_A_MEMBER, C10D, "get_group_rank", t=T + n / 100) for n in (2, 3))
    groups = (ProcessGroup("0", (0, 1, 2, 3)), ProcessGroup("1", (0, 1)), ProcessGroup("2", (2, 3)))

    verdict = diagnose(dataclasses.replace(case(*healthy, *refused), groups=groups))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL401", (2, 3), "high")
    assert verdict.summary == "ranks 2 and 3 raised ValueError: Global rank 0 is not part of group [2, 3]"
    assert "get_global_rank(group, 0), which is 2" in verdict.remedy
    assert "group_src" in verdict.remedy


def test_peers_of_those_whose_arguments_were_refused_are_victims() -> None:
    verdict = diagnose(
        case(
            lost_peer(rank(0)), lost_peer(rank(1)), *(raised_in(n, "ValueError", "no", C10D, "scatter") for n in (2, 3))
        )
    )

    assert (verdict.culprit_ranks, verdict.secondary) == ((2, 3), (0, 1))


def test_a_value_error_of_the_program_may_still_come_of_another_rank() -> None:
    alike = (raised(rank(n), "ValueError", "rank 0 sent nothing") for n in (2, 3))

    assert diagnose(case(rank(0), rank(1), *alike)).culprit_ranks == ()

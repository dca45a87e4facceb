"""Exceptions that the signatures know: what is said of them, and that a class never names another rank."""

from __future__ import annotations

import dataclasses

import pytest
from golden import golden
from golden_classes import FULL, GIB, KILLED, full, known
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import LOOP, STEP, TORCH, T, all_reduce, case, lost_peer, raised, rank
from stories import permuted, pieces, reactions, without
from test_gpu_mapping import DUPLICATE, ORDINAL, on

from safelaunch.diagnosis import diagnose
from safelaunch.evidence.logs import signatures
from safelaunch.model import Case, GpuState, Location, OpenFiles, RankFacts, Reducer, Share, Space, Stack, Surroundings
from safelaunch.report import verdict as terminal
from safelaunch.run.messages import classified

steady = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SHIPPED = signatures.load((), {"XDG_CONFIG_HOME": "/nowhere"})
OLD_FULL = (
    "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 23.69 GiB total capacity; 21.00 GiB already allocated; "
    "301.56 MiB free; 22.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting"
)
IN_PIECES = (
    f"{FULL} Of the allocated memory 60.00 GiB is allocated by PyTorch, and 9.50 GiB is reserved by PyTorch but "
)
IN_PIECES += "unallocated."
NO_SHM = "unable to allocate shared memory(shm) for file </torch_7>: No space left on device (28)"


def told(*ranks: RankFacts, **more: object) -> Case:
    """A case as a run makes it: the shipped signatures have judged its messages."""
    return classified(dataclasses.replace(case(*ranks), **more), SHIPPED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message", "chain", "code"),
    [
        ("torch.OutOfMemoryError", FULL, (), "SL420"),
        ("torch.cuda.OutOfMemoryError", OLD_FULL, (), "SL420"),
        ("RuntimeError", "CUDA error: out of memory", (), "SL420"),
        ("RuntimeError", NO_SHM, (), "SL421"),
        ("OSError", "[Errno 24] Too many open files: '/data/shard-17'", (), "SL422"),
        ("RuntimeError", "received 0 items of ancdata", (), "SL422"),
        ("OSError", "[Errno 28] No space left on device", (), "SL423"),
        ("OSError", "[Errno 122] Disk quota exceeded: '/home/ada/model.pt'", (), "SL423"),
        ("OSError", "[Errno 98] Address already in use", (), "SL424"),
        ("torch.AcceleratorError", ORDINAL, (), "SL425"),
        ("torch.distributed.DistBackendError", DUPLICATE, (), "SL426"),
        ("torch.AcceleratorError", "CUDA error: device-side assert triggered\nCUDA kernel errors", (), "SL427"),
        ("RuntimeError", KILLED[1], (f"RuntimeError: {KILLED[0]}",), "SL429"),
        ("RuntimeError", "the checkpoint failed", ("OSError: [Errno 28] No space left on device",), "SL423"),
        ("ValueError", "loss is nan", (), "SL401"),
        ("ConnectionError", "Broken pipe", (), "SL401"),
    ],
)  # fmt: skip
def test_a_message_leads_to_its_code(kind: str, message: str, chain: tuple[str, ...], code: str) -> None:
    verdict = diagnose(told(lost_peer(rank(0)), raised(rank(1), kind, message, chain=chain), rank(2)))

    assert (verdict.code, verdict.culprit_ranks, verdict.secondary) == (code, (1,), (0,))
    assert (
        len(terminal.lines(dataclasses.replace(verdict, traceback=""), "safelaunch_runs/a/incident-0", exit_code=1))
        <= 10
    )


def test_torch_save_is_told_from_other_trouble_by_the_disk() -> None:
    message = "[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"

    def saved(free: int) -> str:
        around = Surroundings(disk=Space("/ckpt", 100 * GIB, free, file="/ckpt/a.pt"))
        facts = raised(rank(1), "RuntimeError", message)
        assert facts.error is not None
        facts = dataclasses.replace(facts, error=dataclasses.replace(facts.error, around=around))
        return diagnose(told(rank(0), facts)).code

    assert (saved(0), saved(50 * GIB)) == ("SL423", "SL401")


def test_memory_in_pieces_has_a_remedy_of_its_own() -> None:
    verdict = diagnose(told(rank(0), raised(rank(1), "torch.OutOfMemoryError", IN_PIECES)))

    assert "expandable_segments" in verdict.remedy


def test_ranks_that_took_the_same_gpu() -> None:
    full = raised(on(2, chosen=0), "torch.OutOfMemoryError", FULL)
    verdict = diagnose(told(on(0), on(1), full, on(3, chosen=0)))

    assert verdict.because[0] == "3 processes use GPU 0: ranks 0, 2 and 3"
    assert "set_device" in verdict.remedy


def test_two_ranks_on_one_gpu_are_both_named_in_words() -> None:
    everywhere = [raised(on(n, chosen=0), "torch.distributed.DistBackendError", DUPLICATE) for n in range(4)]
    verdict = diagnose(told(*everywhere))

    assert (verdict.code, verdict.culprit_ranks) == ("SL426", ())
    assert verdict.summary.startswith("ranks 0 and 2 use the same GPU (1b000)")


def test_two_ranks_on_one_gpu_are_named_where_nccl2_keeps_the_reason_to_itself() -> None:
    message = "Failed to initialize NCCL communicator: invalid usage (run with NCCL_DEBUG=WARN for details)"
    same = [raised(on(n, chosen=n if n > 1 else 0), "RuntimeError", message) for n in range(4)]
    verdict = diagnose(told(*same))

    assert (verdict.code, verdict.summary) == (
        "SL426",
        "ranks 0 and 1 use the same GPU (0), which NCCL does not allow",
    )
    own = [raised(on(n, chosen=n), "RuntimeError", message) for n in range(4)]
    assert "the same GPU" not in diagnose(told(*own)).summary


def test_what_the_driver_logged_of_the_gpu_is_told() -> None:
    line = "NVRM: Xid (PCI:0000:4b:00): 31, pid=4101, name=python, Ch 00000008, MMU Fault"
    gpus = (GpuState(0, ranks=(0,)), GpuState(1, ranks=(1,), xids=(line,)))
    kernel = ("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered")
    verdict = diagnose(told(lost_peer(rank(0)), raised(rank(1), *kernel), gpus=gpus))

    assert (verdict.code, verdict.culprit_ranks) == ("SL427", (1,))
    assert verdict.because[0].startswith("the driver logged Xid 31")


def test_hardware_that_failed_is_infrastructure() -> None:
    line = "NVRM: Xid (PCI:0000:4b:00): 79, pid=4101, GPU has fallen off the bus."
    gpus = (GpuState(0, ranks=(0,)), GpuState(1, ranks=(1,), xids=(line,)))
    kernel = ("torch.AcceleratorError", "CUDA error: unspecified launch failure")
    failed = diagnose(told(lost_peer(rank(0)), raised(rank(1), *kernel), gpus=gpus))
    other = diagnose(told(lost_peer(rank(0)), raised(rank(1), "ValueError", "loss is nan"), gpus=gpus))

    assert (failed.code, failed.culprit_ranks, failed.exit_code) == ("SL428", (1,), 75)
    assert (other.code, other.culprit_ranks) == ("SL401", (1,))


def test_descriptors_that_were_closed_meanwhile_are_not_contradicted() -> None:
    def said(count: int) -> str:
        around = Surroundings(open_files=OpenFiles(1024, count, (Share("sockets", 9),)))
        verdict = diagnose(
            case(rank(0), known(rank(1), "SL422", "OSError", "[Errno 24] Too many open files", around=around))
        )
        return verdict.summary

    assert said(1024).endswith("1024 of 1024")
    assert said(13).endswith("a process may have 1024")


def test_a_users_word_for_a_consequence_counts(tmp_path) -> None:  # type: ignore[no-untyped-def]
    own = tmp_path / "own.toml"
    own.write_text(
        '[[signature]]\nname = "halo"\npattern = "halo exchange failed"\nrole = "consequence"\nmeans = "lost"\n'
    )
    found = signatures.load([str(own)], {"XDG_CONFIG_HOME": "/nowhere"})
    ranks = (raised(rank(0), "HaloError", "halo exchange failed"), raised(rank(1), "ValueError", "nan", t=T + 2))
    before, after = diagnose(told(*ranks)), diagnose(classified(case(*ranks), found))

    assert (before.culprit_ranks, after.culprit_ranks) == ((0,), (1,))


def test_what_a_run_has_written_down_stays() -> None:
    written = case(rank(0), known(rank(1), "SL423", "ValueError", "loss is nan"))

    assert classified(written, SHIPPED) == written


def test_ranks_that_raise_alike_for_themselves_are_sure_only_at_the_same_line() -> None:
    def both(line: Location) -> str:
        return diagnose(told(lost_peer(rank(0)), full(1), full(2, T + 0.02, line))).confidence

    assert (both(STEP), both(LOOP)) == ("high", "medium")


def test_a_class_of_a_rank_that_is_not_here_is_its_own_nodes_matter() -> None:
    said = "checkpoint failed on rank 6: [Errno 28] No space left on device"
    away = told(*(raised(rank(n), "RuntimeError", said) for n in range(2)), world_size=8)

    assert diagnose(away).culprit_ranks == ()


def test_a_file_whose_name_says_rank_is_the_ranks_own_trouble() -> None:
    # A number beyond the job's is no rank; neither is the rank's own.
    for said in ("No space left on device: 'process 5117'", "No space left on device on rank 1"):
        assert diagnose(told(lost_peer(rank(0)), raised(rank(1), "OSError", said))).culprit_ranks == (1,)


# -------------------------------------------------------------------------------------------- properties


MESSAGES = {
    "SL420": ("torch.OutOfMemoryError", FULL),
    "SL422": ("OSError", "[Errno 24] Too many open files"),
    "SL423": ("OSError", "[Errno 28] No space left on device"),
    "SL424": ("OSError", "[Errno 98] Address already in use"),
    "SL427": ("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    "SL429": ("RuntimeError", KILLED[0]),
}


@st.composite
def stories(draw: st.DrawFn) -> tuple[Case, set[int]]:
    """Some ranks run out of something, each by itself; the others react, and GPUs were read or not."""
    size = draw(st.integers(2, 8))
    code = draw(st.sampled_from(sorted(MESSAGES)))
    culprits = draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=max(1, size - 1)))
    ranks = []
    for number in range(size):
        facts = rank(number, inside=(all_reduce(11, done=True, t=T - 1.2, size=size), all_reduce(size=size)))
        if number in culprits:
            facts = raised(facts, *MESSAGES[code], t=T + draw(st.floats(0, 0.005)))
        else:
            facts = draw(reactions(facts))
        ranks.append(facts)
    gpus = tuple(GpuState(n, ranks=(n,), memory_total=80 * GIB, memory_used=70 * GIB) for n in range(size))
    return told(*ranks, gpus=gpus if draw(st.booleans()) else ()), culprits


@steady
@given(stories())
def test_those_that_ran_out_are_named_and_nobody_else(story: tuple[Case, set[int]]) -> None:
    verdict = diagnose(story[0])

    assert set(verdict.culprit_ranks) == story[1]
    assert not set(verdict.secondary) & story[1]


@steady
@given(st.data(), stories())
def test_other_numbers_name_the_same_ranks(data: st.DataObject, story: tuple[Case, set[int]]) -> None:
    order = data.draw(st.permutations(range(len(story[0].ranks))))
    other = dataclasses.replace(permuted(story[0], order), gpus=())
    before, after = diagnose(dataclasses.replace(story[0], gpus=())), diagnose(other)

    assert after.code == before.code
    assert set(after.culprit_ranks) == {order[number] for number in before.culprit_ranks}
    assert after.confidence == before.confidence


@steady
@given(stories(), st.integers(1, 4))
def test_healthy_ranks_change_nothing(story: tuple[Case, set[int]], count: int) -> None:
    size = len(story[0].ranks)
    more = tuple(rank(number) for number in range(size, size + count))
    wider = dataclasses.replace(story[0], ranks=(*story[0].ranks, *more), world_size=size + count)
    before, after = diagnose(story[0]), diagnose(wider)

    assert (after.code, after.culprit_ranks) == (before.code, before.culprit_ranks)


@steady
@given(stories())
def test_lost_evidence_names_nobody_else(story: tuple[Case, set[int]]) -> None:
    incident, culprits = story
    poorer = [dataclasses.replace(incident, gpus=()), *(without(incident, *piece) for piece in pieces(incident))]
    unknown = [
        dataclasses.replace(facts, error=dataclasses.replace(facts.error, known=None)) if facts.error else facts
        for facts in incident.ranks
    ]
    for one in (*poorer, dataclasses.replace(incident, ranks=tuple(unknown))):
        assert set(diagnose(one).culprit_ranks) <= culprits


# ------------------------------------------------------------------------------------- unused parameters


def with_models(incident: Case, culprit: int, *, tolerant: bool = False, without: int = 2) -> Case:
    names = tuple(f"encoder.3.p{number}" for number in range(without))
    ranks = tuple(
        dataclasses.replace(
            facts, reducers=(Reducer("Net", 10, names if facts.rank == culprit else (), tolerant=tolerant),)
        )
        for facts in incident.ranks
    )
    return dataclasses.replace(incident, ranks=ranks)


def test_a_hang_for_want_of_gradients_says_so() -> None:
    incident, expected = golden()["hang-wrong-operation-of-cpp"]
    (culprit,) = expected.culprit_ranks
    verdict = diagnose(with_models(incident, culprit))

    assert (verdict.code, verdict.culprit_ranks) == (expected.code, expected.culprit_ranks)
    assert (
        verdict.because[0]
        == f"rank {culprit} left its backward pass without gradients that its peers have: encoder.3: 2 parameters"
    )
    assert "find_unused_parameters" in verdict.remedy


@pytest.mark.parametrize("how", [{"tolerant": True}, {"without": 10}, {"without": 0}])
def test_a_hang_of_another_reason_does_not(how: dict[str, int]) -> None:
    # Told to expect it; all of them (it is past `zero_grad`); none.
    incident, expected = golden()["hang-wrong-operation-of-cpp"]
    before, after = diagnose(incident), diagnose(with_models(incident, expected.culprit_ranks[0], **how))  # type: ignore[arg-type]

    assert before == after


def test_a_peer_that_is_not_to_blame_is_not_named_for_it() -> None:
    incident, expected = golden()["hang-wrong-operation-of-cpp"]
    other = next(facts.rank for facts in incident.ranks if facts.rank not in expected.culprit_ranks)

    assert diagnose(with_models(incident, other)).culprit_ranks == expected.culprit_ranks


def test_of_two_that_disagree_the_one_without_gradients_is_named_at_its_own_line() -> None:
    incident, expected = golden()["hang-two-that-disagree"]
    assert expected.culprit_ranks == ()
    for culprit in (0, 1):
        peer = next(facts for facts in incident.ranks if facts.rank != culprit)
        backward = Stack((Location(f"{TORCH}/autograd/graph.py", 824, "_engine_run_backward"), LOOP), "py-spy")
        ranks = tuple(
            dataclasses.replace(facts, stack=backward, stacks=(backward,)) if facts is peer else facts
            for facts in incident.ranks
        )
        verdict = diagnose(with_models(dataclasses.replace(incident, ranks=ranks), culprit))

        assert (verdict.code, verdict.slug, verdict.culprit_ranks) == ("SL314", "unused-parameters", (culprit,))
        assert verdict.confidence == "medium"
        own = next(facts for facts in incident.ranks if facts.rank == culprit).collectives[-1].location
        assert verdict.location == own

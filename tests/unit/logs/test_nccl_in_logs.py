# ruff: noqa: E501 - lines of logs are as long as they are
"""What NCCL says of its errors leads the headline, whole; the class and the ranks follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, WORLD, mixed, rank, traceback
from test_no_false_all_clear import STEPS, judged

SYSTEM = ("unhandled system error (run with NCCL_DEBUG=INFO for details)", "ncclSystemError: System call failed. ")
CUDA = (
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
)
REMOTE = (
    "remote process exited or there was a network error",
    "ncclRemoteError: A call failed possibly due to a network error.",
)
WARN = "node1:123:456 [1] somewhere.cc:72 NCCL WARN "


def raised(kind: tuple[str, str], last: str, number: int = 1) -> str:
    error = f"torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, {kind[0]}, NCCL version 2.26.2\n{kind[1]}\nLast error:\n{last}"
    return rank(number, traceback(error, MAIN, library=True))


LONG = (
    "Error while creating shared memory segment /dev/shm/"
    + "nccl-" * 40
    + "end (size 33030528), error: Permission denied (13)"
)
OWN = {  # what the rank that says it has met itself: (kind, last error, code)
    "no room for a segment": (SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-6kPxTg (size 33030528), error: No space left on device (28)", "SL421"),
    "no room to extend it": (SYSTEM, "Error: failed to extend /dev/shm/nccl-6kPxTg to 33030532 bytes, error: No space left on device (28)", "SL421"),
    "a long path": (SYSTEM, LONG, "SL426"),
    "a full GPU": (CUDA, "Cuda failure 2 'out of memory'", "SL420"),
    "a kernel": (CUDA, "Cuda failure 700 'an illegal memory access was encountered'", "SL427"),
    "the fabric manager": (CUDA, "Cuda failure 802 'system not yet initialized'", "SL426"),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_the_last_error_of_nccl_is_the_reason_whole(tmp_path: Path, name: str) -> None:
    kind, last, code = OWN[name]
    verdict = judged(tmp_path, STEPS + raised(kind, last))

    assert (verdict.code, verdict.culprit_ranks) == (code, (1,))
    assert verdict.summary.endswith(last)


@pytest.mark.parametrize(
    ("said", "name", "code"),
    [
        ("Cuda failure 719", "unspecified launch failure", "SL427"),
        ("Cuda failure 46", "all CUDA-capable devices are busy or unavailable", "SL426"),
        ("Cuda failure 999", "unknown error", "SL426"),
    ],
)
def test_a_number_of_cuda_is_told_with_its_name(tmp_path: Path, said: str, name: str, code: str) -> None:
    verdict = judged(tmp_path, STEPS + raised(CUDA, said))

    assert verdict.code == code
    assert f"{said} '{name}'" in verdict.summary


BETWEEN = {  # what lies between processes names none of them
    "a rank twice": "Bootstrap Root : rank 1 of 4 ranks has already checked in",
    "other numbers of ranks": "Bootstrap Root : mismatch in rank count from procs 4 : 8",
    "no interface": "Bootstrap : no socket interface found",
    "no route": "socketPollConnect: connect to 172.17.0.1<47123> returned No route to host, exceeded error retry count after 35 attempts",
    "a link-local address": "socketStartConnect: Connect to fe80::a00:27ff:fe4e:66a1%ens3<47123> failed : Cannot assign requested address",
}


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("warned", [False, True])
def test_what_lies_between_processes_names_none(tmp_path: Path, name: str, *, warned: bool) -> None:
    last = BETWEEN[name]
    verdict = judged(tmp_path, f"{WARN}{last}\n" if warned else raised(SYSTEM, last))

    assert (verdict.code, verdict.culprit_ranks) == ("SL426", ())
    assert last in verdict.summary


LOST = {
    "refused": (SYSTEM, "socketPollConnect: connect to 10.0.0.7<33759> returned Connection refused, exceeded error retry count after 35 attempts"),
    "remote": (REMOTE, "socketProgressOpt: Call to recv from 10.0.0.7<33759> failed : Connection reset by peer"),
    "closed": (("internal error", "ncclInternalError: Internal check failed."), "Net : Connection closed by remote peer 10.0.0.7<50260>"),
    "InfiniBand": (REMOTE, "NET/IB : Got completion from peer 10.0.0.7<38210> with status=12 opcode=129 len=0 vendor err 129 (Recv)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_lost_peer_is_told_by_its_address(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, STEPS + raised(*LOST[name]))

    assert (verdict.code, verdict.culprit_ranks, verdict.secondary) == ("SL412", (), (1,))
    assert "10.0.0.7<" in verdict.summary
    assert ("status=12 (transport retries used up" in verdict.summary) == (name == "InfiniBand")


def test_a_lost_peer_leads_nowhere_where_another_rank_failed_by_itself(tmp_path: Path) -> None:
    text = raised(*LOST["refused"]) + rank(3, traceback("ValueError: bad sample 7", MAIN))

    assert judged(tmp_path, text).culprit_ranks == (3,)


def test_whose_a_warning_is_the_same_process_has_said(tmp_path: Path) -> None:
    init = WORLD.format(4).replace("node-a:1:1 [0]", "node1:123:456 [1]").replace("rank 0", "rank 3")
    verdict = judged(tmp_path, f"{init}{WARN}Cuda failure 700 'an illegal memory access was encountered'\n")

    assert verdict.culprit_ranks == (3,)


def test_a_number_within_a_group_is_none_of_the_job(tmp_path: Path) -> None:
    init = WORLD.format(2).replace("node-a:1:1 [0]", "node1:123:456 [1]")
    verdict = judged(
        tmp_path, f"world_size: 8\n{init}{WARN}Cuda failure 700 'an illegal memory access was encountered'\n"
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL427", ())


def test_marks_are_missed_only_where_there_are_none(tmp_path: Path) -> None:
    line = f"{WARN}Cuda failure 700 'an illegal memory access was encountered'\n"

    def missed(text: str) -> int:
        return sum("no marks of ranks" in reason for reason in judged(tmp_path, text).because)

    assert missed(STEPS + line) == 1
    assert missed(f"[rank0]: step 3\n[rank1]: step 3\n{line}") == 0


def test_the_reason_of_mixed_tracebacks_is_theirs(tmp_path: Path) -> None:
    kind, last, code = OWN["no room for a segment"]
    plain = raised(kind, last).replace("[rank1]: ", "")
    verdict = judged(tmp_path, STEPS + mixed(plain, plain))

    assert (verdict.code, verdict.culprit_ranks) == (code, ())
    assert last in verdict.summary


def test_a_warning_says_why_an_error_of_nccl_was_raised(tmp_path: Path) -> None:
    error = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    verdict = judged(tmp_path, f"{WARN}{OWN['no room to extend it'][1]}\n" + rank(1, traceback(error, MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL421", (1,))
    assert OWN["no room to extend it"][1] in verdict.summary

# ruff: noqa: E501 - lines of logs are as long as they are
"""The file of known messages: the shipped one, and those that users add."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli.main import main
from safelaunch.codes import CATALOGUE, EXIT_NOTHING_WRONG, EXIT_USAGE
from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.evidence.logs.signatures import SHIPPED, Signature, load, tomllib
from safelaunch.model import SafelaunchError

NOWHERE = {"HOME": "/nonexistent"}
OWN = r"""
[[signature]]
name = "licence"
contains = ["licence server"]
pattern = 'licence server said (?P<code>\d+)'
role = "cause"
code = "SL401"
means = "the licence server refused it"
remedy = "ask for more licences"
sources = ["our wiki"]
"""


def test_every_shipped_signature_has_sources_and_reads_fast() -> None:
    for signature in load(environ=NOWHERE):
        assert signature.sources, signature.known.name
        assert signature.contains, signature.known.name
        assert signature.known.code in ("", *CATALOGUE)
        assert signature.known.remedy or signature.known.role != "cause", signature.known.name


def test_signatures_of_the_user_come_first(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "a.log").write_text("[rank2]: licence server said 403\n")
    signatures = load([str(tmp_path / "own.toml")], NOWHERE)
    verdict = diagnose(read([str(tmp_path / "a.log")], signatures))

    assert signatures[0].known.name == "licence"
    assert verdict.culprit_ranks == (2,)
    assert "the licence server refused it" in verdict.summary
    assert verdict.remedy == "ask for more licences"


def test_the_users_own_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "safelaunch").mkdir()
    (tmp_path / "safelaunch" / "signatures.toml").write_text(OWN)

    assert load(environ={"XDG_CONFIG_HOME": str(tmp_path)})[0].known.name == "licence"


def test_a_name_that_is_used_again_replaces_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace("licence", "xid", 1))
    named = [signature for signature in load([str(tmp_path / "own.toml")], NOWHERE) if signature.known.name == "xid"]

    assert [signature.known.remedy for signature in named] == ["ask for more licences"]


def test_a_signature_without_contains_is_searched_everywhere(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace('contains = ["licence server"]\n', ""))
    (tmp_path / "a.log").write_text("step 1\n" * 100 + "[rank2]: licence server said 403\n")
    verdict = diagnose(read([str(tmp_path / "a.log")], load([str(tmp_path / "own.toml")], NOWHERE)))

    assert verdict.culprit_ranks == (2,)


def test_a_signature_may_name_the_rank(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace("said (?P<code>", "refused rank (?P<rank>"))
    (tmp_path / "a.log").write_text("[rank0]: licence server refused rank 5\n")
    verdict = diagnose(read([str(tmp_path / "a.log")], load([str(tmp_path / "own.toml")], NOWHERE)))

    assert verdict.culprit_ranks == (5,)


BROKEN = {
    "signature = 1": "tables [[signature]]",
    "[[signature]\n": "is not valid TOML",
    "x = 1\n" + OWN: "tables [[signature]]",
    OWN.replace("pattern = ", "patern = "): "unknown key patern",
    OWN.replace('means = "the licence server refused it"\n', ""): "has no means",
    OWN.replace("(?P<code>", "(?P<code"): "no regular expression",
    OWN.replace('"cause"', '"reason"'): "role 'reason' is none of",
    OWN.replace("SL401", "SL000"): "there is no code SL000",
    OWN.replace('["our wiki"]', '"our wiki"'): "sources has to be a list",
    OWN.replace('"ask for more licences"', "3"): "remedy has to be a string",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_refused_with_its_reason(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(SafelaunchError) as refused:
        load([str(path)], NOWHERE)

    assert refused.value.diagnostic.code == "SL290"
    assert refused.value.exit_code == EXIT_USAGE
    assert str(path) in refused.value.diagnostic.summary
    assert BROKEN[text] in refused.value.diagnostic.summary


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SafelaunchError, match="cannot be read"):
        load([str(tmp_path / "none.toml")], NOWHERE)


# A wording of each signature, as a public thread or the program's source has it: (line, signature).
WORDINGS = {
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 690.00 MiB (GPU 0; 39.59 GiB total capacity; 973.79 "
    "MiB already allocated)": "cuda-out-of-memory",
    "x NCCL WARN Cuda failure 'out of memory'": "nccl-cuda-out-of-memory",
    "RuntimeError: CUDA error: invalid device ordinal": "invalid-device-ordinal",
    "CUDA error: an illegal memory access was encountered": "cuda-fault",
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001": "xid-follows",
    "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.": "xid-hardware",
    "Mismatched NCCL version detected : rank 0 version 22304 rank 1 version 22105": "nccl-version-mismatch",
    "x ib_plugin.c:1105 NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 4, opcode 5327": "nccl-ib-completion",
    "x misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<42830>": "nccl-remote-error",
    "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)": "nccl-error",
    "RuntimeError: NCCL communicator was aborted on rank 3. Original reason for failure was": "nccl-aborted",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error: Connection reset by peer": "gloo-lost-peer",
    "failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?": "store-gone",
    "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0": "store-timeout",
    "[2] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by key '0', but "
    "store->get('0') got error: Socket Timeout": "nccl-id",
    "OSError: [Errno 24] Too many open files: '/proc/1'": "open-files",
    "OSError: [Errno 122] Disk quota exceeded": "disk-full",
    "OSError: [Errno 27] File too large": "disk-full",
    "OSError: [Errno 12] Cannot allocate memory": "no-host-memory",
    "MemoryError": "no-host-memory",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 64.0 MiB for an array": "no-host-memory",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 134217728 bytes. Error code 12 (Cannot allocate memory)": "no-host-memory",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0.": "slurm-oom",
    "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2022-08-12T02:06:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS "
    "***": "slurm-cancelled",
    "slurmstepd: error: *** STEP 37361369.0 ON l5146 CANCELLED AT 2021-03-15T17:50:23 ***": "slurm-step-cancelled",
    "W1229 16:43:25.65 1 x/api.py:723] Received 1 death signal, shutting down workers": "agent-signalled",
    "init.cc:1247 NCCL WARN Mismatched collective detected, please check your calls at and around rank 39": "nccl-collective-mismatch",
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.": "unused-parameters",
}


@pytest.mark.parametrize("line", WORDINGS)
def test_wordings_are_recognised(line: str) -> None:
    found = next((s.known.name for s in load(environ=NOWHERE) if s.search(line)), "")
    assert found == WORDINGS[line]


HEALTHY = [
    "node7:6561:6600 [1] NCCL INFO [Service thread] Connection closed by localRank 2",
    "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported)",
    "val_error: 0.01 oom_score 3 timeout 600",
    "Xid of transaction 79",
    "retrying after MemoryError in the cache",
    "srun: job 9 has been allocated resources",
]


@pytest.mark.parametrize("line", HEALTHY)
def test_ordinary_lines_fit_no_cause(line: str) -> None:
    assert [s.known.name for s in load(environ=NOWHERE) if s.known.role != "note" and s.search(line)] == []


def test_the_shipped_file_is_plain_toml() -> None:
    with open(SHIPPED, "rb") as file:
        tables = tomllib.load(file)["signature"]
    assert len({table["name"] for table in tables}) == len(tables) == len(load(environ=NOWHERE))
    assert all(isinstance(signature, Signature) for signature in load(environ=NOWHERE))


def test_a_file_of_signatures_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "a.log").write_text("[rank2]: licence server said 403\n")
    code = main(["diagnose", "--signatures", str(tmp_path / "own.toml"), str(tmp_path / "a.log")])

    assert code == 0
    assert "the licence server refused it" in capsys.readouterr().out


def test_a_broken_file_of_signatures_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("fine\n")
    code = main(["diagnose", "--signatures", str(tmp_path / "none.toml"), str(tmp_path / "a.log")])

    assert code == EXIT_USAGE
    assert "error[SL290]" in capsys.readouterr().err


def test_a_healthy_log_has_an_exit_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("step 1\nstep 2\n")

    assert main(["diagnose", str(tmp_path / "a.log")]) == EXIT_NOTHING_WRONG
    assert "note[SL498]: nothing wrong was found" in capsys.readouterr().out
